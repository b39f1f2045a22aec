"""How many parameters a shape has, by its family: what a model file's nominal size is held against."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nlp_bench.config.model import Architecture

FAMILIES = ("gpt", "t5", "mt5", "bert")


def num_parameters(family: str, shape: "Architecture") -> int:
    """Return the weights of layers and embeddings, without biases, normalisations and padding.

    A layer has 4 h a of attention (a: width of all heads; keys and values less with grouped queries) and 2 h f of feed-forward,
    3 h f where it is gated; a decoder of T5 attends twice. Narayanan et al. 2021, https://arxiv.org/abs/2104.04473, section 2;
    Shazeer 2020, https://arxiv.org/abs/2002.05202; Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1.
    """
    hidden = shape.hidden_size
    queries = shape.num_attention_heads * (shape.head_width or hidden // shape.num_attention_heads)
    keys = queries // shape.num_attention_heads * (shape.num_query_groups or shape.num_attention_heads)
    attention = 2 * hidden * (queries + keys)
    feed_forward = (2 if shape.activation == "gelu" else 3) * hidden * shape.ffn_hidden_size
    layer = attention + feed_forward
    if is_encoder_decoder(family):
        layer += layer + attention
    tables = (1 if shape.tied_embeddings else 2) * shape.vocab_size * hidden
    positions = shape.sequence_length * hidden if shape.position_embedding == "learned_absolute" else 0
    return shape.num_layers * layer + tables + positions


def is_encoder_decoder(family: str) -> bool:
    """Whether the family has an encoder and a decoder."""
    return family in {"t5", "mt5"}
