"""The steady window: levels, marked stalls, the first iteration that is told twice, and what stays inside."""

from itertools import pairwise

import numpy as np
import pytest
from support.spans import NOISE, spans

from nlp_bench.logs.record import Event
from nlp_bench.measure.series import levels
from nlp_bench.measure.window import REASONS, LogConventions, Window, find_window


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


def test_a_gpu_that_is_not_throttled_yet_is_no_steady_machine() -> None:
    times = 1 + NOISE[:200]
    times[:60] -= 0.15
    window = found(times)
    assert reasons(window)[-1] == (2, 60, "fast start")
    assert window.num_tokens / window.seconds == pytest.approx(1, rel=0.005)


def test_throttling_at_the_end_is_left_out_and_kept_as_the_tail() -> None:
    times = 1 + NOISE[:200]
    times[170:] += 0.1
    window = found(times)
    assert reasons(window)[-1][2] == "slow end"
    assert 168 <= window.last_iteration <= 170
    assert window.tail.seconds.mean() == pytest.approx(1.1, rel=0.01)


def test_the_slower_half_is_the_steady_one() -> None:
    times = 1 + NOISE[:201]
    times[101:] += 0.1  # 100 intervals of each after the first
    window = found(times)
    assert window.seconds / window.num_tokens == pytest.approx(1.1, rel=0.005)


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


def test_a_front_that_fades_is_left_out_further_than_noise_shows_it() -> None:
    times = 1 + NOISE + 0.5 * np.exp(-np.arange(400) / 8)
    window = found(times)
    assert 30 <= window.first_iteration <= 90
    assert window.seconds / window.num_tokens == pytest.approx(1, abs=0.002)


def test_the_line_that_holds_the_first_iteration_again_is_warm_up_too() -> None:
    # Megatron-LM since 2026: the line of iteration 10 is the mean of iterations 1 to 10.
    times, ends = [1.4, 1.04, 1.0, 1.01, 1.0, 0.99], [1, 10, 20, 30, 40, 50]
    twice = find_window(spans(times, ends), LogConventions(has_first_twice=True))
    assert reasons(twice) == [(1, 10, "warm-up")]
    once = find_window(spans(times, ends), LogConventions())
    assert reasons(once) == [(1, 1, "warm-up")]
    reset = find_window(spans([50.0, *times[1:]], ends), LogConventions(has_first_twice=True))
    assert reasons(reset)[0][:2] == (1, 1)


def test_neighbours_are_told_as_one_stretch_by_the_words_of_the_list_in_the_order_of_the_iterations() -> None:
    times = 1 + NOISE[:200]
    times[:3], times[60:62], times[190:] = 5, 0.1, 1.4
    told = reasons(found(times))
    assert told == sorted(told)
    assert (61, 62, "implausibly fast") in told
    assert {why for *_, why in told} == {"warm-up", "implausibly fast", "slow end"} <= set(REASONS)
    assert all(one[1] < two[0] for one, two in pairwise(told))


def test_every_iteration_is_told_why_it_is_left_out() -> None:
    times = 1 + NOISE[:60]
    times[:3], times[50:] = 5.0, 1.5
    window = find_window(spans(times), LogConventions())
    told = window.why(np.arange(1.0, 61)).tolist()
    assert [told[at] for at in (0, 2, 20, 45, 50, 59)] == ["warm-up", "warm-up", "", "", "slow end", "slow end"]
    assert find_window(spans(1 + NOISE[:2]), LogConventions()).why(np.array([9.0])).tolist() == [""]


def test_words_in_most_intervals_excuse_none_of_them() -> None:
    times = 1 + NOISE[:60]
    times[30] = 4.0
    events = [Event("checkpoint", 100 * i - 50, i) for i in range(1, 60)]
    assert reasons(found(times, events=events)) == [(1, 1, "warm-up")]
    assert reasons(found(times, events=events[1::2])) == [(1, 1, "warm-up"), (31, 31, "checkpoint")]


def test_a_level_that_comes_back_inside_is_the_machines_own() -> None:
    times = 1 + np.random.default_rng(1).standard_normal(500) * 0.02
    times[:100] += 0.1
    times[350:450] += 0.1
    window = found(times)
    assert reasons(window) == [(1, 1, "warm-up")]
    assert window.seconds / window.num_tokens == pytest.approx(1.04, rel=0.005)


def test_more_levels_than_are_looked_for_cut_no_end_finer_than_the_other() -> None:
    stairs = np.repeat(1.03 ** np.arange(100), 20)
    assert max(end - begin for begin, end in levels(stairs)) <= 200


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (300, [([290, 294, 298, 299], 1.3)]),  # stalls: their sum is that of a level, their typical neighbour is not
        (200, [(slice(160, None), -0.2)]),  # a machine that is faster at the end was not always so
        (300, [(slice(100, 140), 0.15), (slice(270, None), 0.2)]),  # a slow end that the run came back from before
        (400, [(slice(120), 0.2)]),  # a start that is slow for too long
        (400, [(slice(188), 0.2)]),
    ],
)
def test_what_is_the_machines_own_counts(number: int, changes: list[tuple[list[int] | slice, float]]) -> None:
    times = 1 + NOISE[:number]
    for where, seconds in changes:
        times[where] += seconds
    window = found(times)
    assert reasons(window) == [(1, 1, "warm-up")]
    assert window.seconds == pytest.approx(times[1:].sum())


@pytest.mark.parametrize("kind", ["checkpoint", "evaluation"])
def test_words_do_not_excuse_more_than_a_tenth_of_the_time(kind: str) -> None:
    times = 1 + NOISE[:200]
    times[9::10] = 3.0
    often = found(times, events=[Event(kind, 100 * i - 50, i) for i in range(9, 200, 10)])
    assert reasons(often) == [(1, 1, "warm-up")]
    assert often.refused_mark == kind
    rarely = found(times, events=[Event(kind, 100 * i - 50, i) for i in (9, 109)])
    assert [e.why for e in rarely.excluded] == ["warm-up", kind, kind]
    assert rarely.refused_mark is None
    assert {why: round(aside.seconds) for why, aside in rarely.set_aside.items()} == {kind: 6}


@pytest.mark.parametrize("late", [1.4, 1.9])
def test_a_short_interval_beside_a_late_one_makes_up_for_it(late: float) -> None:
    times = 1 + NOISE[:200]
    times[99:101] = late, 0.2  # a line that was printed late is the next one's gain
    window = found(times)
    assert reasons(window) == [(1, 1, "warm-up")]
    assert window.seconds == pytest.approx(times[1:].sum())
