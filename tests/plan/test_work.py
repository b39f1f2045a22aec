"""What ranks hold: together the model, and at most that of the first, the second or the last stage."""

import numpy as np
import pytest
from support.agreement import side_by_side
from support.jobs import Case, sample

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
