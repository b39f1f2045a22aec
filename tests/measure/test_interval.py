"""The interval: stalls that were seen and that were not, two states, and that it is never wide without a reason."""

import numpy as np
import pytest
from support.spans import NOISE, spans

from nlp_bench.measure.estimate import PRIOR, UNSEEN, UNSEEN_WHERE_SEEN, Estimate
from nlp_bench.measure.interval import estimate_of


def estimated(seconds: "np.typing.ArrayLike", iterations: "np.typing.ArrayLike | None" = None) -> Estimate:
    found = estimate_of(spans(seconds, iterations))
    assert found is not None
    return found


def times_of(found: Estimate) -> tuple[float, float]:
    low, high = found.interval()
    return 1 / high, 1 / low


def test_a_stall_that_was_not_seen_lies_on_the_slow_side_alone() -> None:
    found = estimated(1 + NOISE)
    below, above = (abs(side - found.seconds_per_token) for side in times_of(found))
    assert below == pytest.approx(1.75 * found.uncertainty.noise, rel=0.05)
    assert above > UNSEEN * 4.6 / (400 + PRIOR)


def test_a_log_that_shows_small_stalls_may_hide_large_ones() -> None:
    times = 1 + NOISE / 4
    times[[100, 300]] += 0.07
    found = estimated(times)
    assert found.uncertainty.num_stalls == 2
    assert found.uncertainty.stalls == pytest.approx(0.14, rel=0.1)
    assert times_of(found)[1] - found.seconds_per_token > UNSEEN_WHERE_SEEN * 4.4 / (400 + PRIOR)


def test_neighbours_are_one_stall() -> None:
    times = 1 + NOISE
    times[100:104] += 1
    times[300] += 1
    found = estimated(times).uncertainty
    assert (found.num_stalls, found.unseen) == (2, pytest.approx(4, rel=0.05))


def test_one_stall_says_less_than_many_of_its_kind() -> None:
    one, many = 1 + NOISE, 1 + NOISE
    one[200] += 4
    many[50:400:50] += 4 / 7
    wide, narrow = (np.diff(times_of(estimated(times)))[0] for times in (one, many))
    assert wide > 1.5 * narrow


def test_stalls_cost_the_same_in_a_line_of_ten() -> None:
    times = 1 + NOISE
    times[[100, 250]] += 1.5
    single = estimated(times)
    tens = estimated(times.reshape(-1, 10).mean(axis=1), 10 * np.arange(1, 41))
    assert tens.uncertainty.stalls == pytest.approx(single.uncertainty.stalls, rel=0.05)
    assert tens.half_width() == pytest.approx(single.half_width(), rel=0.3)


def test_two_states_of_which_one_change_was_seen_may_be_either() -> None:
    times = 1 + NOISE / 4
    times[250:] += 0.1
    low, high = times_of(estimated(times))
    assert low == pytest.approx(1.0, abs=0.01)
    assert high == pytest.approx(1.1, abs=0.02)
    times = 1 + NOISE[:60] / 4
    times[-1] += 0.3  # a slow last line may be the beginning of a slower speed
    assert times_of(estimated(times))[0] < 1.0


def test_rounded_times_have_no_stalls() -> None:
    times = np.round(1 + NOISE * 3, 1)
    assert estimated(times).uncertainty.num_stalls == 0


def test_how_often_the_state_changed_says_how_well_its_share_is_known() -> None:
    times = 1 + NOISE / 4
    times[250:350] += 0.1
    found = estimated(times)
    # Slow in 100 of 400 iterations, one change to it and one back, half a change each that was not seen.
    remembered = 2 / (1.5 / 300 + 1.5 / 100) / 400
    assert found.uncertainty.num_switches == 2
    assert found.uncertainty.switching == pytest.approx(0.1 / 1.025 * (0.25 * 0.75 * remembered) ** 0.5, rel=0.02)
    assert times_of(found) == (pytest.approx(1.0, abs=0.005), pytest.approx(1.1, abs=0.01))
