"""A global batch that some numbers of nodes cannot share."""

import pytest

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.errors import UsageError


def sizes(nodes: int, micro: int) -> tuple[int, int]:
    request = Request(
        model="tiny", system="juwels-booster", nodes=nodes, gpus_per_node=4, tensor=2, pipeline=1, micro_batch_size=micro, global_batch_size=16
    )  # fmt: skip
    run = resolve(request, ask_scheduler=False)
    return run.parallel.data, run.batch.gradient_accumulation_steps


def test_the_numbers_of_nodes_that_work_are_named_and_work() -> None:
    with pytest.raises(UsageError) as error:
        sizes(3, 2)
    said = str(error.value)
    assert "global_batch_size = 16 is not a multiple of dp*micro_batch_size = 6*2 = 12 (remainder 4)" in said
    assert said.endswith("these numbers of nodes work: 1, 2, 4")
    assert [sizes(nodes, 2) for nodes in (1, 2, 4)] == [(2, 4), (4, 2), (8, 1)]


def test_where_none_works_the_micro_batch_is_too_large() -> None:
    with pytest.raises(UsageError, match="nodes work: none; lower --micro-batch-size"):
        sizes(1, 32)
