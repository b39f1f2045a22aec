"""Where the time of an iteration goes: forward, backward, communication, optimizer, data, over all ranks.

The timers are megatron-core 0.16.1's, by the names that it starts them with: pipeline_parallel/schedules.py and p2p_communication.py,
distributed/finalize_model_grads.py, optimizer/optimizer.py and distrib_optimizer.py. What runs beside the computation (overlapped
reductions, gathers and sends) is in none of them: only its rest that is waited for. Tensor- and context-parallel communication is
inside forward and backward.
"""

import statistics
from collections.abc import Mapping, Sequence

DATA = "batch-generator"
PHASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "forward": ("forward-compute", ("forward-compute",)),
    "backward": ("backward-compute", ("backward-compute",)),
    "pipeline waits": (
        "pipeline-communication",
        (
            "forward-recv",
            "forward-send",
            "backward-recv",
            "backward-send",
            "forward-send-backward-recv",
            "backward-send-forward-recv",
            "forward-send-forward-recv",
            "backward-send-backward-recv",
            "forward-backward-send-forward-backward-recv",
        ),
    ),
    "gradient reduction": (
        "grads-reduction",
        (
            "all-grads-sync",
            "conditional-embedder-grads-all-reduce",
            "non-tensor-parallel-grads-all-reduce",
            "embedding-grads-all-reduce",
        ),
    ),
    "optimizer": (
        "optimizer",
        (
            "optimizer-copy-to-main-grad",
            "optimizer-unscale-and-check-inf",
            "optimizer-clip-main-grad",
            "optimizer-count-zeros",
            "optimizer-inner-step",
            "optimizer-copy-main-to-model-params",
        ),
    ),
    "parameter gathering": ("params-all-gather", ("params-all-gather",)),
    "data": (DATA, (DATA,)),
}
"""Phase to its name in the log and the timers that add up to it; the data's time is taken out of the forward pass."""
TIMERS = tuple(dict.fromkeys(timer for _, timers in PHASES.values() for timer in timers))
NOTABLE = 0.05
"""Share by which a rank's computation must exceed that of its pipeline stage to be named."""

Row = Sequence[float]
"""Seconds of one rank, in the order of TIMERS or of PHASES."""


def phases_of(row: Row) -> dict[str, float]:
    """Return the seconds of each phase from the seconds of each of TIMERS."""
    seconds = dict(zip(TIMERS, row, strict=True))
    phases = {phase: sum(seconds[name] for name in names) for phase, (_, names) in PHASES.items()}
    return phases | {"forward": max(0.0, phases["forward"] - phases["data"])}


def table_lines(table: Sequence[tuple[str, Sequence[float]]]) -> list[str]:
    """Return the lines for timers and their seconds per iteration on each rank; those that never ran are left out.

    The form is Megatron-LM's (megatron/core/timers.py, _get_global_min_max_time_string), of ranks that have the timer.
    """
    lines = [" (min, max) time across ranks (ms):"]
    for name, seconds in table:
        known = [1000 * one for one in seconds if one > 0]
        if known:
            lines.append(f"    {(name + ' ').ljust(48, '.')}: ({min(known):.2f}, {max(known):.2f})")
    return lines


class PhaseSum:
    """All intervals but the first, which holds the first iteration, and those that are spoilt, unless there are no others."""

    def __init__(self, num_stages: int) -> None:
        """Begin with nothing."""
        self._num_stages, self._has_good, self._num_intervals = num_stages, False, 0
        self._clear()

    def _clear(self) -> None:
        self._seconds, self._num_iterations = 0.0, 0
        self._rows: list[list[float]] = []

    def add(self, rows: Sequence[Row], seconds: float, num_iterations: int, *, spoilt: bool = False) -> None:
        """Add an interval: seconds [rank][phase] and its length."""
        is_good = self._num_intervals > 0 and not spoilt
        self._num_intervals += 1
        if self._has_good and not is_good:
            return
        if is_good and not self._has_good:
            self._has_good = True
            self._clear()
        sums = self._rows or [[0.0] * len(PHASES) for _ in rows]
        self._rows = [[a + b for a, b in zip(old, new, strict=True)] for old, new in zip(sums, rows, strict=True)]
        self._seconds += seconds
        self._num_iterations += num_iterations

    def lines(self) -> list[str]:
        """Return the shares of the time, mean over the ranks, and the rank that computes slower than its pipeline stage."""
        if not self._seconds:
            return []
        whole_s = max(self._seconds, *map(sum, self._rows))  # the first interval begins earlier on some ranks
        means = [statistics.fmean(column) / whole_s for column in zip(*self._rows, strict=True)]
        shares = dict(zip(PHASES, means, strict=True))
        shares["other"] = max(0.0, 1 - sum(means))
        where = f"{self._num_iterations} iterations, mean of {len(self._rows)} ranks"
        return [f" > time went to: {_listed(shares)} ({where})", *self._slowest()]

    def _slowest(self) -> list[str]:
        names = list(PHASES)
        compute = [row[names.index("forward")] + row[names.index("backward")] for row in self._rows]
        size = len(compute) // self._num_stages
        medians = [statistics.median(compute[i : i + size]) for i in range(0, len(compute), size)]
        excess = [one / medians[rank // size] - 1 if medians[rank // size] else 0.0 for rank, one in enumerate(compute)]
        worst = max(range(len(excess)), key=excess.__getitem__)
        if excess[worst] < NOTABLE:
            return []
        stage = f"of pipeline stage {worst // size}" if self._num_stages > 1 else "of all"
        return [f" > slowest rank: {worst}, forward and backward {100 * excess[worst]:.0f} % above the median {stage}"]


def _listed(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items() if share >= 0.0005)
