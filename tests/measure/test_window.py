"""The steady window: levels, marked stalls, the first iteration that is told twice, and what stays inside."""

import numpy as np
import pytest
from support.spans import NOISE, spans

from nlp_bench.logs.record import Event
from nlp_bench.measure.series import levels
from nlp_bench.measure.window import LogConventions, Window, find_window


def found(seconds: "np.typing.ArrayLike", **conventions: object) -> Window:
    return find_window(spans(seconds), LogConventions(**conventions))


def reasons(window: Window) -> list[tuple[int, int, str]]:
    return [(e.first_iteration, e.last_iteration, e.why) for e in window.excluded]


@pytest.mark.parametrize(("at", "step"), [(100, 0.05), (300, -0.05), (200, 0.03), (390, 0.3)])
def test_a_change_of_level_is_found_where_it_is(at: int, step: float) -> None:
    times = 1 + NOISE
    assert levels(times) == [(0, 400)]
    times[at:] += step
    segments = levels(times)
    assert len(segments) == 2
    assert abs(segments[1][0] - at) <= 2


def test_noise_that_wanders_is_no_change() -> None:
    dice, alarms = np.random.default_rng(3), 0
    for _ in range(200):
        shocks, value, times = dice.standard_normal(200) * 0.02, 0.0, []
        for shock in shocks:
            value = 0.6 * value + shock
            times.append(1 + value)
        alarms += len(levels(np.array(times))) > 1
    assert alarms <= 8


def test_a_stall_inside_belongs_to_the_machine_unless_the_log_says_what_it_was() -> None:
    times = 1 + NOISE[:60]
    times[30] = 4.0
    assert reasons(found(times)) == [(1, 1, "warm-up")]
    saved = found(times, events=[Event("checkpoint", 2950, 7)])  # between the records at byte 2900 and 3000
    assert reasons(saved) == [(1, 1, "warm-up"), (31, 31, "checkpoint")]
    for offset in (0, 10**9):  # before the first and after the last record
        assert reasons(found(times, events=[Event("evaluation", offset, 1)])) == [(1, 1, "warm-up")]
    fast = found(1 + NOISE[:60], events=[Event("evaluation", 2950, 7)])
    assert reasons(fast) == [(1, 1, "warm-up")]


def test_the_line_that_holds_the_first_iteration_again_is_warm_up_too() -> None:
    # Megatron-LM since 2026: the line of iteration 10 is the mean of iterations 1 to 10.
    times, ends = [1.4, 1.04, 1.0, 1.01, 1.0, 0.99], [1, 10, 20, 30, 40, 50]
    twice = find_window(spans(times, ends), LogConventions(has_first_twice=True))
    assert reasons(twice) == [(1, 10, "warm-up")]
    once = find_window(spans(times, ends), LogConventions())
    assert reasons(once) == [(1, 1, "warm-up")]
    reset = find_window(spans([50.0, *times[1:]], ends), LogConventions(has_first_twice=True))
    assert reasons(reset)[0][:2] == (1, 1)


def test_every_iteration_is_told_why_it_is_left_out() -> None:
    times = 1 + NOISE[:60]
    times[:3], times[50:] = 5.0, 1.5
    window = find_window(spans(times), LogConventions())
    told = window.why(np.arange(1.0, 61)).tolist()
    assert [told[at] for at in (0, 2, 20, 45, 50, 59)] == ["warm-up", "warm-up", "", "", "slow end", "slow end"]
    assert find_window(spans(1 + NOISE[:2]), LogConventions()).why(np.array([9.0])).tolist() == [""]


def test_more_levels_than_are_looked_for_cut_no_end_finer_than_the_other() -> None:
    stairs = np.repeat(1.03 ** np.arange(100), 20)
    assert max(end - begin for begin, end in levels(stairs)) <= 200
