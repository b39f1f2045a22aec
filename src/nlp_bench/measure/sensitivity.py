"""The number under other windows: what each tool of the field would have printed for the same log.

The windows are facts of their programs (file names in `CHOICES`); each is applied here as tokens / time over the logged intervals
that lie in it, except the mean of all lines, which is the reference value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.measure.span import Spans

Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The rate of one window."""

    name: str
    """The window in words."""
    used_by: str
    """Whose window it is."""
    num_records: int
    """Logged intervals in it."""
    tokens_per_second: float
    """Tokens / time of these intervals; of the whole machine."""

    def to_json(self, tokens: int) -> dict[str, Any]:
        """Return it with the time of the hypothetical training."""
        return {
            "window": self.name,
            "used_by": self.used_by,
            "num_records": self.num_records,
            "tokens_per_second": self.tokens_per_second,
            "time_to_report_s": tokens / self.tokens_per_second,
        }


def _last(count: int) -> Callable[[Spans], Mask]:
    return lambda spans: np.arange(len(spans)) >= len(spans) - count


def _iterations(first: int, last: int) -> Callable[[Spans], Mask]:
    def inside(spans: Spans) -> Mask:
        ends = spans.records.column("iteration")
        # All of the window has to be there: a log that is too short does not have it.
        has_all = bool(len(spans)) and ends[-1] >= last and spans.first_iterations[0] <= first
        return (spans.first_iterations >= first) & (ends <= last) & has_all

    return inside


def _after_share(share: float) -> Callable[[Spans], Mask]:
    # At least the first, as Megatron-Bridge does: max(1, int(len(steps) * share)).
    return lambda spans: np.arange(len(spans)) >= max(1, int(share * len(spans)))


CHOICES: tuple[tuple[str, str, Callable[[Spans], Mask]], ...] = (
    ("all lines but the first", "NeMo 2 auto-configurator", lambda spans: np.arange(len(spans)) >= 1),
    ("iterations after 5", "NeMo Launcher, CloudAI (JSON)", lambda spans: spans.first_iterations > 5),
    ("iterations 10 to 30", "GCP gpu-recipes", _iterations(10, 30)),
    ("iterations 35 to 44", "NVIDIA dgxc-benchmarking", _iterations(35, 44)),
    ("all but the first 10 %", "Megatron-Bridge (function)", _after_share(0.1)),
    ("the last 30 %", "Megatron-Bridge (command line)", _after_share(0.7)),
    ("the last 10 lines", "CloudAI (CSV), Megatron-Bridge model cards", _last(10)),
    ("the last line", "llm-foundry, Primus", _last(1)),
)
"""Sources: NVIDIA/NeMo nemo/collections/llm/tools/auto_configurator/core/calculate_performance.py; NVIDIA/NeMo-Framework-Launcher
auto_configurator/autoconfig/scripts/compare_throughput.py; NVIDIA/cloudai report_generator/training/models.py and
megatron_run/report_generation_strategy.py; AI-Hypercomputer/gpu-recipes process_training_results.py; NVIDIA/dgxc-benchmarking
pretrain_log_parser.py; NVIDIA-NeMo/Megatron-Bridge performance/argument_parser.py and utils/evaluate.py; mosaicml/llm-foundry
collect_results.py; AMD-AGI/Primus benchmark_report.py."""
MEAN = ("the mean of all lines", "jubench-megatron-lm, CARAML (the reference value)")
"""FZJ-JSC/jubench-megatron-lm benchmark/jube/nlp_benchmark.yaml."""


def sensitivity(spans: Spans, reference: float | None) -> tuple[Choice, ...]:
    """Return the rate under every window that the log is long enough for; windows with the same intervals are told once."""
    found: dict[bytes, Choice] = {}
    for name, used_by, mask_of in CHOICES:
        mask = mask_of(spans)
        if not mask.any():
            continue
        key = np.packbits(mask).tobytes()
        other = found.get(key)
        if other:
            name, used_by = f"{other.name} = {name}", f"{other.used_by}; {used_by}"  # noqa: PLW2901  # the same window
        rate = float(spans.num_tokens[mask].sum() / spans.seconds[mask].sum())
        found[key] = Choice(name=name, used_by=used_by, num_records=int(mask.sum()), tokens_per_second=rate)
    choices = tuple(found.values())
    if reference is None:
        return choices
    return (Choice(name=MEAN[0], used_by=MEAN[1], num_records=len(spans), tokens_per_second=reference), *choices)
