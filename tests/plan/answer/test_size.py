"""The largest size in so many days."""

import pytest
from support.planning import constants, problem

from nlp_bench.config.catalog import load_system
from nlp_bench.config.model import Model
from nlp_bench.plan.capacity import batch_for, candidates, nemo_days, parameters_of, recommend
from nlp_bench.plan.problem import Problem, make_problem


def make(model: Model, nodes: int = 20) -> Problem:
    asked = make_problem(model, load_system("dgx-a100"), constants(), tokens=300 * 10**9, nodes=nodes)
    return Problem(**{**vars(asked), "global_batch_size": batch_for(asked.global_batch_size, asked.num_gpus)})


def test_sizes_are_sorted_and_sound() -> None:
    sizes = candidates()
    counts = [parameters_of(model) for model, _ in sizes]
    assert counts == sorted(counts)
    assert sum(published for _, published in sizes) == 7
    for model, published in sizes:
        shape = model.architecture
        assert shape.hidden_size % shape.num_attention_heads == 0
        if not published:
            assert shape.num_layers % 4 == 0
            assert shape.ffn_hidden_size == 4 * shape.hidden_size
            assert shape.hidden_size // shape.num_attention_heads in {64, 128}
            assert model.parameters_billion == pytest.approx(parameters_of(model) / 1e9, rel=0.01)


def test_the_chosen_one_finishes_and_the_next_does_not() -> None:
    found = recommend(5, make)
    assert found.chosen is not None
    assert found.chosen.days is not None
    assert found.chosen.days <= 5
    larger = [size for size in found.looked_at if parameters_of(size.model) > parameters_of(found.chosen.model)]
    assert larger
    assert all(size.days is None or size.days > 5 for size in larger)
    names = [model.name for model, _ in candidates()]
    assert names[names.index(found.chosen.model.name) + 1] == larger[0].model.name


def test_nemos_formula_is_the_guides_example() -> None:
    """20 DGX A100, 5 days: the guide of BigNLP recommends 5B, section 5.3.1.1."""
    found = recommend(5, make)
    assert found.nemo_parameters == pytest.approx(4.03e9, rel=0.01)
    assert nemo_days(found.nemo_parameters, 300e9, 160) == pytest.approx(5)


def test_too_little_time_has_no_size() -> None:
    assert recommend(1e-6, make).chosen is None


def test_the_batch_is_a_multiple_of_the_gpus() -> None:
    assert batch_for(256, 160) == 320
    assert batch_for(256, 1000) == 1000
    assert batch_for(256, 64) == 256


def test_problem_keeps_its_shape() -> None:
    assert problem("gpt_5b", "dgx-a100").nodes == 4
