"""The sustained rate: the wall clock, whatever the log leaves out of its times."""

import numpy as np
import pytest
from support.spans import NOISE, spans

from nlp_bench.measure.sizes import Spans
from nlp_bench.measure.throughput import SET_BACK, STAMPS, Sustained, sustained_of
from nlp_bench.measure.window import LogConventions, find_window


def stamped(logged: Spans, stamps: "np.typing.ArrayLike") -> Spans:
    logged.records.columns["stamp_s"] = np.asarray(stamps, dtype=np.float64)
    return logged


def sustained(logged: Spans, **conventions: object) -> Sustained:
    return sustained_of(logged, find_window(logged, LogConventions(**conventions)).first_iteration)


def test_what_lies_between_the_logged_iterations_counts() -> None:
    times = 1 + NOISE[:100]
    stamps = np.cumsum(times) + 0.43 * np.arange(100)
    found = sustained(stamped(spans(times), stamps))
    assert found.clock == STAMPS
    assert found.tokens_per_second == pytest.approx(99 / (times[1:].sum() + 0.43 * 99))
    low, high = found.ci95
    assert low < found.tokens_per_second < high


def test_iterations_without_a_line_took_their_part_of_the_clock() -> None:
    times = 1 + NOISE[:50]
    ends = np.concatenate([np.arange(1, 26), np.arange(76, 101)])  # 50 iterations have no line
    logged = spans(times, ends)
    logged = Spans(records=logged.records, num_iterations=np.ones(50), num_tokens=np.ones(50), seconds=times)
    stamps = 100.0 + ends
    assert sustained(stamped(logged, stamps)).tokens_per_second == pytest.approx(1, rel=0.01)


def test_a_clock_that_is_set_back_hides_no_other_interval() -> None:
    """Summer time ends inside the window: what lies between the other lines still counts, and the hour is not taken from it."""
    times = 1 + NOISE[:100]
    stamps = np.cumsum(times) + 0.43 * np.arange(100)
    stamps[60:] -= 30
    found = sustained(stamped(spans(times), stamps))
    assert found.clock == SET_BACK
    assert found.seconds == pytest.approx(times[1:].sum() + 0.43 * 98)
