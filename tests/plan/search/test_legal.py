"""Legal means legal: the masks say of every configuration what `check` and the trainer say of it."""

import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nlp_bench.config.catalog import load_model, load_system
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.errors import UsageError
from nlp_bench.launch.arguments import check_arguments
from nlp_bench.plan.configurations import SHARDING
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.problem import Problem, make_problem
from nlp_bench.plan.ranking import configuration
from nlp_bench.plan.search.legal import RULES, broken_rules, judge

SYSTEM = "juwels-booster"
CASES = 240
REMAINDER = re.compile(r"(\d+) \(remainder (\d+)\)")


def draw(chance: random.Random) -> dict[str, Any]:
    """Draw a configuration near the border: most sizes are small divisors, some are not."""
    uneven = chance.random() < 0.3
    overlap = chance.choice([(False, False), (True, False), (True, True), (False, True)])
    return {
        "model": chance.choice(["tiny", "tiny_llama", "13"]),
        "nodes": chance.choice([1, 2, 3, 4, 6]),
        "gpus_per_node": chance.choice([1, 2, 4]),
        "nlayers": chance.choice([4, 6, 8, 12, 24]),
        "sequence_length": chance.choice([48, 64, 96, 256]),
        "tp": chance.choice([1, 1, 2, 2, 3, 4, 8]),
        "pp": chance.choice([1, 1, 2, 2, 3, 4]),
        "context_parallel_size": chance.choice([1, 1, 1, 2, 3]),
        "micro_batch_size": chance.choice([1, 1, 2, 3]),
        "global_batch_size": chance.choice([8, 12, 16, 24, 48]),
        "num_virtual_stages_per_pipeline_rank": chance.choice([1, 1, 2, 3]),
        "decoder_first_pipeline_num_layers": chance.choice([None, 1, 2, 4]) if uneven else None,
        "decoder_last_pipeline_num_layers": chance.choice([None, 1, 2, 4]) if uneven else None,
        "recompute_granularity": chance.choice(["none", "selective", "full"]),
        "sequence_parallel": chance.random() < 0.7,
        "use_distributed_optimizer": chance.random() < 0.7,
        "overlap_grad_reduce": overlap[0],
        "overlap_param_gather": overlap[1],
    }


def trainer_says(case: dict[str, Any]) -> str | None:
    """Return the refusal of the real path, None where a run is accepted."""
    case = {**case, "num_virtual_stages_per_pipeline_rank": case["num_virtual_stages_per_pipeline_rank"]}
    try:
        check_arguments(resolve(Request(**case, system=SYSTEM, launcher="slurm"), ask_scheduler=False))
    except UsageError as error:
        return str(error)
    return None


def problem_of(case: dict[str, Any]) -> Problem:
    model = load_model(case["model"])
    shape = replace(model.architecture, num_layers=case["nlayers"], sequence_length=case["sequence_length"])
    return make_problem(
        replace(model, architecture=shape, parameters_billion=_billion(model, shape)),
        load_system(SYSTEM),
        read_constants(),
        tokens=1000,
        nodes=case["nodes"],
        gpus_per_node=case["gpus_per_node"],
        global_batch_size=case["global_batch_size"],
    )


def _billion(model: Any, shape: Any) -> float:
    from nlp_bench.config.parameters import num_parameters

    return num_parameters(model.family, shape) / 1e9


def columns_of(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "tp": case["tp"],
        "pp": case["pp"],
        "vpp": case["num_virtual_stages_per_pipeline_rank"],
        "cp": case["context_parallel_size"],
        "micro_batch_size": case["micro_batch_size"],
        "first_layers": case["decoder_first_pipeline_num_layers"] or 0,
        "last_layers": case["decoder_last_pipeline_num_layers"] or 0,
        "recompute": case["recompute_granularity"],
        "sequence_parallel": case["sequence_parallel"] and case["tp"] > 1,
        "distributed_optimizer": case["use_distributed_optimizer"],
        "overlap_grad_reduce": case["overlap_grad_reduce"],
        "overlap_param_gather": case["overlap_param_gather"],
    }


def test_the_masks_say_what_the_trainer_says() -> None:
    """Half of the cases are the last legal one with one other choice, so that often a single rule decides."""
    chance, legal, single, broken = random.Random(6), [draw(random.Random(6))], set(), set()  # noqa: S311  # the same cases each time
    for number in range(CASES):
        case = draw(chance)
        if number % 2:
            choice = chance.choice(sorted(case))
            case = {**legal[-1], choice: case[choice]}
        refused = trainer_says(case)
        found = broken_rules(configuration(problem_of(case), columns_of(case)))
        assert bool(found) == (refused is not None), (case, found, refused)
        legal += [case] if refused is None else []
        broken |= {name for name, _ in found}
        if refused and len(found) == 1:
            ((name, text),) = found
            single.add(name)
            # what divides and what remains, as the trainer says it
            ours, theirs = REMAINDER.findall(text), REMAINDER.findall(refused)
            assert not (ours and theirs) or ours == theirs, (text, refused)
    assert len(legal) >= 60
    assert broken == {rule.name for rule in RULES} - {"sharding"}, "every rule was met"
    assert len(single) >= 7, single


BASE = columns_of({
    "tp": 8, "pp": 8, "context_parallel_size": 1, "micro_batch_size": 1, "num_virtual_stages_per_pipeline_rank": 1,
    "decoder_first_pipeline_num_layers": None, "decoder_last_pipeline_num_layers": None, "recompute_granularity": "selective",
    "sequence_parallel": True, "use_distributed_optimizer": True, "overlap_grad_reduce": False, "overlap_param_gather": False,
})  # fmt: skip


@pytest.mark.parametrize(
    ("change", "name", "text"),
    [
        ({"tp": 5}, "GPUs", "number of GPUs = 384 is not a multiple of tp*pp*cp = 5*8*1 = 40 (remainder 24)"),
        ({"tp": 64, "pp": 6}, "attention heads", "num_attention_heads = 96 is not a multiple of tp = 64 (remainder 32)"),
        ({"tp": 6}, "sequence", "sequence_length = 2048 is not a multiple of tp = 6 (remainder 2)"),
        ({"tp": 1, "cp": 3}, "context parallel", "sequence_length = 2048 is not a multiple of 2*cp = 6 (remainder 2)"),
        ({"pp": 128, "tp": 1}, "pipeline stages", "num_layers = 96 is not a multiple of pp = 128 (remainder 96)"),
        ({"pp": 1, "vpp": 2}, "interleaving", "vpp = 2 needs pp above 1"),
        ({"vpp": 5}, "virtual stages", "num_layers = 96 is not a multiple of pp*vpp = 8*5 = 40 (remainder 16)"),
        ({"first_layers": 11, "last_layers": 12}, "pipeline stages", "11+12 of 96 layers, and the other 73 cannot be shared by 6 stages"),
        ({"vpp": 2, "first_layers": 9, "last_layers": 9}, "virtual stages", "stages of 9, 13, 9 layers are not all multiples of vpp = 2"),
        ({"micro_batch_size": 5}, "global batch", "global_batch_size = 96 is not a multiple of dp*micro_batch_size = 6*5 = 30 (remainder 6)"),
        ({"vpp": 2, "micro_batch_size": 4}, "micro-batch groups", "number of micro-batches = 4 is not a multiple of pp = 8"),
        ({"overlap_param_gather": True}, "overlap", "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce"),
    ],
)  # fmt: skip
def test_a_broken_rule_shows_its_arithmetic(change: dict[str, Any], name: str, text: str) -> None:
    problem = make_problem(load_model("175"), load_system(SYSTEM), read_constants(), tokens=1000)
    found = dict(broken_rules(configuration(problem, {**BASE, **change})))
    assert text in found[name]


def test_only_the_optimizer_is_sharded() -> None:
    problem = make_problem(load_model("175"), load_system(SYSTEM), read_constants(), tokens=1000)
    one = configuration(problem, BASE)
    assert broken_rules(one) == []
    sharded = replace(one, spread=replace(one.spread, sharding=np.asarray([SHARDING.index("parameters")])))
    assert [name for name, _ in broken_rules(sharded)] == ["sharding"]


def test_each_illegal_one_is_counted_once_under_its_first_rule() -> None:
    problem = make_problem(load_model("175"), load_system(SYSTEM), read_constants(), tokens=1000)
    columns = {**BASE, "recompute": 0, "tp": np.asarray([8, 5, 6, 64, 8]), "vpp": np.asarray([1, 1, 1, 5, 5])}
    verdicts = judge(problem.configurations(columns))
    assert verdicts.legal.tolist() == [True, False, False, False, False]
    assert verdicts.counts == {"GPUs": 2, "sequence": 1, "virtual stages": 1}
