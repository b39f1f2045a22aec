"""What ranks hold: together the model, and at most that of the first, the second or the last stage."""

import numpy as np
import pytest
from support.agreement import side_by_side
from support.jobs import Case, sample
from support.planning import constants, problem

from nlp_bench.plan.iteration import Seconds, step_seconds
from nlp_bench.plan.problem import Fixed, recompute_of
from nlp_bench.plan.search import judge
from nlp_bench.plan.work import fullest_stages, rank_parameters, stage_of
from nlp_bench.train.layout import model_shape


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return sample(80, 3)


def test_ranks_of_one_replica_hold_the_model(cases: list[Case]) -> None:
    for case in cases:
        s, c = case.settings, side_by_side([case])
        if s.tensor_model_parallel_size > 1:
            continue  # what tensor-parallel ranks hold twice is not counted apart here
        stages = range(s.pipeline_model_parallel_size)
        held = sum(float(rank_parameters(c, stage_of(c, np.asarray([float(rank)])))[0]) for rank in stages)
        copied = 0 if s.untie_embeddings_and_output_weights or len(stages) == 1 else case.layout.padded_vocab_size
        assert held - copied * s.hidden_size == model_shape(s, case.layout).parameters, case.describe()


def test_stages_of_a_short_pipeline_are_the_same_ones(cases: list[Case]) -> None:
    c = side_by_side(cases)
    first, second, last = fullest_stages(c)
    assert first.rank == 0
    assert np.array_equal(second.rank, np.minimum(1, c.spread.pipeline - 1))
    assert np.array_equal(last.rank, c.spread.pipeline - 1)
    alone = c.spread.pipeline == 1
    assert first.last[alone].all()
    assert last.first[alone].all()


def test_what_the_trainer_takes_the_planner_calls_legal(cases: list[Case]) -> None:
    c = side_by_side(cases)
    legal, _ = judge(c)
    assert legal.all(), [cases[place].describe() for place in np.flatnonzero(~legal)]


def seconds(word: str, **parts: object) -> Seconds:
    """Return the seconds of 175B's published configuration, 12 layers a stage, with another recompute."""
    asked = problem()
    own = recompute_of(word, Fixed(**parts))  # type: ignore[arg-type]  # the fields' own types
    return step_seconds(asked.configurations(asked.published | own), constants())


def test_each_layer_that_is_computed_again_takes_as_long() -> None:
    times = [float(seconds("none").total)]
    times += [float(seconds("full", recompute_method="block", recompute_num_layers=n).total) for n in (3, 6, 9, 12)]
    assert np.diff(times) == pytest.approx(np.full(4, (times[4] - times[0]) / 4), rel=1e-6)
    assert times[4] == pytest.approx(float(seconds("full").total))
    assert float(seconds("full", recompute_num_layers=4).total) == pytest.approx(times[4])


def test_modules_take_the_time_of_what_they_make_again() -> None:
    """The feed-forward block has two thirds of a GPT's products; normalisations are bound by memory."""
    none, full = seconds("none").parts, seconds("full").parts
    inner = seconds("selective", recompute_modules=("mlp",)).parts
    norms = seconds("selective", recompute_modules=("layernorm",)).parts
    products, streams = "matrix products", "memory-bound"
    share = (inner[products] - none[products]) / (full[products] - none[products])
    assert share == pytest.approx(2 / 3, abs=0.02)
    assert inner["attention"] == norms["attention"] == none["attention"]
    assert norms[products] == none[products]
    assert none[streams] < norms[streams] < full[streams]
    assert inner["tensor parallel"] - none["tensor parallel"] == pytest.approx(
        0.5 * (full["tensor parallel"] - none["tensor parallel"])
    )
