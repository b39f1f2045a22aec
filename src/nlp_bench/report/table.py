"""The rows of a report: the same cells for the terminal, CSV, markdown, HTML and the data frame."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nlp_bench.analysis.repeats import Pool, repeats, repeats_json
from nlp_bench.inputs.sources import PassedOver
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.limit import with_verdict
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.report.energy import price_json

if TYPE_CHECKING:
    from nlp_bench.measure.window import Window


@dataclass(frozen=True)
class Field:
    """One column."""

    of: "Callable[[RunResult, Report], Any]"
    """Its cell of a run, None for what is missing."""
    title: str = ""
    """Heading on the page, where the name would not do."""
    unit: str = ""
    """Below that heading."""


def _time(rate: "Callable[[RunResult], float | None]") -> "Callable[[RunResult, Report], float | None]":
    return lambda e, r: time_to_report_s(r.tokens, rate(e))


def _end(pair: tuple[float, float] | None, index: int) -> float | None:
    return pair[index] if pair else None


def _window(entry: RunResult) -> "Window | None":
    return entry.throughput.window if entry.throughput else None


def _mean_s(entry: RunResult) -> float | None:
    times = entry.throughput.seconds_per_iteration if entry.throughput else None
    return times.mean if times else None


def _flops(name: str) -> "Callable[[RunResult, Report], float | None]":
    return lambda e, _: getattr(e.efficiency, name, None)


def _cost(entry: RunResult, report: "Report") -> float | None:
    return entry.energy.cost(report.tokens, report.price_per_kwh) if entry.energy else None


FIELDS: dict[str, Field] = {
    "source": Field(lambda e, _: e.source, "run"),
    "model": Field(lambda e, _: e.model),
    "outcome": Field(lambda e, _: e.outcome.value),
    "num_gpus": Field(lambda e, _: e.num_gpus, "GPUs"),
    "accelerator": Field(lambda e, _: e.accelerator),
    "global_batch_size": Field(lambda e, _: e.global_batch_size, "global batch", "samples"),
    "sequence_length": Field(lambda e, _: e.sequence_length, "sequence", "tokens"),
    "supplied": Field(lambda e, _: "; ".join(each.cell for each in e.supplied) or None, "supplied by hand"),
    "num_records": Field(lambda e, _: e.num_records, "logged intervals"),
    "tokens_per_second_reference": Field(lambda e, _: e.reference, "rate, reference", "tokens/s"),
    "time_to_report_reference_s": Field(_time(lambda e: e.reference), "time, reference", "s"),
    "tokens_per_second_steady": Field(lambda e, _: e.steady, "rate, steady", "tokens/s"),
    "tokens_per_second_ci95_low": Field(lambda e, _: _end(e.ci95, 0), "95 % interval from", "tokens/s"),
    "tokens_per_second_ci95_high": Field(lambda e, _: _end(e.ci95, 1), "to", "tokens/s"),
    "time_to_report_steady_s": Field(_time(lambda e: e.steady), "time, steady", "s"),
    "time_to_report_ci95_low_s": Field(lambda e, r: _end(e.time_ci95_s(r.tokens), 0), "95 % interval from", "s"),
    "time_to_report_ci95_high_s": Field(lambda e, r: _end(e.time_ci95_s(r.tokens), 1), "to", "s"),
    "tokens_per_second_sustained": Field(lambda e, _: e.sustained, "rate, sustained", "tokens/s"),
    "time_to_report_sustained_s": Field(_time(lambda e: e.sustained), "time, sustained", "s"),
    "tokens_per_second_per_gpu": Field(lambda e, _: e.tokens_per_second_per_gpu, "rate per GPU", "tokens/s"),
    "seconds_per_iteration_mean": Field(lambda e, _: _mean_s(e), "mean iteration", "s"),
    "joules_per_token": Field(lambda e, _: e.energy.joules_per_token if e.energy else None, "energy per token", "J"),
    "energy_kwh": Field(lambda e, r: e.energy.kwh(r.tokens) if e.energy else None, "energy", "kWh"),
    "mean_power_w_per_gpu": Field(
        lambda e, _: e.energy.mean_power_w_per_gpu if e.energy else None, "mean power per GPU", "W"
    ),
    "cost": Field(_cost),
    "window_first_iteration": Field(
        lambda e, _: w.first_iteration if (w := _window(e)) else None, "steady window from", "iteration"
    ),
    "window_last_iteration": Field(lambda e, _: w.last_iteration if (w := _window(e)) else None, "to", "iteration"),
    "dialect": Field(lambda e, _: e.dialect),
    "rules": Field(lambda e, _: e.rules.result if e.rules else None),
    "reasons": Field(lambda e, _: "; ".join(e.reason_texts) or None),
    "model_tflops_per_gpu": Field(_flops("model_tflops_per_gpu"), "model FLOP/s per GPU", "TFLOP/s"),
    "model_tflops_full_attention_per_gpu": Field(
        _flops("model_tflops_full_attention_per_gpu"), "the same, full attention", "TFLOP/s"
    ),
    "hardware_tflops_per_gpu": Field(_flops("hardware_tflops_per_gpu"), "hardware FLOP/s per GPU", "TFLOP/s"),
    "legacy_tflops_per_gpu": Field(_flops("legacy_tflops_per_gpu"), "legacy count, x 4/3, per GPU", "TFLOP/s"),
    "mfu": Field(_flops("mfu"), "MFU", "share of the peak"),
    "hfu": Field(_flops("hfu"), "HFU", "share of the peak"),
    "mfu_full_attention": Field(_flops("mfu_full_attention"), "MFU, full attention", "share of the peak"),
}
"""Columns of the CSV, the data frame and, with readable headings, of the other tables; docs/report.md says what each means."""
LIMIT_FIELDS: dict[str, Field] = {
    "limit": Field(lambda e, _: e.verdict.word if e.verdict else None),
    "limit_s": Field(lambda _, r: r.limit_s, "limit", "s"),
    "limit_margin": Field(lambda e, _: e.verdict.margin if e.verdict else None),
    "limit_worst_margin": Field(lambda e, _: e.verdict.worst_margin if e.verdict else None),
}
"""Columns that a limit adds."""
TITLES = {"bar": ("95 % interval", "s; left is faster")}
"""Of columns that the page alone has."""


def title_of(column: str) -> tuple[str, str]:
    """Return the heading and the unit of a column on a page."""
    field = (FIELDS | LIMIT_FIELDS).get(column)
    return (field.title or column.replace("_", " "), field.unit) if field else TITLES[column]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that the writers need."""

    entries: Sequence[RunResult]
    """The runs in the order in which they were named."""
    tokens: int
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
    def fields(self) -> dict[str, Field]:
        """The columns; the verdict on the limit is there only when a limit was given."""
        return FIELDS if self.limit_s is None else FIELDS | LIMIT_FIELDS

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.fields)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each run, a value per column; missing is None."""
        fields = self.fields
        return [{name: field.of(entry, self) for name, field in fields.items()} for entry in self.entries]

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
