"""The rows of a report: the same cells for the terminal, CSV, markdown, HTML and the data frame."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nlp_bench.analysis.repeats import Pool, repeats, repeats_json
from nlp_bench.inputs.sources import PassedOver
from nlp_bench.measure import efficiency
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.limit import with_verdict
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.report.energy import energy_cells, price_json

COLUMNS = (
    "source",
    "model",
    "outcome",
    "num_gpus",
    "accelerator",
    "global_batch_size",
    "sequence_length",
    "supplied",
    "num_records",
    "tokens_per_second_reference",
    "time_to_report_reference_s",
    "tokens_per_second_steady",
    "tokens_per_second_ci95_low",
    "tokens_per_second_ci95_high",
    "time_to_report_steady_s",
    "time_to_report_ci95_low_s",
    "time_to_report_ci95_high_s",
    "tokens_per_second_sustained",
    "time_to_report_sustained_s",
    "tokens_per_second_per_gpu",
    "seconds_per_iteration_mean",
    "joules_per_token",
    "energy_kwh",
    "mean_power_w_per_gpu",
    "cost",
    "window_first_iteration",
    "window_last_iteration",
    "dialect",
    "rules",
    "reasons",
    *efficiency.COLUMNS,
)
"""Columns of the CSV, the data frame and, with readable headings, of the other tables."""


LIMIT_COLUMNS = ("limit", "limit_s", "limit_margin", "limit_worst_margin")
"""Columns that a limit adds."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that the writers need."""

    entries: Sequence[RunResult]
    """The runs in the order in which they were named."""
    tokens: int
    """Tokens of the hypothetical training."""
    limit_s: float | None = None
    """Limit of the report time in seconds, None without `--limit`."""
    baseline_gpus: int | None = None
    """GPUs of the baseline of scaling curves, None for the smallest size."""
    allow_measured: bool = False
    """Whether logs that are MEASURED are pooled as repeats, too."""
    price_per_kwh: float | None = None
    """Price of a kWh, None without `--price-per-kwh`."""
    currency: str | None = None
    """Word for the unit of the price."""
    passed_over: Sequence[PassedOver] = ()
    """For each folder that was looked through, the files that are no logs."""

    def __post_init__(self) -> None:
        """Have each run's verdict once, for whoever shows it."""
        judged = [with_verdict(entry, self.tokens, self.limit_s) for entry in self.entries]
        object.__setattr__(self, "entries", judged)

    @cached_property
    def repeats(self) -> list[Pool]:
        """The configurations that were run more than once."""
        return repeats(self.entries, allow_measured=self.allow_measured)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns; the verdict on the limit is there only when a limit was given."""
        return COLUMNS if self.limit_s is None else (*COLUMNS, *LIMIT_COLUMNS)

    def row(self, entry: RunResult) -> dict[str, Any]:
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
            "supplied": "; ".join(each.cell for each in entry.supplied) or None,
            "num_records": entry.num_records,
            "tokens_per_second_reference": entry.reference,
            "time_to_report_reference_s": time_to_report_s(self.tokens, entry.reference),
            "tokens_per_second_steady": entry.steady,
            "tokens_per_second_ci95_low": rate_low,
            "tokens_per_second_ci95_high": rate_high,
            "time_to_report_steady_s": time_to_report_s(self.tokens, entry.steady),
            "time_to_report_ci95_low_s": time_low,
            "time_to_report_ci95_high_s": time_high,
            "tokens_per_second_sustained": entry.sustained,
            "time_to_report_sustained_s": time_to_report_s(self.tokens, entry.sustained),
            "tokens_per_second_per_gpu": entry.tokens_per_second_per_gpu,
            "seconds_per_iteration_mean": measured.seconds_per_iteration.mean
            if measured and measured.seconds_per_iteration
            else None,
            **energy_cells(entry.energy, self.tokens, self.price_per_kwh),
            "window_first_iteration": measured.window.first_iteration if measured else None,
            "window_last_iteration": measured.window.last_iteration if measured else None,
            "dialect": entry.dialect,
            "rules": entry.rules.result if entry.rules else None,
            "reasons": "; ".join(entry.reason_texts) or None,
            **(entry.efficiency.cells() if entry.efficiency else dict.fromkeys(efficiency.COLUMNS)),
        }
        if entry.verdict:
            margins = (entry.verdict.word, self.limit_s, entry.verdict.margin, entry.verdict.worst_margin)
            row.update(zip(LIMIT_COLUMNS, margins, strict=True))
        return row

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows."""
        return [self.row(entry) for entry in self.entries]

    def to_json(self) -> dict[str, Any]:
        """Return the record of nlp-bench/report/1.

        `limit_s` and each run's `limit` and `verdict` exist only with a limit, `repeats` only where there are some, `passed_over` only where files were passed over.
        """
        runs = [entry.to_json(self.tokens) for entry in self.entries]
        record: dict[str, Any] = {"schema": "nlp-bench/report/1", "tokens": self.tokens}
        if self.limit_s is not None:
            record["limit_s"] = self.limit_s
        record |= price_json(runs, self.entries, self.tokens, self.price_per_kwh, self.currency)
        record["runs"] = runs
        if self.repeats:
            record["repeats"] = repeats_json(self.repeats, self.tokens, self.limit_s)
        if self.passed_over:
            record["passed_over"] = [passed.to_json() for passed in self.passed_over]
        return record
