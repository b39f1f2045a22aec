"""Rows of the history without a log behind them."""

from nlp_bench.analysis.row import Row


def row(day: int, rate: float | None, identity: str = "0123456789ab", **more: object) -> Row:
    """Return the row of day `day` with a rate in tokens per second (None: a run that failed)."""
    known: dict[str, object] = {
        "key": f"{identity}-{day}", "ended": f"2026-01-01T00:00:00+00:00 day {day}", "ended_s": day * 86400.0,
        "added": "2026-11-20T00:00:00+00:00", "source": f"runs/{day}", "identity": identity, "model": "tiny",
        "outcome": "VALID" if rate else "TIMEOUT", "tokens_per_second_steady": rate, "ci95_low": rate and rate * 0.99,
        "ci95_high": rate and rate * 1.01, "standard_error": rate and 0.0005 / rate, "degrees": 20.0 if rate else None,
    }  # fmt: skip
    return Row(**{**known, **more})  # type: ignore[arg-type]  # the columns of a row
