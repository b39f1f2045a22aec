"""The countings against published figures; test_flops_counted.py has torch's own counter."""

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


def hardware(**recompute: object) -> float:
    return hardware_flops_per_token(GPT3, Recompute(**recompute))  # type: ignore[arg-type]


def test_selective_recompute_repeats_two_products_where_the_published_formula_repeats_six() -> None:
    seconds_of_peak = 13.75 * A100_TFLOPS * 1e12 / 2048  # of one sample on one GPU
    published = 72 * 96 * 12288**2 * (1 + 2048 / (3 * 12288) + 51200 / (12 * 96 * 12288))
    assert round(100 * hardware(granularity="selective", fused_attention=False) / seconds_of_peak, 1) == 51.8
    assert round(100 * published / seconds_of_peak, 1) == 52.8


def test_llama_405b_gives_the_published_tflops_of_nemo() -> None:
    tflops = model_flops_per_token(LLAMA_405B, causal=False) * 128 * 8192 / (9.479 * 256 * 1e12)
    assert tflops == pytest.approx(1134.5, rel=1e-4)


@pytest.mark.parametrize(
    ("method", "num_layers", "stages", "twice"), [("uniform", 4, 8, 96), ("block", 2, 8, 16), ("block", 20, 8, 96)]
)
def test_full_recompute_repeats_the_layers_that_its_method_names(
    method: str, num_layers: int, stages: int, twice: int
) -> None:
    layer = (model_flops_per_token(GPT3) / 3 - 2 * 51200 * 12288) / 96
    full = hardware(granularity="full", method=method, num_layers=num_layers, num_stages=stages)
    assert full == pytest.approx(hardware() + twice * layer, rel=1e-12)


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
        ("hardware, selective recompute, fused attention", hardware(granularity="selective")),
        (
            "hardware, selective recompute, attention not fused",
            hardware(granularity="selective", fused_attention=False),
        ),
        ("hardware, full recompute, fused attention", hardware(granularity="full")),
        ("legacy x4/3", legacy_flops_per_iteration(GPT3, 1, recompute=True) / 2048),
    )
    rows = re.findall(r"^\| ([^|]+) \| ([\d.e+]+) \| ([\d.]+) \| ([\d.]+) % \|", DOC.read_text(), re.MULTILINE)
    expected = []
    for name, flops in counts:
        tflops = flops * 96 * 2048 / (5.3247 * 384 * 1e12)
        expected.append((name, f"{flops:.6e}", f"{tflops:.2f}", f"{100 * tflops / A100_TFLOPS:.2f}"))
    assert rows == expected
