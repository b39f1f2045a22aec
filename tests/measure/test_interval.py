"""The interval: stalls that were seen and that were not, two states, and that it is never wide without a reason."""

import numpy as np
import pytest
from support.spans import NOISE, spans

from nlp_bench.measure.estimate import PRIOR, UNSEEN, Estimate
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
