"""Stalls in words, more intervals by Student's t, noise that must not be taken for a change, and how often the interval holds."""

import numpy as np
import pytest
from support.simulated import TRUE_RATE, Kind, measured
from support.spans import NOISE, spans

from nlp_bench.measure.estimate import Estimate, Uncertainty
from nlp_bench.measure.series import levels
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
