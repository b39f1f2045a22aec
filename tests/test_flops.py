import pytest

from nlp_bench.flops import ModelShape, legacy_flops_per_iteration, model_flops_per_token, padded_vocab_size


def gpt(layers: int, width: int, heads: int, vocabulary: int, **changes: int) -> ModelShape:
    values = {
        "num_layers": layers,
        "hidden_size": width,
        "ffn_hidden_size": 4 * width,
        "num_attention_heads": heads,
        "num_query_groups": heads,
        "sequence_length": 2048,
        "padded_vocab_size": vocabulary,
    }
    return ModelShape(**values | changes)


# The elapsed times and TFLOPs are those of published logs and tables: 175B on 384 GPUs, 13B on 32.
@pytest.mark.parametrize(
    ("shape", "batch", "num_gpus", "elapsed_s", "expected"),
    [
        (gpt(96, 12288, 96, 51200), 96, 384, 5.3247, "137.89"),
        (gpt(96, 12288, 96, 51200), 96, 384, 7.2310, "101.54"),
        (gpt(40, 5120, 32, 50432), 1024, 32, 35.3346, "202.02"),
    ],
)
def test_legacy_flops_give_the_published_tflops(
    shape: ModelShape, batch: int, num_gpus: int, elapsed_s: float, expected: str
) -> None:
    flops = legacy_flops_per_iteration(shape, batch, recompute=True)
    assert f"{flops / (elapsed_s * num_gpus * 1e12):.2f}" == expected


def test_without_recompute_the_legacy_count_is_three_quarters() -> None:
    shape = gpt(96, 12288, 96, 51200)
    with_recompute = legacy_flops_per_iteration(shape, 96, recompute=True)
    assert legacy_flops_per_iteration(shape, 96, recompute=False) == pytest.approx(0.75 * with_recompute)


def test_the_legacy_count_is_the_full_model_count_with_every_layer_run_once_more() -> None:
    shape = gpt(96, 12288, 96, 51200)
    legacy = legacy_flops_per_iteration(shape, 1, recompute=True) / shape.sequence_length
    logits = 6 * shape.hidden_size * shape.padded_vocab_size
    assert model_flops_per_token(shape, causal=False) - logits == pytest.approx(3 / 4 * (legacy - logits))


def test_model_flops_know_grouped_queries_gates_and_causality() -> None:
    shape = gpt(2, 64, 4, 128, num_query_groups=2, ffn_hidden_size=96, sequence_length=32, gated=True)
    layer = 2 * 64 * (64 + 32 + 32 + 64) + 4 * 32 * 64 / 2 + 3 * 2 * 64 * 96
    assert model_flops_per_token(shape) == 3 * (2 * layer + 2 * 64 * 128)


@pytest.mark.parametrize(("tensor_parallel", "rows"), [(1, 50304), (2, 50432), (8, 51200)])
def test_the_vocabulary_is_padded_for_the_tensor_parallel_ranks(tensor_parallel: int, rows: int) -> None:
    assert padded_vocab_size(50257, 128, tensor_parallel) == rows
