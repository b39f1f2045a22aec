"""The search keeps the fastest that fits and drops its twins."""

from dataclasses import replace

import numpy as np
import pytest
from support.planning import problem

from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.problem import Fixed
from nlp_bench.plan.ranking import answer, configuration, rows_of
from nlp_bench.plan.search.search import CHUNK, NEAR, figures_of, layout_keys, search
from nlp_bench.plan.search.space import space


def test_the_first_is_the_fastest_that_fits() -> None:
    found = search(problem("13"))
    figures = found.figures
    best = figures.iteration_s[figures.fits].min()
    assert figures.iteration_s[found.ranked[0]] == pytest.approx(best, rel=2e-3)
    assert figures.fits[found.ranked].all()
    assert (np.diff(figures.iteration_s[found.ranked]) >= 0).all()


def test_no_two_rows_are_twins() -> None:
    found = search(problem("13"))
    keys = layout_keys(found.space.legal)[found.ranked]
    assert len(np.unique(keys)) == len(keys), "a layout stands there once"


def test_of_equal_times_the_least_memory_is_kept() -> None:
    found = search(problem("13"))
    figures, place = found.figures, found.ranked[0]
    near = figures.fits & (np.abs(figures.iteration_s / figures.iteration_s[place] - 1) < 1e-4)
    assert figures.memory_bytes[place] <= figures.memory_bytes[near].min() * (1 + 1e-9)


def test_none_is_slower_by_a_hair_and_needs_more() -> None:
    found = search(problem("13"))
    seconds, memory = found.figures.iteration_s[found.ranked], found.figures.memory_bytes[found.ranked]
    for place in range(1, len(seconds)):
        near = seconds[:place] >= seconds[place] * (1 - NEAR)
        assert not (memory[:place][near] <= memory[place]).any()


def test_chunks_change_nothing() -> None:
    asked = problem("13")
    legal = space(asked).legal
    few = legal.take(np.arange(CHUNK - 3, min(len(legal), CHUNK + 3)) if len(legal) > CHUNK else np.arange(5))
    at_once = forecast(few, asked.constants)
    assert np.array_equal(figures_of(few, asked).iteration_s, np.broadcast_to(at_once.seconds.total, (len(few),)))


def test_the_published_one_stands_beside_the_best() -> None:
    found = answer(problem("175"), top=3)
    assert len(found.rows) == 3
    published = found.published
    assert published is not None
    assert (published.sizes.tp, published.sizes.pp, published.sizes.vpp, published.sizes.gas) == (8, 8, 1, 16)
    assert published.published
    assert published.rank == 1 + sum(
        found.search.figures.iteration_s[found.search.ranked] < published.iteration_s * (1 - 1e-9)
    )
    assert found.rows[0].report_s < published.report_s, "interleaving alone saves most of a bubble of 30 %"
    assert [row.rank for row in found.rows] == [1, 2, 3]


def test_a_row_agrees_with_itself() -> None:
    asked = problem("13")
    row = rows_of(configuration(asked, asked.published), asked)[0]
    assert row.report_s == pytest.approx(asked.tokens / row.tokens_per_second)
    assert row.tokens_per_second == pytest.approx(1024 * 2048 / row.iteration_s)
    assert row.low_s < row.report_s < row.high_s
    assert sum(row.shares.values()) == pytest.approx(1, rel=1e-6)
    assert sum(row.memory_parts_gib.values()) == pytest.approx(row.memory_gib, rel=1e-6)
    assert row.capacity_gib == 40


def test_on_too_few_gpus_the_smallest_is_named() -> None:
    found = answer(problem("175", nodes=2), top=3)
    assert found.rows == ()
    assert found.smallest is not None
    assert found.smallest.memory_gib == pytest.approx(found.search.figures.memory_bytes.min() / 2**30)
    assert found.published is None
    assert dict(found.published_broken)["GPUs"].startswith("nodes*gpus_per_node = 8 is not a multiple of tp*pp = 64")


def test_tight_ones_are_faster_than_the_best_and_do_not_lead() -> None:
    found = answer(problem("175", fixed=Fixed(cp=1)), top=1)
    for row in found.tight:
        assert row.fits == "tight"
        assert row.report_s < found.rows[0].report_s


def test_kept_ones_that_do_not_fit_are_not_ranked() -> None:
    found = search(problem("13"))
    everything = found.with_kept(np.ones_like(found.figures.fits))
    assert len(everything.ranked) == found.num_fitting
    nothing = replace(found, ranked=found.ranked[:0]).with_kept(~found.figures.fits)
    assert len(nothing.ranked) == 0
