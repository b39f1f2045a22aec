"""What is told beside the number: stalls, drift, two modes, a slowdown, more intervals, other windows."""

import numpy as np
import pytest
from support.simulated import TRUE_RATE, Kind, measured
from support.spans import NOISE, spans

from nlp_bench.measure.estimate import Estimate, Uncertainty, ratio_of, student_cdf
from nlp_bench.measure.interval import estimate_of
from nlp_bench.measure.steadiness import Steadiness, num_more, steadiness_of
from nlp_bench.measure.throughput import sensitivity
from nlp_bench.measure.window import LogConventions, find_window


def steadiness(times: "np.typing.ArrayLike") -> Steadiness:
    return steadiness_of(find_window(spans(times), LogConventions()))


def test_a_steady_run_has_nothing_to_tell() -> None:
    times = 1 + NOISE
    assert steadiness(times).words() == []
    estimate = estimate_of(spans(times))
    assert estimate
    assert num_more(estimate, len(times)) == 0


def test_stalls_inside_are_named_and_count() -> None:
    times = 1 + NOISE
    times[[100, 200]] = 3.0, 5.0
    found = steadiness(times)
    assert [(s.first_iteration, round(s.factor)) for s in found.stalls] == [(101, 3), (201, 5)]
    assert found.stall_share == pytest.approx(6 / (400 + 6), rel=0.02)
    assert (
        "2 stalls inside the window cost 1.5 % of its time and count: iterations 101 (3.0 x), 201 (5.0 x)"
        in found.words()[-1]
    )
    times[200] = 1.0
    (said,) = steadiness(times).words()
    assert said == "1 stall inside the window costs 0.5 % of its time and counts: iteration 101 (3.0 x)"


def test_a_run_that_drifts_ends_half_of_the_drift_slower() -> None:
    found = steadiness(1 + NOISE + np.linspace(0, 0.03, 400))
    assert (found.drift, found.ending) == (pytest.approx(0.03, rel=0.3), pytest.approx(1.015, abs=0.006))
    wide = Uncertainty(num_iterations=3, noise=0.9, degrees=0.5)
    assert num_more(Estimate(seconds_per_token=1.0, standard_error=0.9, degrees=0.5, uncertainty=wide), 3) is None


def test_windows_need_the_iterations_that_they_name() -> None:
    few = {c.name: c.num_records for c in sensitivity(spans(1 + NOISE[:5]), None)}
    assert any("all but the first 10 %" in name and number == 4 for name, number in few.items())
    short = {c.name for c in sensitivity(spans(1 + NOISE[:20]), None)}
    long = {c.name for c in sensitivity(spans(1 + NOISE[:60]), None)}
    assert not any("35 to 44" in name or "10 to 30" in name for name in short)
    assert {"iterations 35 to 44", "iterations 10 to 30"} <= long
    for first, has_it in ((10, True), (11, False)):
        found = {c.name: c.num_records for c in sensitivity(spans(1 + NOISE[:60])[first - 1 :], None)}
        assert any("10 to 30" in name for name in found) is has_it


def test_two_that_are_equal_and_two_that_are_not() -> None:
    one = Estimate(seconds_per_token=1.0, standard_error=0.01, degrees=10)
    two = Estimate(seconds_per_token=0.9, standard_error=0.01, degrees=10)
    same, other = ratio_of(one, one), ratio_of(one, two)
    assert (same.ratio, same.p_value) == (1.0, 1.0)
    assert other.low < 1 / 0.9 < other.high
    assert other.p_value < 0.001
    assert student_cdf(0.0, 3) == 0.5


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
