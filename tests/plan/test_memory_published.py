"""Formulas of other frameworks' memory, at points that a person works out by hand or a paper prints."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.framework_runs import constants, run

from nlp_bench.plan.memory.published import (
    COUNTS,
    FAMILIES,
    activation_bytes,
    buffer_bytes,
    families,
    family_of,
    full_layer_bytes,
    in_flight,
    logit_bytes,
    published_memory,
    published_stages,
)

K = constants()
GIB = 2.0**30
GPT_22B = {
    "num_layers": 48, "hidden_size": 6144, "ffn_hidden_size": 24576, "num_attention_heads": 64,
    "num_query_groups": 64, "head_width": 96, "micro_batch_size": 4, "global_batch_size": 4, "tensor": 8,
    "num_gpus": 8, "sequence_parallel": True, "recompute": "selective", "precision": "fp16",
}  # fmt: skip
GPT_1T = {
    **GPT_22B, "num_layers": 128, "hidden_size": 25600, "ffn_hidden_size": 102400, "num_attention_heads": 160,
    "num_query_groups": 160, "head_width": 160, "micro_batch_size": 1, "global_batch_size": 512, "pipeline": 64,
    "num_gpus": 512,
}  # fmt: skip
LLAMA = {
    "gated": True, "untied_embeddings": True, "linear_biases": False, "norm_biases": False, "ffn_hidden_size": 2816,
    "num_query_groups": 4,
}  # fmt: skip


@pytest.mark.parametrize(("model", "activations_gib"), [(GPT_22B, 9.5625), (GPT_1T, 26.5625)], ids=["22B", "1T"])
def test_korthikanti_figure_1_activations(model: dict[str, Any], activations_gib: float) -> None:
    c = run(**model)
    stage = published_stages(c)[0]
    layers = stage.layers * in_flight(c, stage) * full_layer_bytes(c, K)
    assert layers[0] / GIB == pytest.approx(activations_gib, rel=1e-4)


@pytest.mark.parametrize(("model", "state_gib"), [(GPT_22B, 45.5625), (GPT_1T, 32.958984375)], ids=["22B", "1T"])
def test_korthikanti_figure_1_state_is_18_bytes_per_parameter_of_the_layers(
    model: dict[str, Any], state_gib: float
) -> None:
    parts = published_memory(run(**model, vocab_size=0), K).parts
    state = parts["weights"] + parts["gradients"] + parts["optimizer"]
    assert state[0] / GIB == pytest.approx(state_gib, rel=1e-3)


def test_without_sequence_parallel_ten_of_34_parts_are_not_divided() -> None:
    whole, split = (full_layer_bytes(run(tensor=t, recompute="selective"), K)[0] for t in (1, 4))
    sbh = 2048 * 1024
    assert whole == 34 * sbh
    assert split == sbh * (10 + 24 / 4)


def test_grouped_queries_and_gates() -> None:
    kept = full_layer_bytes(run(**LLAMA), K)[0]
    assert kept == 2048 * (8 * 1024 + 4 * 1024 + 4 * 256 + 6 * 2816)


def test_full_recomputation_keeps_inputs_of_the_layers_in_flight() -> None:
    c = run("Megatron-LM", pipeline=4, num_gpus=4, recompute="full", vocab_size=0)
    first = published_stages(c)[0]
    one_layer = full_layer_bytes(c, K)[0]
    assert activation_bytes(c, K, first)[0] == pytest.approx(2 * 4 * 2 * 2048 * 1024 + one_layer)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [(8, (2, 2, 2)), (10, (2, 3, 2)), (9, (3, 3, 3))],
    ids=["even", "a slot for each table", "the fullest"],
)
def test_layers_that_do_not_divide(layers: Any, expected: tuple[int, ...]) -> None:
    stages = published_stages(run(num_layers=layers, pipeline=4, num_gpus=4))
    assert tuple(float(stage.layers[0]) for stage in stages) == expected


def test_layers_that_are_given_are_taken() -> None:
    stages = published_stages(run(num_layers=10, pipeline=4, num_gpus=4, first_layers=4, last_layers=2))
    assert tuple(float(stage.layers[0]) for stage in stages) == (4, 2, 2)


def test_interleaving_keeps_more_in_flight() -> None:
    c = run(pipeline=[4, 4, 4], virtual=[1, 2, 4], num_gpus=4)
    first = published_stages(c)[0]
    assert in_flight(c, first).tolist() == [4, pytest.approx(4 * (1 + 3 / 8)), pytest.approx(4 * (1 + 3 / 16))]


def test_few_micro_batches_bound_what_is_in_flight() -> None:
    c = run(pipeline=8, num_gpus=8, global_batch_size=3, num_layers=8)
    assert in_flight(c, published_stages(c)[0])[0] == 3


@pytest.mark.parametrize(
    ("framework", "precision", "sharding", "bytes_per_parameter"),
    [
        ("Megatron-LM", "bf16", "none", 18),
        ("Megatron-LM", "bf16", "optimizer", 6 + 12 / 8),
        ("Megatron-DeepSpeed", "fp16", "optimizer", 4 + 16 / 8),
        ("Megatron-DeepSpeed", "fp16", "gradients", 2 + 2 / 8 + 16 / 8),
        ("Megatron-DeepSpeed", "bf16", "optimizer", 2 + K.memory.deepspeed_bf16_gradient_bytes + 12 / 8),
        ("InternEvo", "bf16", "optimizer", 4 + (K.memory.internevo_state_bytes - 4) / 8),
        ("InternEvo", "bf16", "parameters", K.memory.internevo_state_bytes / 8),
        ("torchtitan", "bf16", "parameters", 16 / 8),
        ("torchtitan", "bf16", "gradients", 16 / 8),
        ("torchtitan", "bf16", "none", 16),
        ("NeMo", "bf16", "parameters", 16 / 8),
    ],
)
def test_bytes_per_parameter(framework: str, precision: str, sharding: str, bytes_per_parameter: float) -> None:
    c = run(framework, precision, sharding=sharding, shard_group=8, data=8, num_gpus=8, vocab_size=0)
    parts = published_memory(c, K).parts
    parameters = 8 * (12 * 1024**2 + 13 * 1024)
    state = parts["weights"] + parts["gradients"] + parts["optimizer"]
    assert state[0] == pytest.approx(bytes_per_parameter * parameters)


def test_the_loss_is_on_the_last_stage_only() -> None:
    c = run("torchtitan", pipeline=4, num_gpus=4, sharding="parameters")
    first, second, last = (activation_bytes(c, K, stage)[0] for stage in published_stages(c))
    assert logit_bytes(c, K)[0] == 14 * 2048 * 51200
    assert first > second
    assert last == pytest.approx(first / 4 + 14 * 2048 * 51200)


def test_the_fullest_stage_is_found_and_its_parts_add_up() -> None:
    c = run(pipeline=[2, 2], num_gpus=2, vocab_size=[51200, 1_000_000], global_batch_size=2)
    found = published_memory(c, K)
    assert np.allclose(sum(found.parts.values()), found.total)
    assert found.total[1] > found.total[0]
    one_by_one = [published_memory(c.take(np.array([i])), K).total[0] for i in range(2)]
    assert found.total.tolist() == one_by_one


def test_numbers_that_hold_for_all_may_have_no_dimension() -> None:
    listed = run(tensor=[1, 2, 4])
    single = run(tensor=4)
    assert published_memory(listed, K).total[2] == published_memory(single, K).total[0]


@pytest.mark.parametrize(
    ("name", "smaller", "larger"),
    [
        ("micro_batch_size", 1, 4),
        ("sequence_length", 2048, 8192),
        ("num_layers", 8, 16),
        ("hidden_size", 1024, 2048),
        ("vocab_size", 51200, 250880),
        ("pipeline", 8, 2),
        ("tensor", 8, 1),
        ("context", 4, 1),
        ("shard_group", 64, 1),
        ("recompute", "full", "none"),
    ],
)
@pytest.mark.parametrize(
    ("framework", "sharding"),
    [
        ("Megatron-LM", "optimizer"),
        ("Megatron-DeepSpeed", "optimizer"),
        ("InternEvo", "optimizer"),
        ("torchtitan", "parameters"),
    ],
)
def test_more_work_or_fewer_gpus_need_more_memory(
    framework: str, sharding: str, name: str, smaller: Any, larger: Any
) -> None:
    changes = {"shard_group": 8, "data": 8, "num_layers": 16, name: [smaller, larger]}
    total = published_memory(run(framework, sharding=sharding, num_gpus=64, **changes), K).total
    assert total[0] < total[1]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Megatron-LM 0.14", "megatron"),
        ("Megatron-Bridge", "megatron"),
        ("NeMo-Megatron", "megatron"),
        ("Megatron-DeepSpeed", "deepspeed"),
        ("GPT-NeoX", "deepspeed"),
        ("InternEvo", "internevo"),
        ("torchtitan", "fsdp"),
        ("llm-foundry/Composer", "fsdp"),
        ("fms-fsdp", "fsdp"),
        ("MaxText", "fsdp"),
        ("unheard of", "megatron"),
    ],
)
def test_families(name: str, family: str) -> None:
    assert family_of(name) == family


def test_full_sharding_is_the_fsdp_family_whoever_does_it_but_internevo() -> None:
    names = [FAMILIES[families(run(name, sharding="parameters"), K)[0]] for name in ("NeMo", "InternEvo", "torchtitan")]
    assert names == ["fsdp", "internevo", "fsdp"]


def test_what_a_published_figure_leaves_out() -> None:
    left_out = {}
    for framework in ("Megatron-LM", "torchtitan", "Megatron-DeepSpeed"):
        found = published_memory(run(framework), K)
        left_out[COUNTS[family_of(framework)]] = float((found.total - found.published)[0])
    assert left_out["device"] == 0 < left_out["reserved"] < left_out["allocated"]
    assert left_out["reserved"] == pytest.approx(K.memory.context_bytes)  # one GPU: no communicators


def test_attention_that_is_not_fused_keeps_its_scores() -> None:
    scores = 5 * 16 * 2048 * 2048
    fused, old = full_layer_bytes(run("Megatron-LM"), K)[0], "Megatron-LM before flash attention"
    assert full_layer_bytes(run(old), K)[0] == fused + scores
    assert full_layer_bytes(run(old, recompute="selective"), K)[0] == fused
    assert full_layer_bytes(run("Megatron-DeepSpeed", recompute="full"), K)[0] == fused + scores


def test_8_bit_products_keep_smaller_inputs_under_megatron_only() -> None:
    saved = {
        name: (full_layer_bytes(run(name, "bf16", **LLAMA), K) - full_layer_bytes(run(name, "fp8", **LLAMA), K))[0]
        for name in ("NeMo", "torchtitan")
    }
    assert saved == {"NeMo": 2048 * (2 * 1024 + 1024 + 2816), "torchtitan": 0}


def test_a_fused_loss_needs_less_than_half() -> None:
    names = ("NeMo", "Megatron-DeepSpeed", "torchtitan", "llm-foundry/Composer")
    k = replace(K, frameworks=(*K.frameworks, names[-1]))
    each = [logit_bytes(replace(run(), framework=np.array([k.frameworks.index(name)])), k)[0] for name in names]
    assert [value / (2048 * 51200) for value in each] == [6, 10, 14, 6]


def test_zero_buckets_are_there_only_under_zero() -> None:
    plain, sharded = (
        published_memory(run("Megatron-DeepSpeed", sharding=word), K).parts["buffers"][0]
        for word in ("none", "optimizer")
    )
    assert sharded - plain == K.memory.deepspeed_buffer_bytes


def test_full_sharding_in_a_pipeline_keeps_gradients_of_the_whole_stage_in_fp32() -> None:
    alone, shared = (
        run("torchtitan", pipeline=2, num_gpus=16, data=8, sharding="parameters", shard_group=ranks, vocab_size=0)
        for ranks in (1, 8)
    )
    more = buffer_bytes(shared, K, published_stages(shared)[0]) - buffer_bytes(alone, K, published_stages(alone)[0])
    assert more[0] == pytest.approx(4 * 4 * (12 * 1024**2 + 13 * 1024))  # four layers of the stage
