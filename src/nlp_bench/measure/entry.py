"""One run of a report: who, how it ended, and its numbers if it may have any."""

import re
from dataclasses import dataclass
from typing import Any

from nlp_bench.logs.record import NO_RECORDS, Records
from nlp_bench.measure.provenance import Provenance
from nlp_bench.measure.throughput import Throughput, time_to_report_s
from nlp_bench.outcome import Outcome

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def one_line(text: object) -> str:
    """Return `text` without control characters or broken code points: it may come from a log or a file name."""
    return _CONTROL.sub(" ", str(text).encode("utf-8", "replace").decode()).strip()


@dataclass(frozen=True, kw_only=True)
class RunEntry:
    """One run. Only a VALID one carries numbers: anything else is refused when it is made."""

    source: str
    """Where it was read: the path as the caller named it."""
    dialect: str | None = None
    """Dialect of the log, "reference-table" for published values, None when unknown."""
    outcome: Outcome
    """How it ended."""
    reasons: tuple[str, ...] = ()
    """Why there is no number, or what to know about it."""
    remarks: tuple[str, ...] = ()
    """What a reader of the text should know and a program can see in the other fields."""
    num_records: int | None = None
    """Logged intervals that were believed."""
    total_iterations: int | None = None
    """Iterations that the training would run to."""
    global_batch_size: int | None = None
    """Samples per iteration, the last one where it changes."""
    sequence_length: int | None = None
    """Tokens per sample."""
    num_gpus: int | None = None
    """GPUs (or CPU ranks) of the whole run."""
    accelerator: str | None = None
    """cuda or cpu, where a run.json tells it; a CPU run is never shown as one of GPUs."""
    model: str | None = None
    """Name of the model, where a run.json or a table tells it."""
    records: Records = NO_RECORDS
    """The logged intervals of the attempt that was measured."""
    throughput: Throughput | None = None
    """What was measured."""
    published_tokens_per_second: float | None = None
    """A published reference value without a log."""
    provenance: Provenance | None = None
    """Where the numbers come from, None where no log was read."""

    def __post_init__(self) -> None:
        if self.outcome is not Outcome.VALID and (self.throughput or self.published_tokens_per_second):
            raise ValueError(f"{self.source}: a run that ended {self.outcome.value} carries a number")

    @property
    def has_number(self) -> bool:
        """Say whether the run has any tokens per second."""
        return self.reference is not None or self.throughput is not None

    @property
    def reference(self) -> float | None:
        """Tokens per second by the published formula."""
        return self.throughput.reference if self.throughput else self.published_tokens_per_second

    @property
    def steady(self) -> float | None:
        """Tokens per second over the steady window."""
        return self.throughput.steady if self.throughput else None

    @property
    def ci95(self) -> tuple[float, float] | None:
        """95 % interval of `steady`."""
        return self.throughput.ci95 if self.throughput else None

    @property
    def tokens_per_second_per_gpu(self) -> float | None:
        """`steady` / GPUs, None where either is unknown."""
        return self.steady / self.num_gpus if self.steady and self.num_gpus else None

    def time_ci95_s(self, tokens: int) -> tuple[float, float] | None:
        """Return the 95 % interval of the time in seconds, shortest first."""
        return (tokens / self.ci95[1], tokens / self.ci95[0]) if self.ci95 else None

    def to_json(self, tokens: int) -> dict[str, Any]:
        """Return one object of `runs` in nlp-bench/report/1."""
        measured = self.throughput
        time_ci95_s = self.time_ci95_s(tokens)
        return {
            "source": self.source,
            "dialect": self.dialect,
            "outcome": self.outcome.value,
            "reasons": list(self.reasons),
            "num_records": self.num_records,
            "global_batch_size": self.global_batch_size,
            "sequence_length": self.sequence_length,
            "num_gpus": self.num_gpus,
            "tokens_per_second": {
                "reference": self.reference,
                "steady": self.steady,
                "ci95": list(self.ci95) if self.ci95 else None,
            },
            "time_to_report_s": {
                "reference": time_to_report_s(tokens, self.reference),
                "steady": time_to_report_s(tokens, self.steady),
                "ci95": list(time_ci95_s) if time_ci95_s else None,
            },
            "tokens_per_second_per_gpu": self.tokens_per_second_per_gpu,
            "seconds_per_iteration": dict(vars(measured.seconds_per_iteration))
            if measured and measured.seconds_per_iteration
            else dict.fromkeys(("mean", "median", "p95", "p99", "cv")),
            "window": measured.window.to_json() if measured else None,
            "provenance": self.provenance.to_json() if self.provenance else None,
        }


def why_broken(records: Records) -> str | None:
    """Return what `LogRecord.why_broken` says of the first broken record, with its line; None when all are sound."""
    record = records.first_broken()
    return f"{record.why_broken()} (line {record.line_number})" if record else None
