"""A global batch that some numbers of nodes cannot share."""

import pytest

from nlp_bench.config.layout import Parallel
from nlp_bench.errors import UsageError


def parallel(nodes: int) -> Parallel:
    return Parallel(nodes=nodes, gpus_per_node=4, tensor=2, pipeline=1)


def test_the_numbers_of_nodes_that_work_are_named() -> None:
    with pytest.raises(UsageError) as error:
        parallel(3).share(16, 2)
    assert "global_batch_size = 16 is not a multiple of dp*micro_batch_size = 6*2 = 12 (remainder 4)" in str(
        error.value
    )
    assert str(error.value).endswith("these numbers of nodes work: 1, 2, 4")


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_those_numbers_work(nodes: int) -> None:
    parallel(nodes).share(16, 2)


def test_where_none_works_the_micro_batch_is_too_large() -> None:
    with pytest.raises(UsageError, match="nodes work: none; lower --micro-batch-size"):
        parallel(1).share(16, 32)
