"""Components of variance of simulated runs whose truth is known, and whether what is to be bought is enough."""

import math

import numpy as np
import pytest

from nlp_bench.analysis.variance import Component, Cost, RunMean, Source, Unknown, components, plan
from nlp_bench.measure.estimate import student_t

ERROR, ITERATIONS = 0.001, 200
COST = Cost(start_up_s=100, warm_up_iterations=20, seconds_per_iteration=1.0, num_gpus=4)


def simulated(  # one truth each
    dice: np.random.Generator,
    days: int,
    sets: int,
    repeats: int,
    *,
    day: float,
    nodes: float,
    run: float,
    crossed: bool,
) -> list[RunMean]:
    """Return runs of `days` days with `sets` sets of nodes each; crossed: the same ones every day."""
    kept = nodes * dice.standard_normal(sets)
    runs = []
    for a in range(days):
        of_day, fresh = day * dice.standard_normal(), nodes * dice.standard_normal(sets)
        for b in range(sets):
            of_nodes = kept[b] if crossed else fresh[b]
            for _ in range(repeats):
                value = 5 + of_day + of_nodes + run * dice.standard_normal() + ERROR * dice.standard_normal()
                name = f"n{b}" if crossed else f"n{a}-{b}"
                runs.append(
                    RunMean(
                        log_time=float(value), error=ERROR, degrees=50, iterations=ITERATIONS, nodes=name, day=f"{a}"
                    )
                )
    return runs


def level(found: tuple[Component, ...], *levels: Source) -> Component:
    return next(one for one in found if one.levels == levels)


@pytest.mark.parametrize(
    ("design", "truth", "crossed"),
    [
        ((6, 2, 3), {"day": 0.01, "nodes": 0.005, "run": 0.004}, False),
        ((8, 3, 2), {"day": 0.005, "nodes": 0.01, "run": 0.004}, True),
    ],
)
def test_the_components_are_found_and_their_intervals_hold_the_truth(
    design: tuple[int, int, int], truth: dict[str, float], *, crossed: bool
) -> None:
    dice, histories = np.random.default_rng(11), 12
    found = [components(simulated(dice, *design, **truth, crossed=crossed)) for _ in range(histories)]
    for name, deviation in truth.items():
        parts = [level(one, Source(name)) for one in found]
        assert np.mean([part.variance for part in parts]) == pytest.approx(deviation**2, rel=0.5)
        assert sum(part.low <= deviation**2 <= part.high for part in parts) >= histories - 2
    iteration = level(found[0], Source.ITERATION)
    assert iteration.variance == pytest.approx(ITERATIONS * ERROR**2)
    assert iteration.low < ITERATIONS * ERROR**2 < iteration.high


def test_the_errors_within_runs_are_no_scatter_of_runs() -> None:
    dice = np.random.default_rng(3)
    runs = simulated(dice, 1, 1, 60, day=0, nodes=0, run=0, crossed=False)
    found = level(components(runs), Source.RUN)
    assert found.variance < 0.3 * ERROR**2
    assert found.low == 0
    assert 0 < found.high < 3 * ERROR**2


def test_what_never_differs_apart_is_one_source_and_what_does_not_differ_is_none() -> None:
    dice = np.random.default_rng(4)
    nights = simulated(dice, 8, 1, 3, day=0.01, nodes=0, run=0.002, crossed=False)
    found = components(nights)
    assert level(found, Source.NODES, Source.DAY).num_members == 8
    single = simulated(dice, 8, 1, 1, day=0.01, nodes=0, run=0.002, crossed=False)
    assert level(components(single), Source.RUN, Source.NODES, Source.DAY).num_members == 8
    one_day = simulated(dice, 1, 1, 6, day=0.01, nodes=0, run=0.002, crossed=False)
    assert level(components(one_day), Source.DAY).why_unknown is Unknown.ONE


def test_nodes_that_nobody_recorded_cannot_be_told() -> None:
    runs = [
        RunMean(
            log_time=5 + 0.01 * n, error=ERROR, degrees=9, iterations=100, nodes="a" if n else None, day=f"{n // 2}"
        )
        for n in range(6)
    ]
    found = level(components(runs), Source.NODES)
    assert (found.variance, found.why_unknown) == (None, Unknown.NOT_RECORDED)


def test_one_run_says_nothing_about_runs_and_nothing_is_planned() -> None:
    found = components([RunMean(log_time=5, error=ERROR, degrees=9, iterations=100)])
    assert level(found, Source.RUN).why_unknown is Unknown.TOO_FEW
    assert plan(found, 0.01, COST, of_one_day=True) == []


def test_what_is_bought_gives_the_wanted_half_width() -> None:
    run, iteration, within = 0.004, 0.15, 0.01
    found = (
        Component(levels=(Source.ITERATION,), num_members=1000, variance=iteration**2),
        Component(levels=(Source.RUN,), num_members=9, variance=run**2),
        Component(levels=(Source.DAY,), num_members=9, variance=0.006**2),
    )
    dice = np.random.default_rng(5)
    for of_one_day, place in ((True, 0.0), (False, 0.006)):
        bought = plan(found, within, COST, of_one_day=of_one_day)
        assert [one.runs for one in bought] == sorted(one.runs for one in bought)
        for one in bought[1:5]:
            scatter = math.sqrt(run**2 + place**2 + iteration**2 / one.iterations)
            means = scatter * dice.standard_normal((4000, one.runs))
            half = student_t(0.975, one.runs - 1) * np.sqrt(means.var(axis=1, ddof=1) / one.runs)
            assert math.sqrt(np.mean(half**2)) == pytest.approx(within, rel=0.05) or one.iterations == 100
            assert np.mean(np.abs(means.mean(axis=1)) <= half) == pytest.approx(0.95, abs=0.02)
    longer = plan(found, within, Cost(**{**vars(COST), "start_up_s": 10000}), of_one_day=True)
    cheapest = [min(part, key=lambda one: one.hours) for part in (plan(found, within, COST, of_one_day=True), longer)]
    assert cheapest[1].runs < cheapest[0].runs  # a long start-up is paid by fewer, longer runs
    assert cheapest[0].hours == pytest.approx(cheapest[0].runs * (100 + 20 + cheapest[0].iterations) * 4 / 3600)


def test_no_number_of_iterations_makes_up_for_days() -> None:
    found = (
        Component(levels=(Source.ITERATION,), num_members=1000, variance=0.01),
        Component(levels=(Source.RUN,), num_members=9, variance=0.0),
        Component(levels=(Source.DAY,), num_members=3, variance=0.1**2),
    )
    assert plan(found, 0.01, COST, of_one_day=False) == []
    assert plan(found, 0.01, COST, of_one_day=True) != []
