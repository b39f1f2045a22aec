"""The report on scaling: curves, what has no place on one, and their record nlp-bench/scaling/1."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nlp_bench.errors import UsageError
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.scaling.check import SECONDS_PER_DAY, train_days
from nlp_bench.scaling.curve import Curve, Place, curves_of
from nlp_bench.scaling.workloads import num_gpus_of

SCHEMA = "nlp-bench/scaling/1"


@dataclass(frozen=True, kw_only=True)
class ScalingReport:
    """Everything that the writers need."""

    curves: Sequence[Curve]
    """One for each workload on each machine."""
    unplaced: Sequence[RunEntry]
    """Runs whose number of GPUs nobody states."""
    tokens: int
    """Tokens of the hypothetical training."""
    baseline_gpus: int | None = None
    """Size of the baseline, where a person chose it."""

    def to_json(self) -> dict[str, Any]:
        """Return the record; missing is null."""
        return {
            "schema": SCHEMA,
            "tokens": self.tokens,
            "baseline_gpus": self.baseline_gpus,
            "curves": [
                {
                    "workload": curve.title,
                    "table": curve.table,
                    "kind": curve.decision.kind.value,
                    "why": curve.decision.why,
                    "points": [row(curve, place, self.tokens) for place in curve.places],
                    "notes": list(curve.notes),
                }
                for curve in self.curves
            ],
            "unplaced": [
                {"source": entry.source, "outcome": entry.outcome.value, "reasons": list(entry.reason_texts)}
                for entry in self.unplaced
            ],
        }


def scaling_of(
    entries: Sequence[RunEntry], tokens: int, baseline_gpus: int | None = None, *, allow_measured: bool = False
) -> ScalingReport:
    """Return the report on `entries`. Raises UsageError where no run has the GPUs of the baseline that was asked for."""
    placed = [entry for entry in entries if num_gpus_of(entry)]
    sizes = sorted({size for entry in placed if (size := num_gpus_of(entry))})
    if baseline_gpus and baseline_gpus not in sizes:
        there = ", ".join(map(str, sizes)) or "none whose GPUs are known"
        raise UsageError(f"--baseline-gpus {baseline_gpus}: no run has so many GPUs; there are {there}")
    return ScalingReport(
        curves=curves_of(placed, baseline_gpus, allow_measured=allow_measured),
        unplaced=[entry for entry in entries if not num_gpus_of(entry)],
        tokens=tokens,
        baseline_gpus=baseline_gpus,
    )


ROW = (
    "workload", "table", "kind", "nodes", "num_gpus", "global_batch_size", "outcome", "num_runs", "tokens_per_second",
    "tokens_per_second_ci95_low", "tokens_per_second_ci95_high", "perfect_linear_tokens_per_second", "speed_up", "efficiency",
    "efficiency_ci95_low", "efficiency_ci95_high", "tokens_per_second_per_gpu", "time_to_train_s", "time_to_train_days",
    "published_perfect_linear_tokens_per_second", "published_speed_up", "stated_speed_up", "train_tokens", "train_days",
    "published_train_days", "stated_train_days", "flags", "changed", "cause", "sources",
)  # fmt: skip
"""Columns of the CSV and keys of a point; efficiency 1 is perfect, flags and sources are separated by "; " in the CSV."""


def row(curve: Curve, place: Place, tokens: int) -> dict[str, Any]:
    """Return one point, a value for each of ROW; missing is None."""
    point = place.point
    rate, gpus, found = point.tokens_per_second, point.num_gpus, point.entries[0].published
    low, high = point.interval or (None, None)
    efficiency_low, efficiency_high = place.efficiency_ci95 or (None, None)
    time_s = time_to_report_s(tokens, rate)
    train_tokens = found.train_tokens if found else None
    values = (
        curve.title, curve.table, curve.decision.kind.value, point.nodes, gpus, point.batch, point.outcome, point.num_counted,
        rate, low, high, place.perfect_linear, place.speed_up, place.efficiency, efficiency_low, efficiency_high,
        rate / gpus if rate and gpus else None, time_s, time_s / SECONDS_PER_DAY if time_s else None,
        _float(found.perfect_linear if found else None), _float(found.speed_up if found else None),
        _float(found.stated_speed_up if found else None), train_tokens,
        train_days(train_tokens, rate) if train_tokens and rate else None, _float(found.train_days if found else None),
        _float(found.stated_train_days if found else None), list(place.flags), list(place.changed), point.cause,
        [entry.source for entry in point.entries],
    )  # fmt: skip
    return dict(zip(ROW, values, strict=True))


def _float(printed: str | None) -> float | None:
    return float(printed) if printed else None
