"""Plain statistics of the times of a window."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def median(values: NDArray[np.float64]) -> float:
    """Return the median of `values`, which is not empty and has no NaN: what numpy's returns, in an eighth of its time."""
    number = len(values)
    upper = number // 2
    parted = np.partition(values, upper if number % 2 else (upper - 1, upper))
    return float(parted[upper]) if number % 2 else float((parted[upper - 1] + parted[upper]) / 2)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Seconds per iteration over the records of the window, each record counted once."""

    mean: float
    """Arithmetic mean in seconds."""
    median: float
    """Median in seconds."""
    p95: float
    """95th percentile in seconds, by linear interpolation between closest ranks (Hyndman and Fan's type 7)."""
    p99: float
    """99th percentile in seconds."""
    cv: float | None
    """Sample standard deviation / mean, without unit; None for a single record."""

    @classmethod
    def of(cls, seconds: NDArray[np.float64]) -> "Summary":
        """Summarise `seconds`, which is not empty."""
        centre = float(np.mean(seconds))
        median, p95, p99 = (float(value) for value in np.percentile(seconds, (50, 95, 99)))
        cv = float(np.std(seconds, ddof=1)) / centre if len(seconds) > 1 else None
        return cls(mean=centre, median=median, p95=p95, p99=p99, cv=cv)
