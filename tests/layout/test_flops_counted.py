"""The formulas against torch's own counter of the operations that a real model runs; T5 and BERT also against the formulas and sizes of others."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import flop_counter
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from nlp_bench.layout.flops import (
    Recompute,
    hardware_flops_per_token,
    legacy_flops_per_iteration,
    model_flops_per_token,
)
from nlp_bench.layout.shape import ModelShape, shape_of

SHAPE = ModelShape(
    num_layers=2, hidden_size=32, ffn_hidden_size=48, num_attention_heads=4, num_query_groups=2, sequence_length=16, padded_vocab_size=64,
    gated=True, head_width=12,
)  # fmt: skip
Layer = Callable[[Any], Any]


def plain_attention(query: Any, key: Any, value: Any) -> Any:
    """Scores, mask, softmax and sum as single products: what a kernel that is not fused does."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    hidden = torch.ones(scores.shape[-2:]).triu(1).bool()
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value


def repeated(function: Layer) -> Layer:
    return lambda *values: checkpoint(function, *values, use_reentrant=True)


class Model(torch.nn.Module):
    """The smallest GPT with grouped queries, a gate and heads of a width of their own."""

    def __init__(self, attention: Layer, wrap: Layer = lambda function: function) -> None:
        """`attention` is the core, `wrap` what whole layers are wrapped in."""
        super().__init__()
        s, linear = SHAPE, lambda rows, columns: torch.nn.Parameter(torch.randn(rows, columns) / 8)
        self.embedding = linear(s.padded_vocab_size, s.hidden_size)
        sizes = (
            (s.hidden_size, s.query_width + 2 * s.key_value_width), (s.query_width, s.hidden_size),
            (s.hidden_size, 2 * s.ffn_hidden_size), (s.ffn_hidden_size, s.hidden_size),
        )  # fmt: skip
        parameters = torch.nn.ParameterList
        self.weights = parameters(parameters(linear(*size) for size in sizes) for _ in range(s.num_layers))
        self.attention, self.wrap = attention, wrap

    def layer(self, stream: Any, qkv: Any, projection: Any, up: Any, down: Any) -> Any:
        """One layer, without normalisations, which no count has."""
        s, heads = SHAPE, lambda values, number: values.unflatten(-1, (number, -1)).transpose(1, 2)
        query, key, value = (stream @ qkv).split((s.query_width, s.key_value_width, s.key_value_width), -1)
        groups = s.num_attention_heads // s.num_query_groups
        key, value = (heads(v, s.num_query_groups).repeat_interleave(groups, 1) for v in (key, value))
        context = self.attention(heads(query, s.num_attention_heads), key, value)
        stream = stream + context.transpose(1, 2).flatten(2) @ projection
        gate, rest = (stream @ up).chunk(2, -1)
        return stream + (torch.nn.functional.silu(gate) * rest) @ down

    def forward(self, tokens: Any) -> Any:
        stream = torch.nn.functional.embedding(tokens, self.embedding)
        for weights in self.weights:
            stream = self.wrap(self.layer)(stream, *weights)
        return torch.nn.functional.cross_entropy((stream @ self.embedding.T).flatten(0, 1), tokens.flatten())


def counted(model: Any) -> float:
    torch.manual_seed(0)
    tokens = torch.randint(SHAPE.padded_vocab_size, (2, SHAPE.sequence_length))
    with FlopCounterMode(display=False) as counter:
        model(tokens).backward()
    return float(counter.get_total_flops() / tokens.numel())


def test_a_plain_step_is_the_model_count_with_full_attention() -> None:
    assert counted(Model(plain_attention)) == model_flops_per_token(SHAPE, causal=False)


def test_a_repeated_core_is_the_count_of_selective_recompute() -> None:
    recompute = Recompute(granularity="selective", fused_attention=False)
    assert counted(Model(repeated(plain_attention))) == hardware_flops_per_token(SHAPE, recompute)


def test_repeated_layers_are_the_count_of_full_recompute() -> None:
    recompute = Recompute(granularity="full", fused_attention=False)
    assert counted(Model(plain_attention, repeated)) == hardware_flops_per_token(SHAPE, recompute)


def test_a_fused_kernel_has_seven_products_where_the_model_has_six() -> None:
    heads = (1, SHAPE.num_attention_heads, SHAPE.sequence_length, 12)
    forward = flop_counter.sdpa_flop_count(heads, heads, heads)
    backward = flop_counter.sdpa_backward_flop_count(heads, heads, heads, heads)
    per_layer = (forward + backward) / SHAPE.sequence_length / 2  # torch counts the masked half too
    core = 4 * SHAPE.sequence_length * SHAPE.query_width / 2
    assert per_layer == 3.5 * core
    extra = hardware_flops_per_token(SHAPE, Recompute()) - model_flops_per_token(SHAPE)
    assert extra == SHAPE.num_layers * (per_layer - 3 * core)


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
def forward_flops() -> tuple[int, int]:
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


def test_a_t5_is_three_times_what_torch_counts_forward(forward_flops: tuple[int, int]) -> None:
    logits = 2 * 10 * 64 * 160
    assert model_flops_per_token(T5, causal=False) * 24 == pytest.approx(3 * (sum(forward_flops) + logits), rel=1e-12)


def test_only_the_decoders_own_attention_has_a_masked_half() -> None:
    half = 3 * 2 * (4 * 10 * 10 * 64) / 2
    per_sample = 24 * (model_flops_per_token(T5, causal=False) - model_flops_per_token(T5))
    assert per_sample == pytest.approx(half, rel=1e-12)
    assert model_flops_per_token(BERT) == model_flops_per_token(BERT, causal=False)


def test_a_bert_is_three_times_what_torch_counts_forward(forward_flops: tuple[int, int]) -> None:
    heads = 24 * 2 * (64 * 64 + 64 * 160) + 2 * (64 * 64 + 64 * 2)
    assert model_flops_per_token(BERT) * 24 == pytest.approx(3 * (forward_flops[0] + heads), rel=1e-12)
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
