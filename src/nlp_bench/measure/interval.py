"""A 95 % interval of the steady rate that does not take neighbouring intervals for independent.

Method: batch means (Law and Kelton, Simulation Modeling and Analysis, chapter 9). The window is cut into batches of
1, 2, 4, … neighbouring records while at least five batches remain; each size gives a Student t interval of the mean
time per token, and the widest is taken. Slow drifts make large batches differ, so the interval widens with them.
Simulated coverage: 95 to 99 % for independent times, 97 % at 100 records with autocorrelation 0.6; below about 16 records
autocorrelation can hardly be seen in the data, and the interval is that of independent times.
"""

import math

import numpy as np

from nlp_bench.measure.span import Spans

MIN_RECORDS = 3
MIN_BATCHES = 5
# Student's t, 97.5 %, for 2 to 30 degrees of freedom.
_T = (
    4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def student_t(degrees: int) -> float:
    """Return the 97.5 % quantile for `degrees` >= 2; above 30 by the first term of Cornish and Fisher (error < 0.003)."""
    return _T[degrees - 2] if degrees - 2 < len(_T) else 1.95996 + 2.372 / degrees


def interval95(spans: Spans) -> tuple[float, float] | None:
    """Return the 95 % interval in tokens/s, or None for fewer than MIN_RECORDS records or an unbounded one."""
    if len(spans) < MIN_RECORDS:
        return None
    centre = float(spans.seconds.sum() / spans.num_tokens.sum())
    half_width, size = _half_width(spans, 1), 2
    while len(spans) // size >= MIN_BATCHES:
        half_width = max(half_width, _half_width(spans, size))
        size *= 2
    # Times that are all alike to the last digit are rounded: they say nothing about how much they scatter.
    if half_width >= centre or half_width <= 1e-12 * centre:
        return None
    return 1 / (centre + half_width), 1 / (centre - half_width)


def _half_width(spans: Spans, size: int) -> float:
    number = len(spans) // size
    # Records that fill no batch are left out at the front, where the window is least settled.
    begin = len(spans) - number * size
    seconds = spans.seconds[begin:].reshape(number, size).sum(axis=1)
    means = seconds / spans.num_tokens[begin:].reshape(number, size).sum(axis=1)
    return student_t(number - 1) * float(np.std(means, ddof=1)) / math.sqrt(number)
