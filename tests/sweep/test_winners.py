"""Which configurations may be the best: the guarantee by simulation, and the power to tell."""

import pytest
from support.winners_study import study

from nlp_bench.analysis.sweep import winners
from nlp_bench.measure.estimate import Estimate


def estimate(seconds: float, error: float, degrees: float = 10) -> Estimate:
    return Estimate(seconds_per_token=seconds, standard_error=error, degrees=degrees)


@pytest.mark.parametrize(("configurations", "runs", "spreads"), [(2, 5, 1.0), (6, 3, 1.0), (6, 5, 8.0)])
def test_the_best_is_among_the_winners_in_95_of_100(configurations: int, runs: int, spreads: float) -> None:
    share, _ = study(configurations, runs, 0.0, spreads, number=1000, seed=7)
    assert share >= 0.95 - 0.012  # a standard error of the simulation and a half below the promise


def test_clear_differences_are_told() -> None:
    share, named = study(6, 5, 0.05, 1.0, number=100)
    assert share == 1
    assert named < 1.1


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], []),
        ([(1, 0.1)], [True]),
        ([(1.2, 0.001), (1.0, 0.001), (1.1, 0.001)], [False, True, False]),
        ([(1.0, 0.01), (1.01, 0.01), (1.5, 0.01)], [True, True, False]),
        # The first is fastest by name only; the second rules the third out by itself.
        ([(0.99, 0.5), (1.0, 0.001), (1.05, 0.001)], [True, True, False]),
    ],
    ids=["none", "one", "the fastest alone", "a tie", "an uncertain fastest shields nobody"],
)
def test_who_may_be_the_best(found: list[tuple[float, float]], expected: list[bool]) -> None:
    assert winners([estimate(*each) for each in found]) == expected


def test_few_runs_tell_less() -> None:
    apart = [estimate(1.0, 0.005, 1), estimate(1.02, 0.005, 1)]
    assert winners(apart) == [True, True]
    assert winners([estimate(e.seconds_per_token, e.standard_error, 30) for e in apart]) == [True, False]


def test_more_rivals_need_more_evidence() -> None:
    close = [estimate(1.0, 0.005), estimate(1.0135, 0.005)]
    assert winners(close) == [True, False]
    assert winners([*close, *(estimate(1.0, 0.005) for _ in range(20))])[1]
