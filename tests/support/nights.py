"""Rows of the history without a log behind them."""

import json

from nlp_bench.analysis.row import Row


def row(day: int, rate: float | None, identity: str = "0123456789ab", **more: object) -> Row:
    """Return the row of day `day` with a rate in tokens per second (None: a run that failed), and the record that states it."""
    known: dict[str, object] = {
        "key": f"{identity}-{day}", "ended": f"2026-01-01T00:00:00+00:00 day {day}", "ended_s": day * 86400.0,
        "added": "2026-11-20T00:00:00+00:00", "source": f"runs/{day}", "identity": identity, "model": "tiny",
        "outcome": "VALID" if rate else "TIMEOUT", "tokens_per_second_steady": rate, "ci95_low": rate and rate * 0.99,
        "ci95_high": rate and rate * 1.01, "standard_error": rate and 0.0005 / rate, "degrees": 20.0 if rate else None,
    }  # fmt: skip
    known |= more
    error, degrees, number = (known.get(name) for name in ("standard_error", "degrees", "num_intervals"))
    estimate = {"seconds_per_token": 1 / rate, "standard_error": error, "degrees": degrees} if rate else None
    record = {
        "outcome": known["outcome"],
        "num_gpus": known.get("num_gpus"),
        "tokens_per_second": {
            "reference": known.get("tokens_per_second_reference"),
            "steady": rate,
            "ci95": [known["ci95_low"], known["ci95_high"]] if rate else None,
        },
        "time_to_report_s": {"steady": known.get("time_to_report_s")},
        "window": {"num_records": number} if number else None,
        "estimate": estimate,
    }
    return Row(**{"entry": json.dumps(record), **known})  # type: ignore[arg-type]  # the columns of a row
