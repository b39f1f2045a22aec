"""What the FLOPs and parameters of T5 and BERT depend on; the counts themselves are `flops`'s.

The token of both is that of the sequence length: of T5 the encoder's, as the published tables count (a T5 that reads 512 tokens and
guesses 128 has 512 per sample). Attention in both directions has no masked half, so only T5's decoder differs between the counts.
"""

from dataclasses import dataclass
from typing import Any

from nlp_bench.flops import ModelShape, Stack

FAMILIES = ("gpt", "t5", "bert")
RELATIVE_BUCKETS = 32
"""Rows of T5's table of relative positions, Megatron-LM's default of `relative_attention_num_buckets`."""


@dataclass(frozen=True, kw_only=True)
class T5Shape(ModelShape):
    """An encoder of `num_layers` and a decoder that attends to it; `sequence_length` is the encoder's."""

    num_decoder_layers: int
    """Layers of the decoder."""
    decoder_sequence_length: int
    """Tokens of the decoder per sample."""
    relative_positions: bool = False
    """Whether each stack has a table of relative positions."""

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Encoder and decoder; the cross-attention projects keys and values of every encoder token in every decoder layer."""
        source, target = self.sequence_length, self.decoder_sequence_length
        weights = self.attention_weights + self.feed_forward_weights
        cross = self.hidden_size * 2 * (target * self.query_width + source * self.key_value_width)
        own, other = 4 * target**2 * self.query_width, 4 * target * source * self.query_width
        core = 4 * source**2 * self.query_width
        return (
            Stack(num_layers=self.num_layers, products=2 * source * weights, full_core=core, causal_core=core),
            Stack(
                num_layers=self.num_decoder_layers,
                products=2 * (target * weights + cross),
                full_core=own + other,
                causal_core=own / 2 + other,
            ),
        )

    @property
    def head_flops(self) -> float:
        """The output layer, on the decoder's tokens."""
        return 2 * self.decoder_sequence_length * self.output_weights

    @property
    def parameters(self) -> int:
        """Both stacks, each with its last normalisation; the embedding is common to both."""
        biases = self.query_width + 2 * self.key_value_width + self.hidden_size if self.linear_biases else 0
        cross = self.attention_weights + self.norm_parameters + biases
        layers = self.depth * self.layer_parameters + self.num_decoder_layers * cross
        bias_tables = 2 * RELATIVE_BUCKETS * self.num_attention_heads if self.relative_positions else 0
        return layers + 2 * self.norm_parameters + self.table_parameters + bias_tables

    def legacy_flops(self, passes: int) -> float:
        """Return the analogue of the published tables' count for one sample."""
        return _legacy(self, passes)


@dataclass(frozen=True, kw_only=True)
class BertShape(ModelShape):
    """An encoder with a head that guesses masked tokens (computed at every token) and one for the next sentence."""

    binary_head: bool = True
    """Whether there is a prediction of the next sentence, and an embedding of two kinds of token for it."""

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The encoder: no mask removes anything."""
        (stack,) = super().stacks
        core = stack.full_core
        return (Stack(num_layers=stack.num_layers, products=stack.products, full_core=core, causal_core=core),)

    @property
    def head_flops(self) -> float:
        """A linear layer and the output layer at every token, and for the next sentence two small ones at the first token."""
        width = self.hidden_size
        return 2 * self.sequence_length * (width**2 + self.output_weights) + self._binary(2 * (width**2 + 2 * width))

    @property
    def parameters(self) -> int:
        """The encoder, the embeddings and the heads, with the output layer's bias."""
        width = self.hidden_size
        head = width**2 + width + self.norm_parameters + self.padded_vocab_size
        return super().parameters + head + self._binary(2 * width + width**2 + width + 2 * width + 2)

    def legacy_flops(self, passes: int) -> float:
        """Return the analogue of the published tables' count for one sample."""
        return _legacy(self, passes)

    def _binary(self, amount: int) -> int:
        return amount if self.binary_head else 0


def shape_of(family: str, **values: Any) -> ModelShape:
    """Return the shape of one of FAMILIES; of `values` those of the other families' shapes are left out.

    Raises UsageError where the values contradict each other.
    """
    kind: type[ModelShape] = {"gpt": ModelShape, "t5": T5Shape, "bert": BertShape}[family]
    return kind(**{name: value for name, value in values.items() if name in kind.__dataclass_fields__})


def _legacy(shape: ModelShape, passes: int) -> float:
    layers = sum(stack.num_layers * stack.layer(causal=False) for stack in shape.stacks)
    return passes * layers + 3 * shape.head_flops
