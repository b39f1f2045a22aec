"""Which configurations may be the best: the guarantee by simulation, and the power to tell."""

from pathlib import Path

import pytest
from support.command import Cli
from support.repeated import write_log
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


def test_a_lead_within_what_one_run_may_hide_is_no_win(tmp_path: Path, cli: Cli) -> None:
    """Of one run each a stall that neither log has seen counts, as in the interval that the sweep prints."""
    for size, rate in ((1, 1000), (2, 1004)):
        write_log(tmp_path / f"{size}.log", rate, seed=size, scatter=0.001, micro_batch_size=size)
    (sweep,) = cli("report", tmp_path, "--sweep", "--format", "json").json["sweeps"]
    first, second = sweep["configurations"]
    assert second["of_fastest_ci95_low"] < second["of_fastest"] < 1 < second["of_fastest_ci95_high"]
    assert first["standing"] == second["standing"] == "tied for best"
