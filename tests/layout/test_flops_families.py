"""T5 and BERT against torch's own counter, the formulas of others and the sizes that the models are known by."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from nlp_bench.layout.flops import (
    Recompute,
    hardware_flops_per_token,
    legacy_flops_per_iteration,
    model_flops_per_token,
)
from nlp_bench.layout.shape import ModelShape, shape_of

SMALL = {
    "num_layers": 3, "num_decoder_layers": 2, "hidden_size": 64, "ffn_hidden_size": 96, "num_attention_heads": 4,
    "num_query_groups": 4, "sequence_length": 24, "decoder_sequence_length": 10, "padded_vocab_size": 160,
}  # fmt: skip
T5 = shape_of("t5", **SMALL)
BERT = shape_of("bert", **SMALL)


def published(
    family: str, layers: int, width: int, ffn: int, heads: int, vocabulary: int, **changes: object
) -> ModelShape:
    values: dict[str, object] = {
        "num_layers": layers, "num_decoder_layers": layers, "hidden_size": width, "ffn_hidden_size": ffn,
        "num_attention_heads": heads, "num_query_groups": heads, "sequence_length": 512,
        "decoder_sequence_length": 128, "padded_vocab_size": vocabulary, "num_learned_positions": 512,
    }  # fmt: skip
    return shape_of(family, **values | changes)


@pytest.fixture(scope="module")
def counted() -> tuple[int, int]:
    """FLOPs of torch's own encoder, and of its decoder behind it, forward, in the shape SMALL."""
    plain = {"d_model": 64, "nhead": 4, "dim_feedforward": 96, "dropout": 0.0, "batch_first": True, "device": "meta"}
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(**plain), 3, enable_nested_tensor=False)
    decoder = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(**plain), 2)
    source, target = torch.empty(1, 24, 64, device="meta"), torch.empty(1, 10, 64, device="meta")
    found = []
    for run in (lambda: encoder(source), lambda: decoder(target, source)):
        with FlopCounterMode(display=False) as counter:
            run()
        found.append(counter.get_total_flops())
    return found[0], found[1]


def test_a_t5_is_three_times_what_torch_counts_forward(counted: tuple[int, int]) -> None:
    logits = 2 * 10 * 64 * 160
    assert model_flops_per_token(T5, causal=False) * 24 == pytest.approx(3 * (sum(counted) + logits), rel=1e-12)


def test_only_the_decoders_own_attention_has_a_masked_half() -> None:
    half = 3 * 2 * (4 * 10 * 10 * 64) / 2
    per_sample = 24 * (model_flops_per_token(T5, causal=False) - model_flops_per_token(T5))
    assert per_sample == pytest.approx(half, rel=1e-12)
    assert model_flops_per_token(BERT) == model_flops_per_token(BERT, causal=False)


def test_a_bert_is_three_times_what_torch_counts_forward(counted: tuple[int, int]) -> None:
    heads = 24 * 2 * (64 * 64 + 64 * 160) + 2 * (64 * 64 + 64 * 2)
    assert model_flops_per_token(BERT) * 24 == pytest.approx(3 * (counted[0] + heads), rel=1e-12)
    without = shape_of("bert", **SMALL, binary_head=False)
    assert 24 * (model_flops_per_token(BERT) - model_flops_per_token(without)) == pytest.approx(6 * (64 * 64 + 64 * 2))


@pytest.mark.parametrize("shape", [T5, BERT])
def test_full_recompute_runs_every_layer_once_more(shape: ModelShape) -> None:
    forward = sum(stack.num_layers * stack.layer(causal=False) for stack in shape.stacks)
    plain, full = (
        hardware_flops_per_token(shape, Recompute(granularity=word, fused_attention=False)) for word in ("none", "full")
    )
    assert plain == pytest.approx(model_flops_per_token(shape, causal=False))
    assert 24 * (full - plain) == pytest.approx(forward, rel=1e-12)
    legacy = legacy_flops_per_iteration(shape, 7, recompute=True)
    assert legacy == pytest.approx(7 * 24 * full, rel=1e-12)  # what the legacy count of a GPT is, too


def test_block_recompute_repeats_the_first_layers_of_each_stage_whichever_stack_they_are_of() -> None:
    shape = shape_of("t5", **SMALL | {"num_decoder_layers": 3})
    recompute = Recompute(granularity="full", method="block", num_layers=1, num_stages=2)
    assert recompute.repeated(shape.stacks) == [1, 1]
    assert Recompute(granularity="full", method="block", num_layers=1, num_stages=3).repeated(shape.stacks) == [2, 1]
    assert Recompute(granularity="full", method="block", num_layers=2, num_stages=2).repeated(shape.stacks) == [2, 2]


# The sizes that BigNLP gives its models, in 10^6, and BERT-large's of Devlin et al. 2019, which has no bias of the output layer.
@pytest.mark.parametrize(
    ("shape", "millions"),
    [
        (published("t5", 12, 768, 2048, 12, 29184, gated=True), 220),
        (published("t5", 24, 2048, 5120, 32, 29184, gated=True), 2800),
        (published("t5", 24, 4096, 10240, 64, 29184, gated=True), 11000),
        (published("t5", 36, 5120, 10880, 64, 29184, gated=True), 23000),
        (published("t5", 48, 6144, 10880, 96, 29184, gated=True), 41000),
        (published("t5", 8, 512, 1024, 6, 250112, gated=True, head_width=64), 170),
        (published("bert", 24, 1024, 4096, 16, 30592), 340),
    ],
)
def test_parameters_are_those_of_the_published_models(shape: ModelShape, millions: float) -> None:
    assert shape.parameters / 1e6 == pytest.approx(millions, rel=0.1)


def test_values_of_other_families_do_not_disturb() -> None:
    assert type(shape_of("gpt", **SMALL)) is ModelShape
    assert model_flops_per_token(shape_of("gpt", **SMALL)) < model_flops_per_token(T5)
