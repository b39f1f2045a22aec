"""What one training runs with: Megatron-LM's argument names as one frozen record, checked before torch is imported.

One file per group of settings; each holds its fields and the rules that need no torch.
"""

from dataclasses import dataclass

from nlp_bench.train.settings.data import DataSettings, check_data
from nlp_bench.train.settings.families import check_family
from nlp_bench.train.settings.kernels import KernelSettings, check_kernels
from nlp_bench.train.settings.parallel import ParallelSettings, check_parallel
from nlp_bench.train.settings.run import (
    CheckpointSettings,
    LengthSettings,
    ScheduleSettings,
    WatchingSettings,
    check_checkpoint,
    check_length,
    check_schedule,
    check_watching,
)
from nlp_bench.train.settings.shape import ShapeSettings, check_shape

GROUPS = (
    ShapeSettings, DataSettings, ParallelSettings, LengthSettings, ScheduleSettings, KernelSettings, CheckpointSettings,
    WatchingSettings,
)  # fmt: skip
CHECKS = (
    check_shape, check_parallel, check_length, check_schedule, check_kernels, check_checkpoint, check_watching, check_data, check_family,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Settings(
    WatchingSettings, CheckpointSettings, KernelSettings, ScheduleSettings, LengthSettings, ParallelSettings, DataSettings,
    ShapeSettings,
):  # fmt: skip
    """The arguments of `python -m nlp_bench.train`; names and meanings are Megatron-LM's unless a docstring says more."""

    def __post_init__(self) -> None:
        for check in CHECKS:
            check(self)
