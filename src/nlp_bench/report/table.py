"""The rows of a report: the same cells for the terminal, CSV, markdown, HTML and the data frame."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.report.limit import verdict
from nlp_bench.report.passed import PassedOver

COLUMNS = (
    "source",
    "model",
    "outcome",
    "num_gpus",
    "accelerator",
    "global_batch_size",
    "sequence_length",
    "num_records",
    "tokens_per_second_reference",
    "time_to_report_reference_s",
    "tokens_per_second_steady",
    "tokens_per_second_ci95_low",
    "tokens_per_second_ci95_high",
    "time_to_report_steady_s",
    "time_to_report_ci95_low_s",
    "time_to_report_ci95_high_s",
    "tokens_per_second_per_gpu",
    "seconds_per_iteration_mean",
    "window",
    "dialect",
    "reasons",
)
"""Columns of the CSV, the data frame and, with readable headings, of the other tables."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that the writers need."""

    entries: Sequence[RunEntry]
    """The runs in the order in which they were named."""
    tokens: int
    """Tokens of the hypothetical training."""
    limit_s: float | None = None
    """Limit of the report time in seconds, None without `--limit`."""
    passed_over: Sequence[PassedOver] = ()
    """For each folder that was looked through, the files that are no logs."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns; the verdict on the limit is there only when a limit was given."""
        return COLUMNS if self.limit_s is None else (*COLUMNS, "limit")

    def row(self, entry: RunEntry) -> dict[str, Any]:
        """Return one row, a value per column; missing is None."""
        rate_low, rate_high = entry.ci95 or (None, None)
        time_low, time_high = entry.time_ci95_s(self.tokens) or (None, None)
        measured = entry.throughput
        row = {
            "source": entry.source,
            "model": entry.model,
            "outcome": entry.outcome.value,
            "num_gpus": entry.num_gpus,
            "accelerator": entry.accelerator,
            "global_batch_size": entry.global_batch_size,
            "sequence_length": entry.sequence_length,
            "num_records": entry.num_records,
            "tokens_per_second_reference": entry.reference,
            "time_to_report_reference_s": time_to_report_s(self.tokens, entry.reference),
            "tokens_per_second_steady": entry.steady,
            "tokens_per_second_ci95_low": rate_low,
            "tokens_per_second_ci95_high": rate_high,
            "time_to_report_steady_s": time_to_report_s(self.tokens, entry.steady),
            "time_to_report_ci95_low_s": time_low,
            "time_to_report_ci95_high_s": time_high,
            "tokens_per_second_per_gpu": entry.tokens_per_second_per_gpu,
            "seconds_per_iteration_mean": measured.seconds_per_iteration.mean
            if measured and measured.seconds_per_iteration
            else None,
            "window": f"{measured.window.first_iteration}-{measured.window.last_iteration}" if measured else None,
            "dialect": entry.dialect,
            "reasons": "; ".join(entry.reasons) or None,
        }
        if self.limit_s is not None:
            row["limit"] = verdict(entry, self.tokens, self.limit_s)
        return row

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows."""
        return [self.row(entry) for entry in self.entries]

    def to_json(self) -> dict[str, Any]:
        """Return the record of nlp-bench/report/1.

        `limit_s` and each run's `limit` exist only with a limit, `passed_over` only where files were passed over.
        """
        runs = [entry.to_json(self.tokens) for entry in self.entries]
        record: dict[str, Any] = {"schema": "nlp-bench/report/1", "tokens": self.tokens}
        if self.limit_s is not None:
            record["limit_s"] = self.limit_s
            for run, entry in zip(runs, self.entries, strict=True):
                run["limit"] = verdict(entry, self.tokens, self.limit_s)
        record["runs"] = runs
        if self.passed_over:
            record["passed_over"] = [passed.to_json() for passed in self.passed_over]
        return record
