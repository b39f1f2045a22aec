"""Other frameworks' memory at points that a paper prints; tests/golden has that of all published points."""

from typing import Any

import pytest
from support.framework_runs import constants, run

from nlp_bench.plan.memory.published import (
    COUNTS,
    buffer_bytes,
    family_of,
    full_layer_bytes,
    in_flight,
    published_memory,
    published_stages,
)

K = constants()
GIB = 2.0**30
STATE = ("weights", "gradients", "optimizer")
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


@pytest.mark.parametrize(
    ("model", "activations_gib", "state_gib"),
    [(GPT_22B, 9.5625, 45.5625), (GPT_1T, 26.5625, 32.958984375)],
    ids=["22B", "1T"],
)
def test_korthikanti_figure_1(model: dict[str, Any], activations_gib: float, state_gib: float) -> None:
    """The state is 18 bytes per parameter of the layers."""
    c = run(**model, vocab_size=0)
    stage, parts = published_stages(c)[0], published_memory(c, K).parts
    layers = stage.layers * in_flight(c, stage) * full_layer_bytes(c, K)
    assert layers[0] / GIB == pytest.approx(activations_gib, rel=1e-4)
    assert sum(parts[name][0] for name in STATE) / GIB == pytest.approx(state_gib, rel=1e-3)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [(8, (2, 2, 2)), (10, (2, 3, 2)), (9, (3, 3, 3))],
    ids=["even", "a slot for each table", "the fullest"],
)
def test_layers_that_do_not_divide(layers: int, expected: tuple[int, ...]) -> None:
    stages = published_stages(run(num_layers=layers, pipeline=4, num_gpus=4))
    assert tuple(float(stage.layers[0]) for stage in stages) == expected


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
        ("Megatron-LM", "fp32", "none", 16),
        ("Megatron-LM", "fp32", "optimizer", 8 + 8 / 8),
        ("Megatron-DeepSpeed", "fp32", "optimizer", 8 + 8 / 8),
        ("InternEvo", "fp32", "optimizer", 8 + (K.memory.internevo_state_bytes - 12) / 8),
        ("torchtitan", "fp32", "parameters", 16 / 8),
    ],
)
def test_bytes_per_parameter(framework: str, precision: str, sharding: str, bytes_per_parameter: float) -> None:
    c = run(framework, precision, sharding=sharding, shard_group=8, data=8, num_gpus=8, vocab_size=0)
    parts = published_memory(c, K).parts
    parameters = 8 * (12 * 1024**2 + 13 * 1024)
    assert sum(parts[name][0] for name in STATE) == pytest.approx(bytes_per_parameter * parameters)


def test_what_a_published_figure_leaves_out() -> None:
    left_out = {}
    for framework in ("Megatron-LM", "torchtitan", "Megatron-DeepSpeed"):
        found = published_memory(run(framework), K)
        left_out[COUNTS[family_of(framework)]] = float((found.total - found.published)[0])
    assert left_out["device"] == 0 < left_out["reserved"] < left_out["allocated"]
    assert left_out["reserved"] == pytest.approx(K.memory.context_bytes)  # one GPU: no communicators


def test_full_sharding_in_a_pipeline_keeps_gradients_of_the_whole_stage_in_fp32() -> None:
    alone, shared = (
        run("torchtitan", pipeline=2, num_gpus=16, data=8, sharding="parameters", shard_group=ranks, vocab_size=0)
        for ranks in (1, 8)
    )
    more = buffer_bytes(shared, K, published_stages(shared)[0]) - buffer_bytes(alone, K, published_stages(alone)[0])
    assert more[0] == pytest.approx(4 * 4 * (12 * 1024**2 + 13 * 1024))  # four layers of the stage
