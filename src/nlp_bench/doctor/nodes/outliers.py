"""Which of many alike things is unlike: by median and MAD, with a least difference that matters.

B. Iglewicz and D. C. Hoaglin, How to Detect and Handle Outliers (ASQC, 1993): |x - median| / (1.4826 MAD) > 3.5, where MAD is the
median of the distances from the median. Neither moves when fewer than half of the values are bad.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

SCORE = 3.5
TO_SIGMA = 1.4826
"""MAD times this estimates the standard deviation of a normal distribution."""
FEWEST = 3
"""With two values nobody can say which one is wrong."""
LEAST = {
    "cuda": {"gemm": 0.05, "memory": 0.05, "link": 0.20},
    "cpu": {"gemm": 0.15, "memory": 0.30, "link": 0.50},
}
"""Share of the median below which a difference is never named: GPUs of one kind differ by a few per cent from board to board; CPU
nodes may be virtual ones that share a machine."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How one rate is spread over the nodes."""

    median: float | None
    """Its median; None without values."""
    mad: float | None
    """Median of the distances from it."""
    limit: float | None
    """Below this a value is an outlier; None where there are too few to tell."""
    slow: tuple[str, ...]
    """The outliers, the slowest first."""


def slow_ones(rates: Mapping[str, float], least: float) -> Spread:
    """Return the spread of `rates` (more is better) and the names of those that are too slow.

    An outlier is below the median by more than 3.5 x 1.4826 x MAD and by more than the share `least`.
    """
    if not rates:
        return Spread(median=None, mad=None, limit=None, slow=())
    median = statistics.median(rates.values())
    mad = statistics.median(abs(rate - median) for rate in rates.values())
    if len(rates) < FEWEST:
        return Spread(median=median, mad=mad, limit=None, slow=())
    limit = median - max(SCORE * TO_SIGMA * mad, least * median)
    slow = sorted((name for name, rate in rates.items() if rate < limit), key=lambda name: rates[name])
    return Spread(median=median, mad=mad, limit=limit, slow=tuple(slow))
