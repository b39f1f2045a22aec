"""Change points: where a series of times goes over from one level to another, and stays.

Binary segmentation (Scott and Knott 1974; Vostrikova 1981) on values that are held to a few deviations around their median, so that
a single stall is no change. A split counts when the two means differ by MIN_STEP and by MIN_T standard errors, where the
errors allow for autocorrelation: noise that wanders is no change either.
"""

import math

import numpy as np
from numpy.typing import NDArray

from nlp_bench.measure.autocorrelation import scatter_around
from nlp_bench.measure.summary import median

Column = NDArray[np.float64]
MIN_SEGMENT = 5
"""Fewer values make no level."""
MIN_STEP = 0.02
"""Share of the level below which a change is not worth telling."""
MIN_T = 4.5
"""Standard errors; noise of 1000 values exceeds it in fewer than one of 100 series."""
MAX_SEGMENTS = 64
_SPREAD = 5 * 1.4826
_LEAST_SPREAD = 0.10


def levels(values: Column) -> list[tuple[int, int]]:
    """Return the segments [begin, end) of `values` (above 0), each with a level of its own; one segment where nothing changes."""
    pending, done = [(0, len(values))], list[tuple[int, int]]()
    while pending and len(pending) + len(done) < MAX_SEGMENTS:
        # The longest first: where there are more changes than MAX_SEGMENTS, no end of the series is cut finer than the other.
        begin, end = pending.pop(max(range(len(pending)), key=lambda i: pending[i][1] - pending[i][0]))
        at = _split(values[begin:end])
        if at is None:
            done.append((begin, end))
        else:
            pending += [(begin, begin + at), (begin + at, end)]
    return sorted(done + pending)


def _split(values: Column) -> int | None:
    """Return where the level of `values` changes most, None where it does not."""
    number = len(values)
    if number < 2 * MIN_SEGMENT:
        return None
    calm = held(values)
    sums = np.cumsum(calm)
    left = np.arange(MIN_SEGMENT, number - MIN_SEGMENT + 1)
    before, after = sums[left - 1] / left, (sums[-1] - sums[left - 1]) / (number - left)
    best = int(np.argmax((before - after) ** 2 * left * (number - left)))
    at, first, second = int(left[best]), float(before[best]), float(after[best])
    step = abs(first - second)
    if step < MIN_STEP * min(first, second):
        return None
    residuals = np.concatenate([calm[:at] - first, calm[at:] - second])
    scatter = scatter_around(residuals, 2)
    inflation = number / scatter.num_effective
    error = math.sqrt(scatter.variance * inflation * (1 / at + 1 / (number - at)))
    return at if step > MIN_T * error else None


def held(values: Column) -> Column:
    """Return `values` held to a few deviations around their median."""
    middle = median(values)
    spread = max(_SPREAD * median(np.abs(values - middle)), _LEAST_SPREAD * middle)
    return np.clip(values, middle - spread, middle + spread)
