"""The space is complete, legal and without twins; the search keeps the fastest that fits."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from support.planning import problem

from nlp_bench.errors import UsageError
from nlp_bench.plan import search as search_module
from nlp_bench.plan.configurations import Configurations
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.problem import Fixed, Problem, Setting, sizes_of
from nlp_bench.plan.search import CHUNK, figures_of, judge, layers_of_head, search, space


def everything(c: Configurations) -> set[Setting]:
    return {sizes_of(c, place) for place in range(len(c))}


def by_hand(asked: Problem) -> set[tuple[int, ...]]:
    """Every legal even layout by loops: tp, pp, vpp, cp, micro batch."""
    shape, found = asked.model.architecture, set()
    gpus, batch = asked.num_gpus, asked.global_batch_size
    sizes = range(1, gpus + 1)
    for tp, pp, cp in itertools.product(sizes, sizes, sizes):
        if gpus % (tp * pp * cp) or shape.num_layers % pp or shape.num_attention_heads % tp:
            continue
        length = shape.sequence_length
        if shape.ffn_hidden_size % tp or length % (tp * cp) or (cp > 1 and length % (2 * cp)):
            continue
        data = gpus // (tp * pp * cp)
        for vpp, micro in itertools.product(range(1, shape.num_layers + 1), range(1, batch + 1)):
            uneven = vpp > 1 and (pp == 1 or batch // (data * micro) % pp)
            if not (shape.num_layers % (pp * vpp) or batch % (data * micro) or uneven):
                found.add((tp, pp, vpp, cp, micro))
    return found


def test_no_legal_layout_is_missing() -> None:
    asked = problem("tiny", nodes=3, global_batch_size=48)
    found = everything(space(asked).legal)
    even = {(s.tp, s.pp, s.vpp, s.cp, s.micro_batch_size) for s in found if not s.first_layers and not s.last_layers}
    assert even == by_hand(asked)


def test_every_setting_of_the_switches_is_there_once() -> None:
    legal = space(problem("tiny", nodes=1)).legal
    found = everything(legal)
    assert len(found) == len(legal)
    of_one = [s for s in found if (s.tp, s.pp, s.vpp, s.cp, s.micro_batch_size, s.last_layers) == (2, 2, 1, 1, 1, 0)]
    # recompute x sequence parallel x (3 overlaps with, 2 without the distributed optimizer)
    assert len(of_one) == 2 * 2 * 5
    assert not any(s.sequence_parallel for s in found if s.tp == 1)


@pytest.mark.parametrize(("model", "nodes"), [("175", 48), ("13", 4), ("llama_8b", 2), ("gpt_20b", 20)])
def test_all_are_legal_and_counted(model: str, nodes: int) -> None:
    found = space(problem(model, "dgx-a100", nodes=nodes, global_batch_size=960))
    assert judge(found.legal)[0].all()
    assert sum(found.illegal.values()) + found.num_legal_layouts == found.num_layouts
    assert (found.legal.spread.num_microbatches >= 1).all()


def test_judged_in_parts_they_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = space(problem(nodes=6))
    monkeypatch.setattr(search_module, "AT_ONCE", 1000)
    parts = space(problem(nodes=6))
    assert parts.num_layouts > 1000
    assert (parts.num_layouts, parts.num_legal_layouts) == (whole.num_layouts, whole.num_legal_layouts)
    assert list(parts.illegal.items()) == list(whole.illegal.items())
    assert len(parts.legal) == len(whole.legal)


def test_what_is_fixed_stays() -> None:
    fixed = Fixed(tp=8, pp=8, gas=16, sequence_parallel=True, distributed_optimizer=True)
    for one in everything(space(problem(fixed=fixed)).legal):
        assert (one.tp, one.pp, one.gas, one.sequence_parallel, one.distributed_optimizer) == (8, 8, 16, True, True)
    whole = everything(space(problem("tiny", nodes=1, fixed=Fixed(sequence_parallel=False))).legal)
    assert {one.sequence_parallel for one in whole} == {False}
    assert 1 in {one.tp for one in whole}, "one rank has nothing to split, whatever is asked for"


@pytest.mark.parametrize("name", ["distributed_optimizer", "overlap_grad_reduce"])
def test_switches_that_exclude_each_other_are_refused(name: str) -> None:
    asked = problem("tiny", nodes=1, fixed=Fixed(**{name: False}, overlap_param_gather=True))
    needs = "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce"
    with pytest.raises(UsageError, match=needs):
        search(asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "gpus", "pipeline", "ends"),
    [
        ("gpt_20b", 160, 5, {1: [(0, 4), (0, 8), (7, 7)], 2: [(0, 4), (6, 8)]}),  # 44 layers: 9 or 10 in the middle
        ("gpt_40b", 160, 5, {1: [(0, 4), (0, 8), (7, 8), (9, 9)]}),
        ("gpt_5b", 56, 7, {1: [(2, 2)], 2: [(2, 2)]}),
        ("gpt_126m", 8, 2, {1: [(0, 0), (0, 5)], 2: [(0, 0), (0, 4)], 3: [(0, 0), (0, 3)], 4: [(0, 4)], 6: [(0, 0)]}),
        ("gpt_126m", 8, 4, {1: [(0, 0), (2, 2)], 2: [(2, 2)], 3: [(0, 0)]}),  # the output layer is worth 4.5 layers
        ("gpt_1_3b", 8, 8, {1: [(0, 0)]}),  # 24 layers on 8 stages: a lighter last one would make the others heavier
    ],
)
def test_first_and_last_stages_have_fewer_layers_where_that_helps(
    model: str, gpus: int, pipeline: int, ends: dict[int, list[tuple[int, int]]]
) -> None:
    """Multiples of the virtual stages; 0 is as many as the others. Those that make the slowest stage slower are not looked at."""
    asked = problem(model, "dgx-a100", nodes=gpus // 8, fixed=Fixed(pp=pipeline), global_batch_size=6 * gpus)
    found = {(sizes.vpp, sizes.first_layers, sizes.last_layers) for sizes in everything(space(asked).legal)}
    for virtual, pairs in ends.items():
        assert sorted((first, last) for own, first, last in found if own == virtual) == pairs
    layers, head = asked.model.architecture.num_layers, layers_of_head(asked)
    for virtual, first, last in found - {(virtual, 0, 0) for virtual in ends}:
        middle = (layers - first - last) / (pipeline - bool(first) - bool(last))
        assert last < middle
        assert (first % virtual, last % virtual, middle % virtual) == (0, 0, 0)
        even = layers / pipeline if layers % (pipeline * virtual) == 0 else 1.15 * layers / pipeline
        assert max(middle, first, last + head) < even + head


def test_chunks_change_nothing() -> None:
    asked = problem("13")
    legal = space(asked).legal
    few = legal.take(np.arange(CHUNK - 3, min(len(legal), CHUNK + 3)) if len(legal) > CHUNK else np.arange(5))
    at_once = forecast(few, asked.constants)
    assert np.array_equal(figures_of(few, asked).iteration_s, np.broadcast_to(at_once.seconds.total, (len(few),)))


def test_kept_ones_that_do_not_fit_are_not_ranked() -> None:
    found = search(problem("13"))
    everything = found.with_kept(np.ones_like(found.figures.fits))
    assert len(everything.ranked) == found.num_fitting
    nothing = replace(found, ranked=found.ranked[:0]).with_kept(~found.figures.fits)
    assert len(nothing.ranked) == 0
