"""The one table of rules: each shows its arithmetic, and numbers, arrays, run.json, trainer and planner mean the same by it."""

import random
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.errors import UsageError
from nlp_bench.launch.arguments import training_arguments
from nlp_bench.layout.rules import RECOMPUTE, RULES, Sizes, judge, refuse
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.problem import configuration_of
from nlp_bench.plan.search import broken_rules
from nlp_bench.train.arguments import parse
from nlp_bench.train.settings.rules import sizes_of

BENCHMARK: dict[str, Any] = {
    "num_gpus": 384, "tensor": 8, "pipeline": 8, "global_batch_size": 96, "sequence_parallel": True, "sharding": 1, "num_layers": 96,
    "num_attention_heads": 96, "num_query_groups": 96, "ffn_hidden_size": 49152, "sequence_length": 2048,
}  # fmt: skip


def test_the_benchmark_is_legal() -> None:
    sizes = Sizes(**BENCHMARK)
    refuse(sizes)
    assert (sizes.data, sizes.num_microbatches, sizes.stage_layers()) == (6, 16, [12] * 8)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"tensor": 5}, "GPUs", "parallel: nodes*gpus_per_node = 384 is not a multiple of tp*pp = 40 (remainder 24)"),
        ({"context": 5}, "GPUs", "nodes*gpus_per_node = 384 is not a multiple of tp*pp*cp = 320 (remainder 64)"),
        ({"tensor": 64, "pipeline": 6}, "attention heads", "parallel.tensor: num_attention_heads = 96 is not a multiple of tp = 64"),
        ({"num_query_groups": 4}, "query groups", "parallel.tensor: num_query_groups = 4 is not a multiple of tp = 8 (remainder 4)"),
        ({"ffn_hidden_size": 100}, "feed-forward width", "ffn_hidden_size = 100 is not a multiple of tp = 8 (remainder 4)"),
        ({"tensor": 6}, "sequence", "sequence_length = 2048 is not a multiple of tp = 6 (remainder 2)"),
        (
            {"context": 3, "tensor": 4, "sequence_length": 2052}, "sequence parallel", None,
        ),
        ({"context": 4, "num_gpus": 256, "sequence_length": 2056}, "sequence parallel", "tp*cp (sequence parallelism) = 32 (remainder 8)"),
        ({"decoder_sequence_length": 100}, "sequence parallel", "decoder_sequence_length = 100 is not a multiple of tp = 8"),
        ({"tensor": 1, "context": 3}, "context parallel", "parallel.context: sequence_length = 2048 is not a multiple of 2*cp = 6 (remainder 2)"),
        ({"pipeline": 128, "tensor": 1}, "pipeline stages", "parallel.pipeline: num_layers = 96 is not a multiple of pp = 128 (remainder 96)"),
        ({"first_layers": 11, "last_layers": 12}, "pipeline stages", "11+12 of 96 layers, and the other 73 cannot be shared by 6 stages"),
        ({"first_layers": 96}, "pipeline stages", "hold 96+0 of 96 layers and leave none for the other 7"),
        ({"pipeline": 1, "first_layers": 4}, "pipeline stages", "hold 4+0 of 96 layers, which needs pp above 1"),
        ({"pipeline": 2, "first_layers": 4, "last_layers": 5}, "pipeline stages", "hold 4+5 of 96 layers; two stages must hold all"),
        ({"layers_per_virtual": 5, "virtual": 2}, "layers of a virtual stage", "is not a multiple of pp*num_layers_per_virtual_pipeline_stage = 8*5 = 40"),
        ({"layers_per_virtual": 1, "first_layers": 5, "last_layers": 1}, "layers of a virtual stage", "does not go with uneven stages"),
        ({"pipeline": 1, "virtual": 2}, "interleaving", "tuning.num_virtual_stages_per_pipeline_rank: vpp = 2 needs pp above 1"),
        ({"virtual": 5}, "virtual stages", "num_layers = 96 is not a multiple of pp*vpp = 8*5 = 40 (remainder 16)"),
        ({"virtual": 2, "first_layers": 9, "last_layers": 9}, "virtual stages", "stages of 9, 13, 9 layers are not all multiples of vpp = 2"),
        ({"recompute_num_layers": 5}, "recomputed layers", "recompute_num_layers: 5 does not divide the 12 layers of a (virtual) stage; give a number"),
        ({"recompute_num_layers": 4, "first_layers": 6, "last_layers": 6}, "recomputed layers", "4 does not divide the 6 layers of a (virtual)"),
        ({"recompute_num_layers": 7, "recompute_method": 1, "virtual": 2}, "recomputed layers", "7 is more than the 6 layers of a (virtual) stage"),
        ({"recompute_num_layers": 5, "recompute_method": 1}, None, None),
        ({"recompute_num_layers": 5, "decoder_sequence_length": 2048}, None, None),  # T5's stacks
        ({"micro_batch_size": 5}, "global batch", "batch: global_batch_size = 96 is not a multiple of dp*micro_batch_size = 6*5 = 30 (remainder 6)"),
        ({"virtual": 2, "microbatch_group": 4}, "micro-batch group size", "tuning.microbatch_group_size_per_virtual_pipeline_stage: 4 is less than pp = 8"),
        ({"virtual": 2, "micro_batch_size": 4}, "micro-batch groups", "number of micro-batches = 4 is not a multiple of pp = 8"),
        ({"virtual": 2, "microbatch_group": 17}, "micro-batch groups", "takes groups of 17 micro-batches, and there are 16"),
        ({"virtual": 2, "microbatch_group": 9}, "micro-batch groups", "16 micro-batches in groups of 9 leave a last one of 7, less than pp = 8"),
        ({"virtual": 2, "microbatch_group": 8}, None, None),
        ({"virtual": 2, "microbatch_group": 16, "global_batch_size": 144}, None, None),  # the last group has pp of them
        ({"sharding": 3}, "sharding", "shards the optimizer state only"),
        ({"overlap_param_gather": True}, "overlap", "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce"),
        ({"overlap_param_gather": True, "overlap_grad_reduce": True}, None, None),
    ],
)  # fmt: skip
def test_a_broken_rule_shows_its_arithmetic(change: dict[str, Any], code: str | None, said: str | None) -> None:
    sizes = Sizes(**BENCHMARK | change)
    broken = [name for name, flag in judge(sizes).items() if flag]
    if said is None:
        assert code not in broken if code else not broken
        return
    assert code in broken
    with pytest.raises(UsageError) as error:
        refuse(sizes, tuple(rule for rule in RULES if rule.code == code))
    assert said in str(error.value)


def draw(chance: random.Random) -> dict[str, Any]:
    """Draw sizes near the border: most are small divisors, some are not."""
    uneven = chance.random() < 0.3
    return {
        "num_gpus": chance.choice([1, 2, 3, 4, 6, 8, 12, 16]),
        "tensor": chance.choice([1, 1, 2, 2, 3, 4, 8]),
        "pipeline": chance.choice([1, 1, 2, 2, 3, 4]),
        "context": chance.choice([1, 1, 1, 2, 3]),
        "virtual": chance.choice([1, 1, 2, 3]),
        "first_layers": chance.choice([0, 1, 2, 4]) if uneven else 0,
        "last_layers": chance.choice([0, 1, 2, 4]) if uneven else 0,
        "micro_batch_size": chance.choice([1, 1, 2, 3]),
        "global_batch_size": chance.choice([1, 8, 12, 16, 24, 48]),
        "microbatch_group": chance.choice([0, 0, 2, 3, 5]),
        "sequence_parallel": chance.random() < 0.7,
        "sharding": chance.choice([0, 1, 1, 1, 2]),
        "overlap_grad_reduce": chance.random() < 0.5,
        "overlap_param_gather": chance.random() < 0.3,
        "num_layers": chance.choice([4, 6, 8, 12, 24]),
        "num_attention_heads": chance.choice([4, 6, 8]),
        "num_query_groups": chance.choice([2, 4, 6, 8]),
        "ffn_hidden_size": chance.choice([16, 24, 30]),
        "sequence_length": chance.choice([48, 64, 96, 256]),
        "recompute_method": chance.choice([0, 0, 1]),
        "recompute_num_layers": chance.choice([0, 0, 1, 2, 3]),
    }


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_arrays_are_judged_as_each_of_their_numbers(dtype: Any) -> None:
    chance = random.Random(6)  # noqa: S311  # the same cases each time
    cases = [draw(chance) for _ in range(3000)]
    arrays = {
        name: np.asarray([case[name] for case in cases], dtype=np.bool_ if isinstance(value, bool) else dtype)
        for name, value in cases[0].items()
    }
    together, alone = judge(Sizes(**arrays)), [judge(Sizes(**case)) for case in cases]
    for code, flags in together.items():
        assert np.broadcast_to(flags, len(cases)).tolist() == [bool(one[code]) for one in alone], code
    legal = [case for case, flags in zip(cases, alone, strict=True) if not any(flags.values())]
    assert len(legal) > 100
    for case in legal:
        sizes = Sizes(**case)
        assert sum(sizes.stage_layers()) * sizes.virtual == sizes.num_layers
        assert sizes.num_microbatches * sizes.per_pass == sizes.global_batch_size
    met = {code for flags in alone for code, flag in flags.items() if flag}
    assert met == {rule.code for rule in RULES} - {"layers of a virtual stage"}, "every rule was met"


@pytest.mark.parametrize(
    "choices",
    [
        {"model": "175"},
        {"model": "13", "tensor": 1, "use_distributed_optimizer": False},
        {"model": "llama_8b", "tensor": 2, "context": 2, "sequence_parallel": False, "overlap_grad_reduce": True},
        {"model": "175", "num_virtual_stages_per_pipeline_rank": 2, "overlap_grad_reduce": True, "overlap_param_gather": True},
        {"model": "13", "recompute": "full", "recompute_method": "block", "recompute_num_layers": 3},
        {"model": "175", "num_layers_per_virtual_pipeline_stage": 3},
        {"model": "175", "decoder_first_pipeline_num_layers": 11, "decoder_last_pipeline_num_layers": 13},
        {"model": "t5_3b", "nodes": 4},
        {"model": "bert_large"},
    ],
)  # fmt: skip
def test_a_run_its_trainer_and_the_planner_have_the_same_sizes(choices: dict[str, Any]) -> None:
    run = resolve(Request(system="juwels-booster", data_path="mock", **choices), ask_scheduler=False)
    settings = parse(training_arguments(run))
    assert sizes_of(settings, world_size=run.parallel.num_gpus) == run.sizes
    if run.model.family != "gpt":
        return
    c = configuration_of(run, read_constants())
    assert broken_rules(c) == []
    planned = vars(c.network) | vars(c.spread)
    assert RECOMPUTE[planned["recompute"].item()] == run.training.recompute
    names = {field.name for field in fields(Sizes)}
    same = names & set(planned)
    assert names - same == {"layers_per_virtual", "microbatch_group", "decoder_sequence_length"}
    assert {name: planned[name].item() for name in same} == {name: getattr(run.sizes, name) for name in same}
