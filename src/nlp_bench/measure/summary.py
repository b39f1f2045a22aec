"""Plain statistics of a list of numbers; the standard module is avoided because it doubles the start-up time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean; `values` is not empty."""
    return math.fsum(values) / len(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile by linear interpolation between closest ranks (Hyndman and Fan's type 7, as numpy does)."""
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones."""
    return percentile(values, 50)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Seconds per iteration over the records of the window, each record counted once."""

    mean: float
    """Arithmetic mean in seconds."""
    median: float
    """Median in seconds."""
    p95: float
    """95th percentile in seconds."""
    p99: float
    """99th percentile in seconds."""
    cv: float | None
    """Sample standard deviation / mean, without unit; None for a single record."""

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Summary":
        """Summarise `seconds`, which is not empty."""
        centre = mean(seconds)
        cv = None
        if len(seconds) > 1:
            cv = math.sqrt(math.fsum((x - centre) ** 2 for x in seconds) / (len(seconds) - 1)) / centre
        return cls(
            mean=centre,
            median=median(seconds),
            p95=percentile(seconds, 95),
            p99=percentile(seconds, 99),
            cv=cv,
        )
