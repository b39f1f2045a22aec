"""The four parts of the 95 % interval of the steady rate, which a mean and its scatter hide; `estimate.Uncertainty.sides` adds them up.

1. *Noise*: neighbouring intervals resemble each other. Student's t on the effective number of values (`series`): a process
   of first order, and from MIN_LONG records on the larger of that and one of the order that Akaike's criterion chooses. There batch
   means (Law and Kelton, Simulation Modeling and Analysis, chapter 9) guard against still slower changes.
2. *Stalls*: rare, clustered, expensive. Neighbouring intervals above typical + max(STALL_SPREADS deviations, LEAST_STALL) are one
   stall; the time that stalls cost is a sum of sizes that come at random, and its interval is that of a weighted sum of Poisson
   counts (Fay and Feuer 1997, Statistics in Medicine 16:791-801, by gamma distributions). A log of n iterations has not seen what
   comes more rarely: an unseen stall costs UNSEEN iterations where the log shows none, and UNSEEN_WHERE_SEEN where it shows that the
   machine stalls or has too few lines to show it; its rate is an exponential variable with a mean of one in PRIOR iterations before
   the log, so one in PRIOR + n after it. The three numbers were found on step times of long real trainings (docs/number.md).
3. *Rounding*: values that scatter by less than half the unit they are printed in may all be rounded the same way: half a unit goes on both sides.
4. *States*: where a machine switches between two speeds, the number of switches seen gives the variance of the share of time
   in one of two states of a telegraph process (Kac 1974, Rocky Mountain Journal of Mathematics 4:497), never beyond the two speeds.

Noise, stalls and states add up by the method of variance estimates recovery (Zou and Donner 2008, Statistics in Medicine 27:1693-1702): each side
is the root of the sum of the squared sides. The sides are not alike: the truth is slower than the interval in SLOWER_TAIL of the
cases and faster in FASTER_TAIL, since a machine that is called too fast is bought. Coverage: docs/number.md.
"""

import math
from dataclasses import replace

import numpy as np

from nlp_bench.logs.record import Column
from nlp_bench.measure.estimate import CHOICE_FACTOR, UNSEEN, UNSEEN_WHERE_SEEN, Estimate, Pair, Uncertainty
from nlp_bench.measure.series import (
    MANY,
    MIN_SEGMENT,
    MIN_VALUES,
    Mask,
    half_unit,
    has_decimals,
    levels,
    long_run_variance,
    median,
    scatter_of,
    steps_of,
    typical_of,
)
from nlp_bench.measure.sizes import Spans

MIN_RECORDS = 3
MIN_EFFECTIVE = 4.0  # independent values that a window of as many records is worth at least, for Student's t
MIN_LONG = 64  # records from which higher orders and batches are looked at
BATCHES = ((16, 1.5, 64), (8, 2.0, 128))
"""Number of batches, ratio of variances above which they are believed, records from which they are looked at."""
STALL_SPREADS = 5.0
LEAST_STALL = 0.002  # share of the typical time; below, an interval is as quick as the others
FEW_RECORDS = 32  # below, the lines are too few, and each too much of a mean, to show whether the machine stalls
MIN_STATE = 1 / 12  # share of the window that a state lasts at least at once; what is shorter is a stall
LEAST_ROUNDING = 1e-4  # share of the mean below which the rounding of printed values is not looked at
LEAST_STATES = 0.01  # two states that are nearer are one


def estimate_of(spans: Spans, printed: Column | None = None) -> Estimate | None:
    """Return the mean seconds per token with its uncertainty, None for fewer than MIN_RECORDS or no scatter; `printed`: as the log prints them, None where no rounding matters."""
    if len(spans) < MIN_RECORDS:
        return None
    mean, weights = float(spans.seconds.sum() / spans.num_tokens.sum()), spans.num_tokens / spans.num_tokens.mean()
    # Around their mean, each with the weight of its tokens; all weights are 1 as a rule.
    values = mean + (spans.seconds_per_token - mean) * weights
    found = uncertainty_of(values, float(spans.num_iterations.sum()))
    # Times that are all alike to the last digit are rounded: they say nothing about how much they scatter.
    error = math.sqrt(found.noise**2 + found.stalls_squared / found.num_iterations**2 + found.switching**2)
    if error <= 1e-12:
        return None
    if printed is not None:
        found = replace(found, rounding=_rounding(printed))
    return Estimate(
        seconds_per_token=mean,
        standard_error=CHOICE_FACTOR * error * mean,
        degrees=_degrees(found, error),
        uncertainty=found,
        fastest=float(spans.seconds_per_token.min()),
    )


def _rounding(printed: Column) -> float:
    """Return half the unit of the printed values as a share of their mean, 0 where they scatter by so much that rounding evens out.

    What is more than two units from the median is a stall and evens nothing out.
    """
    mean = float(printed.mean())
    finest = math.floor(math.log10(0.5 / (LEAST_ROUNDING * mean)))
    if not has_decimals(printed[:MANY], 10.0**finest).all():  # most logs print more digits than matter
        return 0.0
    half = half_unit(printed, of_all=True)
    calm = printed[np.abs(printed - median(printed)) <= 4.5 * half]
    return half / mean if 2 * len(calm) > len(printed) and float(calm.std()) < half else 0.0


def _degrees(found: Uncertainty, error: float) -> float:
    """Return the degrees of freedom of the whole standard error (Satterthwaite 1946): a stall tells as much as two values."""
    parts = (
        (found.noise**2, found.degrees),
        (found.stalls_squared / found.num_iterations**2, 2.0 * found.num_stalls),
        (found.switching**2, found.num_switches),
    )
    return error**4 / sum(square**2 / degrees for square, degrees in parts if square > 0)


def uncertainty_of(values: Column, num_iterations: float) -> Uncertainty:
    """Return the uncertainty of the mean of `values`, at least two times of intervals of equal weight, in their order."""
    mean, quiet, usual = float(values.mean()), values, typical_of(values)
    states = _states(values, usual)
    if states is not None:
        quiet = np.where(states, values * (median(values[~states]) / median(values[states])), values)
        usual = typical_of(quiet)
    is_stalled, typical = _stalled(quiet, *usual)
    calm = np.where(is_stalled, typical, quiet) if is_stalled.any() else quiet
    sizes = _sizes(quiet, typical, is_stalled) * (num_iterations / len(values) / mean)
    noise, degrees = _noise(calm)
    few = len(values) < FEW_RECORDS
    found = Uncertainty(
        num_iterations=num_iterations,
        noise=noise / mean,
        degrees=degrees,
        num_stalls=len(sizes),
        stalls=float(sizes.sum()),
        stalls_squared=float(sizes @ sizes),
        at_end=float(sizes[-1]) if is_stalled[-1] else 0.0,
        unseen=max(float(sizes.max(initial=0.0)), UNSEEN_WHERE_SEEN if few or len(sizes) else UNSEEN),
    )
    return found if states is None else _with_states(found, values, states)


def _stalled(values: Column, middle: float, deviation: float) -> tuple[Mask, float]:
    """Return which values are stalls, and the mean of the others; fewer than MIN_VALUES do not tell a stall from noise."""
    if len(values) < MIN_VALUES:
        return np.zeros(len(values), dtype=np.bool_), float(values.mean())
    spread = 1.4826 * deviation
    if spread * STALL_SPREADS < LEAST_STALL * middle:  # rounded values may have none: then a digit is one
        digits = np.diff(np.unique(values))
        spread = max(spread, float(digits.min(initial=math.inf))) if len(digits) else spread
    is_stalled = values > middle + max(STALL_SPREADS * spread, LEAST_STALL * middle)
    return is_stalled, float(values[~is_stalled].mean() if is_stalled.any() else values.mean())


def _sizes(values: Column, typical: float, is_stalled: Mask) -> Column:
    """Return the sum of what `values` are above `typical` over each stretch of neighbours that are stalled."""
    if not is_stalled.any():
        return np.empty(0)
    edges = np.flatnonzero(steps_of(np.concatenate([[0], is_stalled.view(np.int8), [0]])))
    sums = np.concatenate([[0.0], np.cumsum(values - typical)])
    return np.asarray(np.maximum(sums[edges[1::2]] - sums[edges[::2]], 0.0))


def _noise(values: Column) -> Pair:
    """Return standard error and degrees of freedom of the mean of `values`."""
    number = len(values)
    scatter = scatter_of(values)
    long_run, effective = scatter.variance * number / scatter.num_effective, scatter.num_effective
    if number >= MIN_LONG and (higher := long_run_variance(values)) > long_run:
        long_run, effective = higher, number * scatter.variance / higher
    # Few records say little about autocorrelation: without a bound on what they are worth, many would bound nothing.
    degrees = max(effective, min(MIN_EFFECTIVE, number)) - 1
    for count, ratio, least in BATCHES:
        if number >= least and (batched := _batched_variance(values, count)) > ratio * long_run:
            long_run, degrees = batched, count - 1
    return math.sqrt(long_run / number), degrees


def _batched_variance(values: Column, count: int) -> float:
    size = len(values) // count
    # Values that fill no batch are left out at the front, where the window is least settled.
    means = values[len(values) - count * size :].reshape(count, size).mean(axis=1)
    return float(np.var(means, ddof=1)) * size


def _states(values: Column, usual: Pair) -> Mask | None:
    """Return where the slower of two states holds, None where there is one; what is shorter than MIN_STATE changes no state."""
    segments = levels(values, usual)
    lasting = [(begin, end) for begin, end in segments if end - begin >= max(MIN_SEGMENT, MIN_STATE * len(values))]
    if len(lasting) < 2:
        return None
    typical = [median(values[begin:end]) for begin, end in lasting]
    ranked = np.sort(typical)
    at = int(np.argmax(np.diff(ranked)))
    if ranked[at + 1] - ranked[at] < LEAST_STATES * ranked[at]:
        return None
    states = np.zeros(len(values), dtype=np.bool_)
    for (begin, _), time in zip(lasting, typical, strict=True):
        states[begin:] = time > ranked[at]  # until the next one that lasts
    states[: lasting[0][0]] = typical[0] > ranked[at]
    return states


def _with_states(found: Uncertainty, values: Column, states: Mask) -> Uncertainty:
    fast, slow = median(values[~states]), median(values[states])
    step, share = (slow - fast) / float(values.mean()), float(states.mean())
    switches = np.diff(states.view(np.int8))
    # Switching rates, each with half a switch added; their sum is the inverse of the correlation time.
    rates = (np.sum(switches > 0) + 0.5) / np.sum(~states) + (np.sum(switches < 0) + 0.5) / np.sum(states)
    correlated = min(2 / float(rates) / len(values), 1.0)
    return replace(
        found,
        switching=step * math.sqrt(share * (1 - share) * correlated),
        num_switches=int(np.abs(switches).sum()),
        above_fast=share * step,
        below_slow=(1 - share) * step,
    )
