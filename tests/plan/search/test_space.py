"""The space is complete, legal and without twins."""

import itertools

import numpy as np
import pytest
from support.planning import problem

from nlp_bench.plan.configurations import Configurations
from nlp_bench.plan.problem import Fixed, Problem, Sizes, sizes_of
from nlp_bench.plan.search import space as space_module
from nlp_bench.plan.search.legal import judge
from nlp_bench.plan.search.space import divisors, layers_of_head, space


def everything(c: Configurations) -> set[Sizes]:
    return {sizes_of(c, place) for place in range(len(c))}


def by_hand(asked: Problem) -> set[tuple[int, ...]]:
    """Every legal even layout by loops: tp, pp, vpp, cp, micro batch."""
    shape, found = asked.model.architecture, set()
    gpus, batch = asked.num_gpus, asked.global_batch_size
    sizes = range(1, gpus + 1)
    for tp, pp, cp in itertools.product(sizes, sizes, sizes):
        if gpus % (tp * pp * cp) or shape.num_layers % pp or shape.num_attention_heads % tp:
            continue
        if (
            shape.ffn_hidden_size % tp
            or shape.sequence_length % (tp * cp)
            or (cp > 1 and shape.sequence_length % (2 * cp))
        ):
            continue
        data = gpus // (tp * pp * cp)
        for vpp, micro in itertools.product(range(1, shape.num_layers + 1), range(1, batch + 1)):
            if (
                shape.num_layers % (pp * vpp)
                or batch % (data * micro)
                or (vpp > 1 and (pp == 1 or batch // (data * micro) % pp))
            ):
                continue
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
    assert (
        len(of_one) == 2 * 2 * 5
    )  # recompute x sequence parallel x (3 overlaps with, 2 without the distributed optimizer)
    assert not any(s.sequence_parallel for s in found if s.tp == 1)


@pytest.mark.parametrize(("model", "nodes"), [("175", 96), ("13", 8), ("llama_8b", 4), ("gpt_20b", 20)])
def test_all_are_legal_and_counted(model: str, nodes: int) -> None:
    found = space(
        problem(model, "dgx-a100" if model.startswith("gpt") else "juwels-booster", nodes=nodes, global_batch_size=960)
    )
    assert judge(found.legal).legal.all()
    assert sum(found.illegal.values()) + found.num_legal_layouts == found.num_layouts
    assert (found.legal.spread.num_microbatches >= 1).all()


def test_the_benchmarks_space_has_the_size_that_is_known() -> None:
    """50 802 legal configurations of 175 on 384 GPUs were counted once with three words of recompute; ours has one and uneven stages."""
    assert 30_000 < len(space(problem()).legal) < 130_000


def test_judged_in_parts_they_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = space(problem(nodes=6))
    monkeypatch.setattr(space_module, "AT_ONCE", 1000)
    parts = space(problem(nodes=6))
    assert parts.num_layouts > 1000
    assert (parts.num_layouts, parts.num_legal_layouts) == (whole.num_layouts, whole.num_legal_layouts)
    assert list(parts.illegal.items()) == list(whole.illegal.items())
    assert len(parts.legal) == len(whole.legal)


def test_what_is_fixed_stays() -> None:
    fixed = Fixed(tp=8, pp=8, gas=16, sequence_parallel=True, distributed_optimizer=True)
    for sizes in everything(space(problem(fixed=fixed)).legal):
        assert (sizes.tp, sizes.pp, sizes.gas, sizes.sequence_parallel, sizes.distributed_optimizer) == (
            8,
            8,
            16,
            True,
            True,
        )


def test_uneven_stages_come_where_layers_do_not_divide() -> None:
    asked = problem("gpt_20b", "dgx-a100", nodes=20, fixed=Fixed(pp=5), global_batch_size=960)
    found = everything(space(asked).legal)
    assert found, "44 layers on 5 stages"
    for sizes in found:
        middle = (44 - sizes.first_layers - sizes.last_layers) / (
            5 - bool(sizes.first_layers) - bool(sizes.last_layers)
        )
        assert 0 < sizes.last_layers < middle
        assert middle <= 1.15 * 44 / 5


def test_a_heavy_head_makes_a_light_last_stage_worth_a_look() -> None:
    asked = problem("gpt_126m", "dgx-a100", nodes=1, fixed=Fixed(pp=2))
    assert layers_of_head(asked) > 3, "the output layer of a narrow model is worth several layers"
    assert any(sizes.last_layers for sizes in everything(space(asked).legal))
    assert layers_of_head(problem("175")) < 1


def test_nothing_legal_is_no_fault() -> None:
    assert len(space(problem(nodes=97)).legal) == 0
    found = space(problem(fixed=Fixed(tp=7)))
    assert (len(found.legal), found.num_layouts) == (0, 0)


def test_divisors() -> None:
    for number in (1, 2, 36, 97, 384):
        assert divisors(number) == [k for k in range(1, number + 1) if number % k == 0]
    assert np.prod(divisors(6)) == 36
