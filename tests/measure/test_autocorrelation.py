"""What the mean of resembling neighbours is worth: by hand for small series, against the known variance for autoregressive ones."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from support.spans import spans

from nlp_bench.measure.interval import estimate_of
from nlp_bench.measure.series import median, scatter_around, scatter_of

Values = NDArray[np.float64]
BY_TWOS = np.tile([1.0, 1.0, -1.0, -1.0], 4)


def autoregressive(coefficients: tuple[float, ...], length: int, dice: np.random.Generator) -> Values:
    values = np.zeros(length + 300)
    shocks = dice.standard_normal(len(values))
    for t in range(len(coefficients), len(values)):
        values[t] = shocks[t] + sum(weight * values[t - 1 - lag] for lag, weight in enumerate(coefficients))
    return values[300:]


@pytest.mark.parametrize(
    ("values", "num_means", "variance", "autocorrelation", "effective"),
    [
        # 16 values, sum of squares 16; of 15 neighbouring products 8 are 1 and 7 are -1: r = 1/16, corrected (1/16 + 1/16) / (1 - 4/16) = 1/6
        (BY_TWOS, 1, 1 / (1 - 7 / 80), 1 / 6, 16 * 5 / 7),
        # two means taken: (1/16 + 2/16) / (3/4) = 1/4, worth 16 * 3/5, 2 of which are lost
        (BY_TWOS, 2, 1 / (1 - 2 / 9.6), 1 / 4, 9.6),
        # neighbours that differ: never below 0
        (np.tile([1.0, -1.0], 8), 1, 16 / 15, 0.0, 16.0),
        # 8 are the fewest in which it is seen; (5/8 + 1/8) / (1 - 4/8) is beyond 0.9, and 8 * 0.1/1.9 below 1.5
        (np.repeat([1.0, -1.0], 4), 1, 3.0, 0.9, 1.5),
        (np.repeat([1.0, -1.0], 4), 2, 4.0, 0.9, 1.5),
        # 6 are too few
        (np.repeat([1.0, -1.0], 3), 1, 6 / 5, 0.0, 6.0),
        (np.zeros(9), 1, 0.0, 1 / 5, 6.0),
    ],
)  # fmt: skip
def test_by_hand(values: Values, num_means: int, variance: float, autocorrelation: float, effective: float) -> None:
    found = scatter_around(values, num_means)
    assert (found.variance, found.autocorrelation, found.num_effective) == pytest.approx(
        (variance, autocorrelation, effective)
    )
    assert scatter_of(values + 7) == scatter_of(values)


@pytest.mark.parametrize(
    ("coefficients", "length", "least", "most"),
    [
        ((0.0,), 5, 1.1, 1.35), ((0.0,), 400, 0.97, 1.08), ((0.9,), 200, 0.95, 1.12), ((0.3, 0.5), 400, 0.92, 1.05),
        ((0.2, 0.3, 0.3), 400, 0.92, 1.05),
    ],
)  # fmt: skip
def test_the_interval_is_neither_too_narrow_nor_too_wide_for_slow_correlation(
    coefficients: tuple[float, ...], length: int, least: float, most: float
) -> None:
    """On the fast side, which no unseen stall widens: the truth lies beyond it in 4.25 % of the cases, and its width is that of the true variance."""
    dice, number, scatter = np.random.default_rng(3), 200, 0.02
    deviation = scatter / (1 - sum(coefficients)) / math.sqrt(length)
    faster, widths = 0, []
    for _ in range(number):
        found = estimate_of(spans(10 + scatter * autoregressive(coefficients, length, dice)))
        interval = found.interval()
        faster += 1 / interval[1] > 10
        widths.append((found.seconds_per_token - 1 / interval[1]) / (1.72238 * deviation))
    assert least < np.median(widths) < most
    assert 0.01 * number <= faster <= 0.09 * number


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 50, 51])
def test_the_median_is_numpys_to_the_last_bit(number: int) -> None:
    values = np.random.default_rng(number).lognormal(size=number)
    before = values.copy()
    assert median(values) == np.median(values)
    assert np.array_equal(values, before)
