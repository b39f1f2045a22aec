"""The settings of one training: Megatron-LM's argument names as one frozen record, checked before torch is imported.

One file per group of settings, with its fields and its rules; rules.py has the rules of single values.
"""

from dataclasses import dataclass

from nlp_bench.train.settings.data import DataSettings, check_data
from nlp_bench.train.settings.families import check_family
from nlp_bench.train.settings.parallel import ParallelSettings, check_parallel
from nlp_bench.train.settings.rules import check_values
from nlp_bench.train.settings.run import (
    CheckpointSettings,
    KernelSettings,
    LengthSettings,
    ScheduleSettings,
    WatchingSettings,
    check_run,
)
from nlp_bench.train.settings.shape import ShapeSettings, check_shape

GROUPS = (
    ShapeSettings, DataSettings, ParallelSettings, LengthSettings, ScheduleSettings, KernelSettings, CheckpointSettings,
    WatchingSettings,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Settings(
    WatchingSettings, CheckpointSettings, KernelSettings, ScheduleSettings, LengthSettings, ParallelSettings, DataSettings,
    ShapeSettings,
):  # fmt: skip
    """The arguments of `python -m nlp_bench.train`; names and meanings are Megatron-LM's unless a docstring says otherwise."""

    def __post_init__(self) -> None:
        check_values(vars(self))
        for check in (check_shape, check_parallel, check_run, check_data, check_family):
            check(self)
