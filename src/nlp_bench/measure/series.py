"""Series of times: how much neighbours resemble each other, what their mean is worth because of it, and where their level changes.

Autocorrelation: an autoregressive process of first order. The lag-1 autocorrelation r of n values around their own mean is too low by
about (1 + 4 r) / n (Marriott and Pope 1954, Biometrika 41), and is corrected for it; it is never taken below 0. The mean is then worth
n (1 - r) / (1 + r) independent values (Bayley and Hammersley 1946), and their sample variance is too low by the same token.

Change points: binary segmentation (Scott and Knott 1974; Vostrikova 1981) on values that are clipped to a few deviations around
their median, so that a single stall is no change. A split counts when the two means differ by MIN_STEP and by MIN_T standard errors, where the
errors allow for autocorrelation: noise that wanders is no change either.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.immutable import immutable
from nlp_bench.logs.record import Column
from nlp_bench.measure.estimate import Pair

Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]
Numbers = NDArray[np.int64]
Where = NDArray[Any] | slice  # some of the records
"""The two ends of an interval, the lower one first; or a median and its deviation."""
MIN_VALUES = 8  # below this autocorrelation cannot be seen, and the values are taken for independent
LARGEST = 0.9
MAX_ORDER = 10  # of an autoregressive process
LARGEST_SUM = 0.95  # of its coefficients; above, a series has no mean that it stays near
MAX_DECIMALS, MANY = 9, 4096  # decimals of printed values, and values that are looked at for them
_UNITS = np.array([[10.0**decimals] for decimals in range(-MAX_DECIMALS, MAX_DECIMALS + 1)])
HOUR_S, ZONE_CHANGE_S = 3600.0, 5.0
DAY_S = 86400.0
DAYS_MORE = (*range(27, 31), 364, 365)
"""Days from a day to the same day of the next month, or of the next year, more than to the next day."""
SAME_DIGITS = 1e-9  # share by which a value may differ from its printed digits: it was divided or multiplied since


def median(values: Column) -> float:
    """Return the median of `values`, which has no NaN; NaN where it is empty: what numpy's returns, of many in a twentieth of its time."""
    number = len(values)
    if not number:
        return np.nan
    upper = number // 2
    parted = np.partition(values, upper)  # for two places at once it takes four times as long
    return float(parted[upper]) if number % 2 else float((parted[:upper].max() + parted[upper]) / 2)


def ratio(above: Column, below: Column) -> Column:
    """Return `above` / `below`, not finite where `below` is 0, without numpy's warnings."""
    with np.errstate(all="ignore"):
        return np.asarray(above / below)


def finite(values: Column) -> Column:
    """Return the values that are numbers."""
    return values[np.isfinite(values)]


def positive(values: Column) -> Column:
    """Return the finite values above 0."""
    known = finite(values)
    return known[known > 0]


def typical_of(values: Column) -> Pair:
    """Return the median of `values` and the median of how far they are from it."""
    middle = median(values)
    return middle, median(np.abs(values - middle))


def as_slice(indices: Indices) -> "Indices | slice[int, int]":
    """Return rising indices as a slice, which copies nothing, where none is missing between the first and the last."""
    first, last = (int(indices[0]), int(indices[-1])) if len(indices) else (0, -1)
    return slice(first, last + 1) if last - first + 1 == len(indices) else indices


def steps_of(values: NDArray[Any], before: float | None = None) -> NDArray[Any]:
    """Return from each value to the next one, and first from `before`: what numpy's diff returns, in a tenth of its time for short columns."""
    values = values if before is None else np.concatenate([[before], values])
    steps: NDArray[Any] = values[1:] - values[:-1]
    return steps


def quantile(ordered: Column, share: float) -> float:
    """Return a quantile of ascending values, by linear interpolation: what numpy's returns, which loads its masked arrays to compute it."""
    place = share * (len(ordered) - 1)
    below = int(place)
    part, low, high = place - below, float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part


def has_decimals(values: Column, scale: Column | float) -> Mask:
    """Return which values are whole multiples of 1/`scale` (a power of ten); for a column of scales, a row each."""
    with np.errstate(over="ignore", invalid="ignore"):  # of damaged digits
        scaled = values * scale
        return np.asarray(np.abs(scaled - np.round(scaled)) <= SAME_DIGITS * np.abs(scaled))


def half_unit(column: Column, *, of_all: bool = False) -> float:
    """Return half a unit of the last decimal that at least half of the finite values need; with `of_all`, that any of them needs."""
    known = finite(column)[:MANY]
    num_without = len(known) - has_decimals(known, _UNITS).sum(axis=1)
    is_enough = num_without < (1 if of_all else len(known) / 2)
    return float(0.5 * 10.0 ** (MAX_DECIMALS - int(np.argmax(is_enough)))) if is_enough.any() else 0.0


def zone_change(passed: Column, logged: Column) -> Mask:
    """Return the one step between two times of day that is an hour longer than logged: summer time began. None where there are several."""
    found = np.asarray(np.abs(passed - logged - HOUR_S) <= ZONE_CHANGE_S)
    return found if np.count_nonzero(found) == 1 else np.zeros(len(found), dtype=np.bool_)


def misread_midnights(passed: Column, logged: Column) -> Mask:
    """Return the steps that are a month or a year longer than logged: midnight between dates whose day is read as the month (05/01, 06/01) or the year (26/01/30, 26/01/31)."""
    days = (passed - logged) / DAY_S
    is_whole = np.abs(days - np.round(days)) <= HOUR_S / DAY_S
    return np.asarray(is_whole & np.isin(np.round(days), DAYS_MORE))


@immutable
class Scatter:
    """What a stationary series says about its mean."""

    variance: float  # of one value, autocorrelation allowed for
    autocorrelation: float  # at lag 1, corrected, from 0 to LARGEST
    num_effective: float  # independent values that the mean is worth


def scatter_of(values: Column) -> Scatter:
    """Return the scatter of `values`, at least two, around their mean."""
    return scatter_around(values - values.mean(), 1)


def scatter_around(residuals: Column, num_means: int) -> Scatter:
    """Return the scatter of residuals from which `num_means` means were subtracted."""
    number = len(residuals)
    total = float(residuals @ residuals)
    raw = float(residuals[1:] @ residuals[:-1]) / total if total > 0 else 0.0
    corrected = (raw + num_means / number) / (1 - 4 / number) if number >= MIN_VALUES else 0.0
    ratio = min(max(corrected, 0.0), LARGEST)
    effective = max(number * (1 - ratio) / (1 + ratio), 1.5)
    lost = min(num_means / effective, 0.75)
    return Scatter(variance=total / number / (1 - lost), autocorrelation=ratio, num_effective=effective)


def long_run_variance(values: Column) -> float:
    """Return the variance of the mean of `values` times their number, by an autoregressive process of the best order.

    Yule-Walker equations by Levinson's recursion, the order from 0 to MAX_ORDER by Akaike's criterion (Brockwell and Davis, Time
    Series: Theory and Methods, chapters 8 and 9): variance of the shocks / (1 - sum of the coefficients)^2, which is the
    spectral density at frequency 0.
    """
    number = len(values)
    centred = values - values.mean()
    lagged = np.array([centred[lag:] @ centred[: number - lag] for lag in range(MAX_ORDER + 1)]) / number
    if lagged[0] <= 0:
        return 0.0
    coefficients, shocks = np.zeros(0), float(lagged[0])
    best, best_criterion = (coefficients, shocks), number * math.log(shocks)
    for order in range(1, MAX_ORDER + 1):
        last = (float(lagged[order]) - float(coefficients @ lagged[order - 1 : 0 : -1])) / shocks
        coefficients = np.append(coefficients - last * coefficients[::-1], last)
        shocks *= 1 - last * last
        if shocks <= 0:
            break
        criterion = number * math.log(shocks) + 2 * order
        if criterion < best_criterion:
            best, best_criterion = (coefficients, shocks), criterion
    coefficients, shocks = best
    order = len(coefficients)
    # Each coefficient is too low by about 1/n, as the autocorrelation above.
    total = min(float(coefficients.sum()) + order / number, LARGEST_SUM)
    return shocks * number / (number - order - 1) / (1 - total) ** 2


MIN_SEGMENT = 5  # fewer values make no level
MIN_STEP = 0.02  # share of the level below which a change is not worth telling
MIN_T = 4.5  # standard errors; noise of 1000 values exceeds it in fewer than one of 100 series
MAX_SEGMENTS = 64
_SPREAD = 5 * 1.4826
_LEAST_SPREAD = 0.10


def levels(values: Column, typical: Pair | None = None) -> list[tuple[int, int]]:
    """Return the segments [begin, end) of `values` (above 0), each with a level of its own; `typical` is what `typical_of` returns for them, where it is known."""
    pending, done = [(0, len(values))], list[tuple[int, int]]()
    while pending and len(pending) + len(done) < MAX_SEGMENTS:
        # The longest first: where there are more changes than MAX_SEGMENTS, no end of the series is cut finer than the other.
        begin, end = pending.pop(max(range(len(pending)), key=lambda i: pending[i][1] - pending[i][0]))
        at = _split(values[begin:end], typical if end - begin == len(values) else None)
        if at is None:
            done.append((begin, end))
        else:
            pending += [(begin, begin + at), (begin + at, end)]
    return sorted(done + pending)


def _split(values: Column, typical: Pair | None) -> int | None:
    """Return where the level of `values` changes most, None where it does not."""
    number = len(values)
    if number < 2 * MIN_SEGMENT:
        return None
    calm = winsorised(values, typical)
    sums = np.cumsum(calm)
    left = np.arange(MIN_SEGMENT, number - MIN_SEGMENT + 1, dtype=np.float64)
    right, below = number - left, sums[MIN_SEGMENT - 1 : number - MIN_SEGMENT]
    before, after = below / left, (sums[-1] - below) / right
    gain = before - after
    gain *= gain
    gain *= left
    gain *= right
    best = int(np.argmax(gain))
    at, first, second = int(left[best]), float(before[best]), float(after[best])
    step = abs(first - second)
    if step < MIN_STEP * min(first, second):
        return None
    residuals = np.concatenate([calm[:at] - first, calm[at:] - second])
    scatter = scatter_around(residuals, 2)
    inflation = number / scatter.num_effective
    error = math.sqrt(scatter.variance * inflation * (1 / at + 1 / (number - at)))
    return at if step > MIN_T * error else None


def winsorised(values: Column, typical: Pair | None = None) -> Column:
    """Return `values` clipped to a few deviations around their median; `typical` as of `levels`."""
    middle, deviation = typical or typical_of(values)
    spread = max(_SPREAD * deviation, _LEAST_SPREAD * middle)
    return np.clip(values, middle - spread, middle + spread)
