"""The smallest number of nodes within a time."""

import pytest
from support.planning import problem

from nlp_bench.plan.capacity import fewest_nodes, smallest
from nlp_bench.plan.search.search import search
from nlp_bench.plan.text import ranges


def test_the_smallest_is_within_and_the_next_smaller_is_not() -> None:
    asked, limit = problem("13", nodes=32), 400.0
    found = smallest(asked, limit)
    assert found.within is not None
    assert found.within.report_s <= limit
    assert found.margin == pytest.approx(1 - found.within.report_s / limit)
    factor = asked.tokens / asked.tokens_per_iteration
    for nodes in (n for n in found.usable if n < found.within.nodes):
        smaller = search(asked, nodes=nodes)
        times = smaller.figures.iteration_s[smaller.figures.fits]
        assert not len(times) or times.min() * factor > limit
    if found.surely is not None:
        assert found.surely.high_s <= limit
        assert found.surely.nodes >= found.within.nodes


def test_the_batch_stays() -> None:
    found = smallest(problem("13", nodes=32), 400.0)
    assert found.within is not None
    assert found.within.sizes.global_batch_size == 1024
    assert all(1024 * 64 % 2**0 == 0 and n >= found.fewest for n in found.usable)


def test_below_the_peak_nothing_is_tried() -> None:
    asked = problem("13")
    flops = 6 * 12.9e9 * 20e6  # 6 N per token, a little less than with attention and the head
    assert fewest_nodes(asked, 100) >= flops / 100 / (4 * 312e12)
    assert fewest_nodes(asked, 1e9) == 1


def test_the_impossible_names_the_best_reachable() -> None:
    found = smallest(problem("13", nodes=8), 0.5)
    assert found.within is None
    assert found.surely is None
    assert found.fastest is not None
    assert found.fastest.nodes <= 8
    assert found.fewest > 8


def test_ranges() -> None:
    assert ranges([1, 2, 3, 5, 8, 9]) == "1-3, 5, 8-9"
    assert ranges([]) == "none"
    assert ranges(list(range(1, 60, 2))).endswith("… (30 in all)")
