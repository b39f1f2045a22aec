"""The planner counts what the trainer does: held against rehearsals of random legal configurations.

`python tests/plan/agreement.py --num 150` does it for more of them, with `--real` for 13B and 175B.
"""

import pytest
from support.agreement import Pair, compare
from support.jobs import bucketed, sample

NUM, SEED, TOLERANCE = 100, 6, 0.02


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return list(compare(sample(NUM, SEED)))


def test_parameters_operations_and_communication_are_equal(pairs: list[Pair]) -> None:
    assert not [(pair.case.describe(), pair.differences) for pair in pairs if pair.differences]


def test_memory_is_within_2_percent_each(pairs: list[Pair]) -> None:
    errors = {pair.case.describe(): pair.memory_error for pair in pairs}
    assert not {name: error for name, error in errors.items() if abs(error) > TOLERANCE}


def test_the_sample_has_every_kind(pairs: list[Pair]) -> None:
    settings = [pair.case.settings for pair in pairs]
    layouts = [pair.case.layout for pair in pairs]
    assert {s.params_dtype for s in settings} == {"bfloat16", "float16", "float32"}
    assert {s.granularity for s in settings} == {None, "selective", "full"}
    assert max(layout.virtual_stages for layout in layouts) > 1
    for name in (
        "swiglu",
        "use_distributed_optimizer",
        "overlap_grad_reduce",
        "group_query_attention",
        "rotated_width",
    ):
        assert {bool(getattr(s, name)) for s in settings} == {False, True}, name
    for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"):
        assert len({getattr(s, name) for s in settings}) > 1, name
    assert {layout.sequence_parallel for layout in layouts} == {False, True}


def test_buckets_are_cut_as_megatron_core_cuts_them() -> None:
    cases = [
        bucketed(shared=True, data=3),
        bucketed(shared=True, data=6, pipeline=2),
        bucketed(shared=False, data=2, tied=False),
        bucketed(shared=True, data=5, pipeline=2, tied=False),
    ]
    pairs = list(compare(cases))
    assert not [(pair.case.describe(), pair.differences) for pair in pairs if pair.differences]
    kinds = [dict(pair.planned.collectives) for pair in pairs]
    assert min(max(calls for name, (_, calls) in kind.items() if name.endswith("data")) for kind in kinds) > 1
