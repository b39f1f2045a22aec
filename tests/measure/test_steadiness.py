"""What is told beside the number: stalls, drift, two modes, a slowdown, more intervals, other windows."""

import numpy as np
import pytest
from scipy import stats
from support.simulated import TRUE_RATE, Kind, measured
from support.spans import NOISE, spans

from nlp_bench.measure.estimate import Estimate, over_runs, ratio_of, student_cdf, student_t
from nlp_bench.measure.interval import estimate_of
from nlp_bench.measure.series import held
from nlp_bench.measure.steadiness import Steadiness, num_more, steadiness_of
from nlp_bench.measure.throughput import sensitivity
from nlp_bench.measure.window import LogConventions, find_window
from nlp_bench.reason import texts


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


def test_drift_and_modes_are_told() -> None:
    drifting = steadiness(1 + NOISE + np.linspace(0, 0.03, 400))
    assert (drifting.drift, drifting.ending) == (pytest.approx(0.03, rel=0.3), pytest.approx(1.015, abs=0.006))
    changing = steadiness(1 + NOISE / 3 + 0.1 * (np.arange(400) // 7 % 2))
    assert changing.modes is not None
    assert changing.modes[1] - changing.modes[0] == pytest.approx(0.1 / 1.05, rel=0.1)
    assert "two modes" in " ".join(texts(changing.warnings()))


def test_readings_of_a_clock_of_whole_seconds_are_no_two_modes() -> None:
    even = np.diff(np.floor(np.cumsum(20.4 + NOISE)))
    assert set(even) == {20.0, 21.0}
    assert steadiness(even).modes is None
    assert steadiness(even + 3 * (np.arange(len(even)) // 7 % 2)).modes is not None


def test_a_warm_up_of_more_than_a_tenth_of_the_run_is_doubted() -> None:
    times = 1 + NOISE[:100]
    times[:25] += 0.3
    assert steadiness(times).long_warm_up == pytest.approx(0.24, abs=0.001)
    assert "24.0 % of the intervals are left out as warm-up" in " ".join(texts(steadiness(times).warnings()))
    times = 1 + NOISE[:100]
    times[:10] += 0.3
    assert steadiness(times).long_warm_up is None


def test_the_speed_at_which_a_run_ends_is_that_of_its_last_level() -> None:
    times = 1 + NOISE
    times[280:340] *= 1.06
    times[340:] *= 1.18
    found = steadiness(times)
    assert found.slowdown == pytest.approx(0.18, rel=0.1)
    assert found.ending == pytest.approx(1.18, rel=0.02)
    times = 1 + NOISE
    times[-1] = 2.8  # one interval is no speed
    assert steadiness(times).slowdown is None


def test_autocorrelation_that_cannot_be_seen_is_none() -> None:
    assert steadiness(1 + NOISE[:6]).autocorrelation is None
    assert steadiness(1 + NOISE[:60]).autocorrelation is not None


def test_more_intervals_for_one_per_cent() -> None:
    wide = Estimate(seconds_per_token=1.0, standard_error=0.01, degrees=24)
    more = num_more(wide, 25)
    total = 25 + more
    assert student_t(0.975, total - 1) * 0.01 * (25 / total) ** 0.5 == pytest.approx(0.01, rel=0.03)
    assert num_more(Estimate(seconds_per_token=1.0, standard_error=0.001, degrees=24), 25) == 0
    assert num_more(Estimate(seconds_per_token=1.0, standard_error=0.9, degrees=0.5), 3) is None


@pytest.mark.parametrize("degrees", [1, 2, 4, 9])
def test_more_intervals_after_few_are_those_by_which_students_interval_shrinks(degrees: int) -> None:
    more = num_more(Estimate(seconds_per_token=1.0, standard_error=0.01, degrees=degrees), degrees + 1)
    assert more
    totals = np.arange(degrees + 1, 200)
    widths = stats.t.ppf(0.975, totals - 1) * 0.01 * np.sqrt((degrees + 1) / totals)
    assert degrees + 1 + more == pytest.approx(totals[np.argmax(widths <= 0.01)], abs=1)


def test_values_are_held_to_five_deviations_of_the_middle_half_and_to_a_tenth_at_least() -> None:
    values = np.array([0.8, 0.9, 0.9, 1.0, 1.0, 1.1, 1.1, 1.6, 3.0])  # median 1, median distance from it 0.1
    assert held(values).tolist() == pytest.approx([*values[:-1], 1 + 5 * 1.4826 * 0.1])
    assert held(np.array([1.0, 1.0, 1.0, 1.0, 2.0, 0.5])).tolist() == pytest.approx([1, 1, 1, 1, 1.1, 0.9])


def test_other_windows_of_the_five_published_lines() -> None:
    logged = spans([7.2310, 5.3551, 5.6192, 5.3291, 5.3247], [10, 20, 30, 40, 50])
    times = {c.name: 10 / c.tokens_per_second / 10 for c in sensitivity(logged, 1 / 5.77182)}
    assert times["the mean of all lines"] == pytest.approx(5.77182)
    assert times["the last line"] == pytest.approx(5.3247)
    assert times["iterations 10 to 30"] == pytest.approx((5.3551 + 5.6192) / 2)
    assert not [name for name in times if "35 to 44" in name]  # such lines are not in this log


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


def test_the_mean_over_runs_is_students() -> None:
    found = over_runs([1.0, 1.1, 1.2])
    assert found.seconds_per_token == pytest.approx(1.1)
    assert found.half_width() == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-5)
    assert over_runs([1.0]) is None
    assert over_runs([1.0, 1.0]) is None


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
