"""A sweep as data: one object per configuration, for JSON and CSV."""

from typing import Any

from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import FREE
from nlp_bench.sweep.sweep import Row, Sweep


def sweep_json(sweep: Sweep, tokens: int) -> dict[str, Any]:
    """Return one object of `sweeps` in nlp-bench/sweep/1; missing is null."""
    return {
        "workload": sweep.title,
        "num_gpus": sweep.num_gpus,
        "accelerator": "cpu" if sweep.is_cpu else None,
        "varies": list(sweep.names),
        "winners": [row.point.digest for row in sweep.winners],
        "sentence": sweep.sentence(),
        "configurations": [record(sweep, row, tokens) for row in sweep.rows],
    }


def record(sweep: Sweep, row: Row, tokens: int) -> dict[str, Any]:
    """Return one configuration; `settings` holds what it is, whether it varies or not."""
    point = row.point
    rate, ratio = point.tokens_per_second, row.ratio
    low, high = point.interval or (None, None)
    names = (*FREE, *(name for name in sweep.names if name not in FREE))
    return {
        "rank": row.rank,
        "standing": row.standing.value,
        "identity": point.digest,
        "settings": {name: point.settings[name].value for name in names if name in point.settings},
        "outcome": point.outcome,
        "num_runs": len(point.entries),
        "num_counted": point.num_counted,
        "tokens_per_second": rate,
        "tokens_per_second_ci95_low": low,
        "tokens_per_second_ci95_high": high,
        "of_fastest": ratio.ratio if ratio else None,
        "of_fastest_ci95_low": ratio.low if ratio else None,
        "of_fastest_ci95_high": ratio.high if ratio else None,
        "tokens_per_second_per_gpu": rate / sweep.num_gpus if rate else None,
        "time_to_train_s": time_to_report_s(tokens, rate),
        "cause": point.cause,
        "sources": [entry.source for entry in point.entries],
    }
