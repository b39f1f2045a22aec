"""The formulas against torch's own counter of the operations that a real model runs, on the CPU."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from nlp_bench.layout.flops import Recompute, hardware_flops_per_token, model_flops_per_token
from nlp_bench.layout.shape import ModelShape

torch = pytest.importorskip("torch")
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
    from torch.utils.checkpoint import checkpoint  # torch may not be there

    return lambda *values: checkpoint(function, *values, use_reentrant=True)


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
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
    from torch.utils.flop_counter import FlopCounterMode  # torch may not be there

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
    from torch.utils import flop_counter  # torch may not be there

    heads = (1, SHAPE.num_attention_heads, SHAPE.sequence_length, 12)
    forward = flop_counter.sdpa_flop_count(heads, heads, heads)
    backward = flop_counter.sdpa_backward_flop_count(heads, heads, heads, heads)
    per_layer = (forward + backward) / SHAPE.sequence_length / 2  # torch counts the masked half too
    core = 4 * SHAPE.sequence_length * SHAPE.query_width / 2
    assert per_layer == 3.5 * core
    extra = hardware_flops_per_token(SHAPE, Recompute()) - model_flops_per_token(SHAPE)
    assert extra == SHAPE.num_layers * (per_layer - 3 * core)
