"""Stalls in words, more intervals by Student's t, noise that must not be taken for a change, and how often the interval holds."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from support.simulated import TRUE_RATE, Kind, measured
from support.spans import NOISE, spans

from nlp_bench.measure.estimate import Estimate, Uncertainty
from nlp_bench.measure.interval import estimate_of
from nlp_bench.measure.series import levels, median, scatter_around, scatter_of
from nlp_bench.measure.window import LogConventions, Steadiness, find_window, num_more, steadiness_of


def steadiness(times: "np.typing.ArrayLike") -> Steadiness:
    return steadiness_of(find_window(spans(times), LogConventions()))


def test_stalls_inside_are_named_and_count() -> None:
    times = 1 + NOISE
    times[[100, 200]] = 3.0, 5.0
    two = "2 stalls inside the window cost 1.5 % of its time and count: iterations 101 (3.0 x), 201 (5.0 x)"
    assert two in steadiness(times).words()[-1]
    times[200] = 1.0
    one = "1 stall inside the window costs 0.5 % of its time and counts: iteration 101 (3.0 x)"
    assert steadiness(times).words() == [one]


@pytest.mark.parametrize(("apart", "said"), [(0.031, True), (0.029, False)])
def test_two_modes_three_percent_apart_are_told(apart: float, said: bool) -> None:
    """Every fourth interval: what scatters less has none, and is not looked through for them."""
    found = steadiness(1 + apart * (np.arange(400) % 4 == 0) + NOISE / 100)
    assert (found.modes is not None) is said


def test_a_run_that_drifts_ends_half_of_the_drift_slower() -> None:
    assert steadiness(1 + NOISE + np.linspace(0, 0.03, 400)).ending == pytest.approx(1.015, abs=0.006)
    wide = Uncertainty(num_iterations=3, noise=0.9, degrees=0.5)
    assert num_more(Estimate(seconds_per_token=1.0, standard_error=0.9, degrees=0.5, uncertainty=wide), 3) is None


@pytest.mark.parametrize(("first_s", "has_twice", "last"), [(1.4, True, 10), (1.4, False, 1), (50.0, True, 1)])
def test_the_line_that_holds_the_first_iteration_again_is_warm_up_too(
    first_s: float, has_twice: bool, last: int
) -> None:
    """Megatron-LM since 2026: the line of iteration 10 is the mean of iterations 1 to 10, where its sum is not less than the first."""
    logged = spans([first_s, 1.04, 1.0, 1.01, 1.0, 0.99], [1, 10, 20, 30, 40, 50])
    (found,) = find_window(logged, LogConventions(has_first_twice=has_twice)).excluded
    assert (found.first_iteration, found.last_iteration, found.why) == (1, last, "warm-up")


def test_noise_that_wanders_is_no_change() -> None:
    dice, alarms = np.random.default_rng(3), 0
    for _ in range(200):
        shocks, value, times = dice.standard_normal(200) * 0.02, 0.0, []
        for shock in shocks:
            value = 0.6 * value + shock
            times.append(1 + value)
        alarms += len(levels(np.array(times))) > 1
    assert alarms <= 8


def test_more_levels_than_are_looked_for_cut_no_end_finer_than_the_other() -> None:
    stairs = np.repeat(1.03 ** np.arange(100), 20)
    assert max(end - begin for begin, end in levels(stairs)) <= 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        Kind(name="plain", iterations=200, autocorrelation=0.3),
        Kind(name="all", iterations=300, warm_up=True, throttling=True, autocorrelation=0.3),
        Kind(name="short", iterations=150, log_interval=10, warm_up=True),
    ],
    ids=lambda kind: kind.name,
)
def test_calibration_in_small(kind: Kind) -> None:
    """The study with 2000 runs of each kind is tests/measure/calibration.py; here the bounds allow for the chance of 300."""
    dice, runs = np.random.default_rng(11), 300
    intervals = [measured(kind, dice).ci95 for _ in range(runs)]
    held = sum(low <= TRUE_RATE <= high for low, high in intervals) / runs
    false_passes = sum(low > TRUE_RATE for low, _ in intervals) / runs
    assert 0.92 <= held <= 0.995
    assert false_passes <= 0.05


# What the mean of resembling neighbours is worth: by hand for small series, against the known variance for autoregressive ones.

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
