"""Floating-point operations of one GPT training iteration: three counts that must never be confused."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The numbers that the floating-point operations of a dense GPT depend on."""

    num_layers: int
    """Transformer layers."""
    hidden_size: int
    """Width of the residual stream; also the width of all query heads together."""
    ffn_hidden_size: int
    """Inner width of the feed-forward block (of one branch, where it is gated)."""
    num_attention_heads: int
    """Query heads per layer."""
    num_query_groups: int
    """Key/value heads per layer (equal to the query heads without grouped-query attention)."""
    sequence_length: int
    """Tokens per sample."""
    padded_vocab_size: int
    """Rows of the embedding table, padding included: the padding rows are multiplied too."""
    gated: bool = False
    """Whether the feed-forward block is gated (SwiGLU: three matrices in place of two)."""


def padded_vocab_size(vocab_size: int, divisible_by: int, tensor_parallel_size: int) -> int:
    """Round `vocab_size` up to a multiple of `divisible_by` times the tensor-parallel size, as Megatron-LM does."""
    multiple = divisible_by * tensor_parallel_size
    return -(-vocab_size // multiple) * multiple


def legacy_flops_per_iteration(shape: ModelShape, global_batch_size: int, *, recompute: bool) -> float:
    """Hardware FLOPs of one iteration by the formula of the published tables (`TFLOPs:` in the log).

    `24 c B s l h^2 (1 + s/(6h) + V/(16 l h))` with c = 4 when activations are recomputed in any way, else 3.
    Source: Narayanan et al. 2021, https://arxiv.org/abs/2104.04473, equation 3 (written there for c = 4:
    forward, recomputed forward, twice that backward). It counts full attention, a feed-forward of width 4h,
    a recompute of every layer even where only attention is recomputed, and with c = 3 only 3/4 of the output layer.
    """
    length, width, layers = shape.sequence_length, shape.hidden_size, shape.num_layers
    passes = 4 if recompute else 3
    corrections = 1 + length / (6 * width) + shape.padded_vocab_size / (16 * layers * width)
    return 24 * passes * global_batch_size * length * layers * width**2 * corrections


def model_flops_per_token(shape: ModelShape, *, causal: bool = True) -> float:
    """Model FLOPs of one token: three times the forward matrix products, whatever the hardware recomputes.

    Two FLOPs per multiply-add; backward is twice forward (Chowdhery et al. 2022, https://arxiv.org/abs/2204.02311,
    appendix B). `causal` counts only the lower triangle of the attention scores (half), else the full square.
    """
    width = shape.hidden_size
    key_value_width = width // shape.num_attention_heads * shape.num_query_groups
    projections = 2 * width * (2 * width + 2 * key_value_width)
    scores = 4 * shape.sequence_length * width * (0.5 if causal else 1.0)
    feed_forward = 2 * width * shape.ffn_hidden_size * (3 if shape.gated else 2)
    logits = 2 * width * shape.padded_vocab_size
    return 3 * (shape.num_layers * (projections + scores + feed_forward) + logits)
