"""A resolved run as the planner sees it: the trainer's own arithmetic and the planner's agree."""

import numpy as np
import pytest

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.errors import UsageError
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.problem import configuration_of, sizes_of


def run_of(**choices: object) -> Run:
    given = {"model": "175", "system": "juwels-booster"} | choices
    return resolve(Request(**given), ask_scheduler=False)  # type: ignore[arg-type]


def test_every_switch_arrives() -> None:
    run = run_of(
        tp=4, pp=16, num_virtual_stages_per_pipeline_rank=2, micro_batch_size=2, global_batch_size=96,
        sequence_parallel=False, use_distributed_optimizer=True, overlap_grad_reduce=True, overlap_param_gather=True,
        recompute_granularity="full",
    )  # fmt: skip
    sizes = sizes_of(configuration_of(run, read_constants()), 0)
    assert (sizes.num_gpus, sizes.tp, sizes.pp, sizes.vpp, sizes.cp, sizes.dp) == (384, 4, 16, 2, 1, 6)
    assert (sizes.micro_batch_size, sizes.gas, sizes.global_batch_size) == (2, 8, 96)
    assert (sizes.recompute, sizes.sequence_parallel, sizes.distributed_optimizer) == ("full", False, True)
    assert (sizes.overlap_grad_reduce, sizes.overlap_param_gather) == (True, True)


@pytest.mark.parametrize(
    ("choices", "stages"),
    [
        ({}, 1),
        ({"num_layers_per_virtual_pipeline_stage": 3}, 4),
        ({"num_virtual_stages_per_pipeline_rank": 6}, 6),
    ],
)
def test_virtual_stages_by_either_name(choices: dict[str, object], stages: int) -> None:
    assert run_of(**choices).sizes.virtual == stages


def test_uneven_stages() -> None:
    run = run_of(decoder_first_pipeline_num_layers=11, decoder_last_pipeline_num_layers=13)
    sizes = sizes_of(configuration_of(run, read_constants()), 0)
    assert (sizes.first_layers, sizes.last_layers) == (11, 13)


def test_without_the_distributed_optimizer_nothing_is_shared() -> None:
    spread = configuration_of(run_of(use_distributed_optimizer=False), read_constants()).spread
    assert np.array_equal(spread.shard_group, [1])
    assert np.array_equal(spread.sharding, [0])


@pytest.mark.parametrize("model", ["t5_3b", "bert_large"])
def test_other_families_are_refused(model: str) -> None:
    with pytest.raises(UsageError, match=r"model\.family: .* is not planned"):
        configuration_of(run_of(model=model), read_constants())
