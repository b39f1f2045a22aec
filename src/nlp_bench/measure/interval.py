"""A 95 % interval of the steady rate that does not take neighbouring intervals for independent.

Student's t on the effective number of values (`autocorrelation`): a process of first order, and from MIN_LONG records on the larger of
that and one of the order that Akaike's criterion chooses. There batch means (Law and Kelton, Simulation Modeling and Analysis,
chapter 9) guard against still slower changes: if batches scatter clearly more, their scatter is taken. Coverage by simulation:
docs/number.md.
"""

import math

import numpy as np
from numpy.typing import NDArray

from nlp_bench.measure.autocorrelation import long_run_variance, scatter_of
from nlp_bench.measure.estimate import CHOICE_FACTOR, Estimate
from nlp_bench.measure.span import Spans

MIN_RECORDS = 3
MIN_EFFECTIVE = 4.0
"""Independent values that a window of as many records is taken for at least, where Student's t is concerned."""
CHOICE_FACTORS = ((128, CHOICE_FACTOR), (32, 1.08), (0, 1.0))
"""Factor on the standard error by the least number of records. In short windows more of them lie near an end that was chosen; in
the shortest, autocorrelation, which is never taken below 0, makes up for it."""
MIN_LONG = 64
"""Records from which higher orders and batches are looked at."""
BATCHES = ((16, 1.5, 64), (8, 2.0, 128))
"""Number of batches, ratio of variances above which they are believed, records from which they are looked at."""


def estimate_of(spans: Spans) -> Estimate | None:
    """Return the mean seconds per token with its uncertainty, None for fewer than MIN_RECORDS records or times without scatter."""
    if len(spans) < MIN_RECORDS:
        return None
    mean = float(spans.seconds.sum() / spans.num_tokens.sum())
    error, degrees = _error(spans)
    # Times that are all alike to the last digit are rounded: they say nothing about how much they scatter.
    if error <= 1e-12 * mean:
        return None
    return Estimate(seconds_per_token=mean, standard_error=error, degrees=degrees)


def _error(spans: Spans) -> tuple[float, float]:
    """Return standard error and degrees of freedom of the mean seconds per token."""
    values, number = _weighted(spans), len(spans)
    factor = next(factor for least, factor in CHOICE_FACTORS if number >= least)
    scatter = scatter_of(values)
    long_run, effective = scatter.variance * number / scatter.num_effective, scatter.num_effective
    if number >= MIN_LONG and (higher := long_run_variance(values)) > long_run:
        long_run, effective = higher, number * scatter.variance / higher
    # Few records say little about autocorrelation: without a bound on what they are worth, many would bound nothing.
    degrees = max(effective, min(MIN_EFFECTIVE, number)) - 1
    for count, ratio, least in BATCHES:
        if number >= least and (batched := _batched_variance(values, count)) > ratio * long_run:
            long_run, degrees = batched, count - 1
    return factor * math.sqrt(long_run / number), degrees


def _weighted(spans: Spans) -> NDArray[np.float64]:
    """Return seconds per token around their mean, each with the weight of its tokens; all weights are 1 as a rule."""
    costs = spans.seconds_per_token
    mean = spans.seconds.sum() / spans.num_tokens.sum()
    weights = spans.num_tokens / spans.num_tokens.mean()
    return np.asarray(mean + (costs - mean) * weights)


def _batched_variance(values: NDArray[np.float64], count: int) -> float:
    """Return the long-run variance by the means of `count` batches."""
    size = len(values) // count
    # Values that fill no batch are left out at the front, where the window is least settled.
    means = values[len(values) - count * size :].reshape(count, size).mean(axis=1)
    return float(np.var(means, ddof=1)) * size
