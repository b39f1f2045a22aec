"""What run.json asked for, as far as the measurement needs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlp_bench.errors import NlpBenchError
from nlp_bench.logs.record import Attempt, Log, Records
from nlp_bench.measure.anytime import Bound, percent, replay
from nlp_bench.measure.habits import Habits
from nlp_bench.measure.sizes import Overrides, sizes_of
from nlp_bench.measure.throughput import Throughput, measure_records
from nlp_bench.measure.workload import lookup

LARGEST = 10**15
"""No count of a run is larger; a number of 400 digits cannot be reckoned with."""


def _positive(run: dict[str, Any], dotted: str, path: Path) -> int:
    value = lookup(run, dotted)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LARGEST:
        raise NlpBenchError(
            f"{path}: {dotted} is {value!r}, expected a whole number from 1 to 10^15; make it with: nlp-bench check"
        )
    return value


def goes_on(run: Mapping[str, Any]) -> bool:
    """Say whether run.json asks to go on from a checkpoint, so that the log begins behind iteration 1."""
    given = lookup(run, "tuning.train_args")
    return isinstance(given, list) and "--load" in given


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What run.json asked for, as far as the measurement needs it."""

    sequence_length: int
    """Tokens per sample."""
    global_batch_size: int
    """Samples per iteration."""
    iterations: int
    """Iterations that the training was to run."""
    log_interval: int
    """Iterations per line of the log."""
    goes_on: bool = False
    """Whether the training was asked to go on from a checkpoint, so that the log may begin behind iteration 1."""
    num_gpus: int | None = None
    """GPUs (or CPU ranks) of the whole run."""
    until: float | None = None
    """Share to which the mean time was to be known before the run ended by itself; None: it was to do all its iterations."""
    enough_at: int | None = None
    """The iteration after which the log says that this was so."""

    @classmethod
    def of(cls, run: dict[str, Any], path: Path) -> "Asked":
        """Read the four values; raises NlpBenchError that names the file, the field and the value."""
        until = lookup(run, "tuning.until")
        return cls(
            sequence_length=_positive(run, "batch.sequence_length", path),
            global_batch_size=_positive(run, "batch.global_batch_size", path),
            iterations=_positive(run, "training.iterations", path),
            log_interval=_positive(run, "training.log_interval", path),
            goes_on=goes_on(run),
            until=percent(f"{path}: tuning.until", until) if isinstance(until, str) else None,
            num_gpus=None if lookup(run, "parallel.num_gpus") is None else _positive(run, "parallel.num_gpus", path),
        )

    def throughput(self, log: Log, attempt: Attempt) -> Throughput | None:
        """Measure the records of `attempt`, which is one of `log`, with these sizes; None when none has a time."""
        done = 0  # a program that goes on warms up too, in whichever iteration is its first
        if self.goes_on and attempt.records:
            done = (int(attempt.records[0].iteration) - 1) // self.log_interval * self.log_interval
        habits = Habits(log_interval=self.log_interval, counts_from=done + 1, events=log.events)
        return measure_records(attempt.records, sizes_of(attempt, self.overrides()), habits)

    def bound(self, records: Records) -> Bound | None:
        """Return what `records` prove about the mean time by the rule of --until; None where it was not asked for or they are few."""
        if self.until is None or not len(records):
            return None
        lines = zip(records.column("iteration").astype(int).tolist(), records.column("elapsed_s").tolist(), strict=True)
        return replay(lines, self.until, self.log_interval)

    def owed_iterations(self, records: Records) -> int:
        """Return the iterations that must be in the log: all, or those after which it says, and its times prove, that it was enough."""
        bound = self.bound(records) if self.enough_at is not None else None
        return min(self.enough_at or self.iterations, self.iterations) if bound and bound.is_proven else self.iterations

    def overrides(self) -> Overrides:
        """Return what run.json says of the sizes as what a person would say on the command line: the log has less weight."""
        return Overrides(
            sequence_length=self.sequence_length, global_batch_size=self.global_batch_size, num_gpus=self.num_gpus
        )
