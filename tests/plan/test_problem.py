"""What is asked: a run or a model and a system as configurations, and questions that are none."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.planning import constants, problem

from nlp_bench.config.catalog import load_model, load_system
from nlp_bench.config.model import Layout
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.errors import UsageError
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.problem import Fixed, configuration_of, make_problem, sizes_of
from nlp_bench.plan.ranking import configuration
from nlp_bench.plan.search import broken_rules


@pytest.mark.parametrize(("model", "nodes", "batch"), [("175", 96, 96), ("13", 8, 1024)])
def test_the_batch_is_the_benchmarks(model: str, nodes: int, batch: int) -> None:
    found = problem(model)
    assert (found.nodes, found.global_batch_size) == (nodes, batch)
    assert problem(model, nodes=2 * nodes).global_batch_size == batch, "more nodes do not change the benchmark"


@pytest.mark.parametrize("model", ["175", "13", "llama_8b", "gpt_20b"])
def test_the_published_configuration_is_what_submit_runs(model: str) -> None:
    found = problem(model)
    run = resolve(Request(model=model, system="juwels-booster", launcher="slurm"), ask_scheduler=False)
    published = configuration(found, found.published)
    assert sizes_of(published, 0) == sizes_of(
        configuration_of(run, constants()), 0
    )  # tests/layout/test_rules.py holds the latter to the run
    assert broken_rules(published) == []


def test_the_rules_freeze_recompute_of_the_benchmark_only() -> None:
    assert problem("175").recompute == ("selective",)
    assert problem("175", fixed=Fixed(recompute="any")).recompute == ("none", "selective", "full")
    assert problem("175", fixed=Fixed(recompute="full")).recompute == ("full",)
    assert problem("gpt_20b").recompute == ("none", "full")


def test_the_option_takes_the_words_that_tables_take() -> None:
    assert problem(system="dgx-h100", precision="float8").precision == "fp8"
    assert problem(system="dgx-h100", precision="FP8 rowwise").precision == "fp8-rowwise"
    with pytest.raises(
        UsageError,
        match=r"no fp4 peak for NVIDIA H100 .*; plan --precision bf16, or bf16 in the column precision of the points$",
    ):
        problem(system="dgx-h100", precision="nvfp4")


def test_dropout_is_the_models() -> None:
    assert bool(problem("175").network.dropout)
    assert not bool(problem("llama_8b").network.dropout)


def test_a_layout_of_the_system_counts_as_it_does_for_a_run() -> None:
    system = load_system("juwels-booster")
    own = replace(system, layout={"13": Layout(nodes=4, gpus_per_node=2, tensor_parallel=2, pipeline_parallel=1)})
    asked = make_problem(load_model("13"), own, constants(), tokens=1)
    assert (asked.nodes, asked.gpus_per_node, asked.num_gpus) == (4, 2, 8)
    assert (asked.published["tp"], asked.published["pp"]) == (2, 1)
    more = make_problem(load_model("13"), own, constants(), tokens=1, gpus_per_node=4)
    assert more.num_gpus == 16


def test_without_the_distributed_optimizer_nothing_is_shared() -> None:
    request = Request(model="175", system="juwels-booster", use_distributed_optimizer=False)
    spread = configuration_of(resolve(request, ask_scheduler=False), read_constants()).spread
    assert np.array_equal(spread.shard_group, [1])
    assert np.array_equal(spread.sharding, [0])


def test_trainings_on_one_gpu_take_as_long_as_this_project_measured() -> None:
    """The host bounds GPT 126M, which its constant is from; of GPT 1.3B, and of one GPU, nothing was fitted."""
    measured = json.loads(
        (Path(__file__).parents[2] / "reports/reference/gpu/2026-11-27-nvidia-h200-truth.json").read_text()
    )["parts"]
    for model, name in (("gpt_126m", "GPT 126M, micro batch 4"), ("gpt_1_3b", "GPT 1.3B, micro batch 4")):
        run = resolve(
            Request(
                model=model, system="dgx-h100", launcher="local", nodes=1, gpus_per_node=1, tensor=1, pipeline=1,
                micro_batch_size=4, gradient_accumulation_steps=4,
            ), ask_scheduler=False,
        )  # fmt: skip
        constants = read_constants()
        found = forecast(configuration_of(run, constants), constants).seconds.total.item()
        assert 1.0 < found / measured[name]["measured"]["iteration_s"] < 1.25, name
