"""The countings against published figures, other programs' formulas written out, and torch's own counter."""

import re
from pathlib import Path

import pytest

from nlp_bench.errors import UsageError
from nlp_bench.layout.flops import (
    Recompute,
    hardware_flops_per_token,
    legacy_flops_per_iteration,
    model_flops_per_token,
)
from nlp_bench.layout.shape import ModelShape, padded_vocab_size

DOC = Path(__file__).resolve().parents[2] / "docs" / "flops.md"
A100_TFLOPS = 312


def gpt(layers: int, width: int, heads: int, vocabulary: int, **changes: object) -> ModelShape:
    values: dict[str, object] = {
        "num_layers": layers, "hidden_size": width, "ffn_hidden_size": 4 * width, "num_attention_heads": heads,
        "num_query_groups": heads, "sequence_length": 2048, "padded_vocab_size": vocabulary,
    }  # fmt: skip
    return ModelShape(**values | changes)  # type: ignore[arg-type]


GPT3 = gpt(96, 12288, 96, 51200)
LLAMA = {"gated": True, "untied_embeddings": True, "linear_biases": False, "norm_biases": False, "num_query_groups": 8}
LLAMA_8B = gpt(32, 4096, 32, 128256, ffn_hidden_size=14336, sequence_length=8192, **LLAMA)
LLAMA_405B = gpt(126, 16384, 128, 128256, ffn_hidden_size=53248, sequence_length=8192, **LLAMA)
ODD = gpt(3, 64, 4, 160, num_query_groups=2, ffn_hidden_size=96, sequence_length=32, gated=True, head_width=24)


# The elapsed times and TFLOPs are those of published logs and tables: 175B on 384 GPUs, 13B on 32.
@pytest.mark.parametrize(
    ("shape", "batch", "num_gpus", "elapsed_s", "expected"),
    [
        (GPT3, 96, 384, 5.3247, "137.89"),
        (GPT3, 96, 384, 7.2310, "101.54"),
        (gpt(40, 5120, 32, 50432), 1024, 32, 35.3346, "202.02"),
    ],
)
def test_legacy_flops_give_the_published_tflops(
    shape: ModelShape, batch: int, num_gpus: int, elapsed_s: float, expected: str
) -> None:
    flops = legacy_flops_per_iteration(shape, batch, recompute=True)
    assert f"{flops / (elapsed_s * num_gpus * 1e12):.2f}" == expected


def test_without_recompute_the_legacy_count_is_three_quarters() -> None:
    with_recompute = legacy_flops_per_iteration(GPT3, 96, recompute=True)
    assert legacy_flops_per_iteration(GPT3, 96, recompute=False) == pytest.approx(0.75 * with_recompute)


def test_the_legacy_count_is_the_full_model_count_with_every_layer_run_once_more() -> None:
    legacy = legacy_flops_per_iteration(GPT3, 1, recompute=True) / GPT3.sequence_length
    logits = 6 * GPT3.hidden_size * GPT3.padded_vocab_size
    assert model_flops_per_token(GPT3, causal=False) - logits == pytest.approx(3 / 4 * (legacy - logits))


def test_three_quarters_of_the_published_tflops_are_the_models_up_to_the_output_layer() -> None:
    # 103.4 = 137.89 x 3/4 has three quarters of the output layer only.
    tflops = model_flops_per_token(GPT3, causal=False) * 96 * 2048 / (5.3247 * 384 * 1e12)
    assert tflops == pytest.approx(103.4, rel=0.0015)


# Korthikanti et al. 2022, table 5, "present work": iteration time, GPUs (as many as samples but for 22B), MFU in percent.
@pytest.mark.parametrize(
    ("shape", "batch", "num_gpus", "elapsed_s", "mfu"),
    [
        (gpt(48, 6144, 64, 51200), 4, 8, 1.10, 41.5),
        (GPT3, 64, 64, 13.75, 51.4),
        (gpt(105, 20480, 128, 51200), 280, 280, 37.83, 56.0),
        (gpt(128, 25600, 160, 51200), 512, 512, 71.49, 56.3),
    ],
)
def test_full_attention_gives_the_published_utilisations(
    shape: ModelShape, batch: int, num_gpus: int, elapsed_s: float, mfu: float
) -> None:
    rounding = 0.05 + 100 * 0.005 / elapsed_s * mfu / 100  # of the percentage and of the time
    flops = model_flops_per_token(shape, causal=False) * batch * 2048
    assert 100 * flops / (elapsed_s * num_gpus * A100_TFLOPS * 1e12) == pytest.approx(mfu, abs=rounding + 0.01)


def test_selective_recompute_repeats_two_products_where_the_published_formula_repeats_six() -> None:
    seconds_of_peak = 13.75 * A100_TFLOPS * 1e12 / 2048  # of one sample on one GPU
    selective = Recompute(granularity="selective", fused_attention=False)
    published = 72 * 96 * 12288**2 * (1 + 2048 / (3 * 12288) + 51200 / (12 * 96 * 12288))
    assert round(100 * hardware_flops_per_token(GPT3, selective) / seconds_of_peak, 1) == 51.8
    assert round(100 * published / seconds_of_peak, 1) == 52.8


def test_llama_405b_gives_the_published_tflops_of_nemo() -> None:
    tflops = model_flops_per_token(LLAMA_405B, causal=False) * 128 * 8192 / (9.479 * 256 * 1e12)
    assert tflops == pytest.approx(1134.5, rel=1e-4)


def megatron(shape: ModelShape, attention_share: float) -> float:
    """Megatron-LM's sum of terms, FLOPs of one token: 3 passes x 2 per multiply-add, `attention_share` 1/2 since it counts causal."""
    head = shape.query_width // shape.num_attention_heads
    queries, keys, values = (
        head * heads for heads in (shape.num_attention_heads, shape.num_query_groups, shape.num_query_groups)
    )
    feed_forward = shape.hidden_size * shape.ffn_hidden_size * (3 if shape.gated else 2) * shape.num_layers
    attention = (
        shape.hidden_size * (queries + keys + values)
        + queries * shape.sequence_length * attention_share * 2
        + queries * shape.hidden_size
    )
    return 3 * 2 * (feed_forward + attention * shape.num_layers + shape.hidden_size * shape.padded_vocab_size)


def older_megatron(shape: ModelShape) -> float:
    """The closed form that Megatron-LM had before it counted causal attention."""
    width, groups = shape.hidden_size, shape.num_query_groups / shape.num_attention_heads
    factor = (1 + groups + shape.sequence_length / width) * shape.query_width / width
    gate = 3 / 2 if shape.gated else 1
    logits = shape.padded_vocab_size / (2 * shape.num_layers * width)
    return 12 * shape.num_layers * width**2 * (factor + shape.ffn_hidden_size / width * gate + logits)


@pytest.mark.parametrize("shape", [GPT3, LLAMA_8B, LLAMA_405B, ODD])
def test_the_model_count_is_megatrons(shape: ModelShape) -> None:
    assert model_flops_per_token(shape) == pytest.approx(megatron(shape, 1 / 2), rel=1e-12)
    assert model_flops_per_token(shape, causal=False) == pytest.approx(megatron(shape, 1), rel=1e-12)
    assert model_flops_per_token(shape, causal=False) == pytest.approx(older_megatron(shape), rel=1e-12)


def test_full_attention_is_palms_six_n_plus_twelve_l_h_q_t() -> None:
    multiplied = GPT3.num_layers * 12 * 12288**2 + 51200 * 12288
    palm = 6 * multiplied + 12 * 96 * 96 * 128 * 2048
    assert model_flops_per_token(GPT3, causal=False) == palm


def test_a_fused_kernel_adds_its_own_scores_and_selective_adds_nothing_to_it() -> None:
    scores = 96 * 2 * 2048 * 12288 / 2
    for granularity in ("none", "selective"):
        count = hardware_flops_per_token(GPT3, Recompute(granularity=granularity))
        assert count == model_flops_per_token(GPT3) + scores
    wrapped = Recompute(granularity="selective", wraps_fused_attention=True)
    assert hardware_flops_per_token(GPT3, wrapped) == model_flops_per_token(GPT3) + 3 * scores


def test_without_a_fused_kernel_the_masked_half_is_computed_and_selective_repeats_the_core() -> None:
    full = model_flops_per_token(GPT3, causal=False)
    assert hardware_flops_per_token(GPT3, Recompute(fused_attention=False)) == full
    selective = hardware_flops_per_token(GPT3, Recompute(granularity="selective", fused_attention=False))
    assert selective == full + 96 * 4 * 2048 * 12288


def test_full_recompute_without_a_fused_kernel_is_narayanans_formula_with_the_output_layer_once() -> None:
    count = hardware_flops_per_token(GPT3, Recompute(granularity="full", fused_attention=False))
    legacy = legacy_flops_per_iteration(GPT3, 1, recompute=True) / 2048
    assert count == pytest.approx(
        legacy, rel=1e-12
    )  # 4 x 24 V / 16 = 6 V: equation 3 has the output layer's three passes


@pytest.mark.parametrize(
    ("method", "num_layers", "stages", "twice"), [("uniform", 4, 8, 96), ("block", 2, 8, 16), ("block", 20, 8, 96)]
)
def test_full_recompute_repeats_the_layers_that_its_method_names(
    method: str, num_layers: int, stages: int, twice: int
) -> None:
    recompute = Recompute(granularity="full", method=method, num_layers=num_layers, num_stages=stages)
    layer = (model_flops_per_token(GPT3) / 3 - 2 * 51200 * 12288) / 96
    base = hardware_flops_per_token(GPT3, Recompute())
    assert hardware_flops_per_token(GPT3, recompute) == pytest.approx(base + twice * layer, rel=1e-12)


# Published: tables and eq. 2 of Narayanan et al. 2021 (in 10^9, V = 51200); the models' own programs for Llama.
@pytest.mark.parametrize(
    ("layers", "width", "heads", "billions"),
    [(24, 2304, 24, 1.7), (30, 3072, 32, 3.6), (48, 8192, 64, 39.1), (80, 12288, 96, 145.6), (128, 25600, 160, 1008.0)],
)
def test_parameters_are_those_of_the_published_models(layers: int, width: int, heads: int, billions: float) -> None:
    shape = gpt(layers, width, heads, 51200, num_learned_positions=2048)
    equation_2 = 12 * layers * width**2 * (1 + 13 / (12 * width) + (51200 + 2048) / (12 * layers * width))
    assert shape.parameters == pytest.approx(equation_2 + 2 * width, rel=1e-12)
    assert round(shape.parameters / 1e9, 1) == billions


@pytest.mark.parametrize(("shape", "parameters"), [(LLAMA_8B, 8_030_261_248), (LLAMA_405B, 405_853_388_800)])
def test_parameters_of_llama_are_exact(shape: ModelShape, parameters: int) -> None:
    assert shape.parameters == parameters


def test_untied_embeddings_add_parameters_and_no_flops() -> None:
    tied, untied = gpt(2, 64, 4, 128), gpt(2, 64, 4, 128, untied_embeddings=True)
    assert untied.parameters - tied.parameters == 64 * 128
    assert model_flops_per_token(untied) == model_flops_per_token(tied)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 7, "num_query_groups": 7}, "hidden_size: 64 is not a multiple of num_attention_heads"),
        ({"num_query_groups": 3}, "num_attention_heads: 4 is not a multiple of num_query_groups"),
    ],
)
def test_a_shape_that_contradicts_itself_is_refused(changes: dict[str, int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        gpt(2, 64, 4, 128, **changes)


def test_a_head_width_of_its_own_frees_the_hidden_size() -> None:
    shape = gpt(2, 64, 7, 128, head_width=16)
    assert (shape.query_width, shape.key_value_width, shape.attention_weights) == (112, 112, 4 * 64 * 112)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"granularity": "some"}, "recompute_granularity"),
        ({"granularity": "full", "method": "half"}, "recompute_method"),
        ({"granularity": "full", "method": "block"}, "recompute_num_layers"),
    ],
)
def test_a_recompute_that_nobody_knows_is_refused(words: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Recompute(**words)  # type: ignore[arg-type]


@pytest.mark.parametrize(("tensor_parallel", "rows"), [(1, 50304), (2, 50432), (8, 51200)])
def test_the_vocabulary_is_padded_for_the_tensor_parallel_ranks(tensor_parallel: int, rows: int) -> None:
    assert padded_vocab_size(50257, 128, tensor_parallel) == rows


def test_the_table_of_the_documentation_comes_from_this_code() -> None:
    counts = (
        ("model, causal attention as half", model_flops_per_token(GPT3)),
        ("model, full attention", model_flops_per_token(GPT3, causal=False)),
        (
            "hardware, selective recompute, fused attention",
            hardware_flops_per_token(GPT3, Recompute(granularity="selective")),
        ),
        (
            "hardware, selective recompute, attention not fused",
            hardware_flops_per_token(GPT3, Recompute(granularity="selective", fused_attention=False)),
        ),
        ("hardware, full recompute, fused attention", hardware_flops_per_token(GPT3, Recompute(granularity="full"))),
        ("legacy x4/3", legacy_flops_per_iteration(GPT3, 1, recompute=True) / 2048),
    )
    rows = re.findall(r"^\| ([^|]+) \| ([\d.e+]+) \| ([\d.]+) \| ([\d.]+) % \|", DOC.read_text(), re.MULTILINE)
    expected = []
    for name, flops in counts:
        tflops = flops * 96 * 2048 / (5.3247 * 384 * 1e12)
        expected.append((name, f"{flops:.6e}", f"{tflops:.2f}", f"{100 * tflops / A100_TFLOPS:.2f}"))
    assert rows == expected
