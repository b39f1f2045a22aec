"""A model file's shape as a network of the planner."""

from typing import Any

import numpy as np

from nlp_bench.config.model import Architecture, Training
from nlp_bench.errors import UsageError
from nlp_bench.plan.configurations import Network

VOCAB_MULTIPLE = 128
"""Megatron-LM's default of --make-vocab-size-divisible-by, which the trainer has too."""


def network_of(family: str, shape: Architecture, training: Training) -> Network:
    """Return the network of one model, every field a number (arrays of shape []); raises UsageError for a family that the planner does not know."""
    if family != "gpt":
        raise UsageError(
            f"model.family: {family!r} is not planned: the planner's formulas are those of decoder-only models (gpt); "
            "`nlp-bench rehearse` runs the trainer's own step of every family"
        )
    values: dict[str, Any] = {
        "num_layers": shape.num_layers,
        "hidden_size": shape.hidden_size,
        "ffn_hidden_size": shape.ffn_hidden_size,
        "num_attention_heads": shape.num_attention_heads,
        "num_query_groups": shape.num_query_groups or shape.num_attention_heads,
        "head_width": shape.head_width or shape.hidden_size // shape.num_attention_heads,
        "vocab_size": shape.vocab_size + shape.vocab_extra_ids,
        "vocab_multiple": VOCAB_MULTIPLE,
        "sequence_length": shape.sequence_length,
        "num_learned_positions": shape.sequence_length if shape.position_embedding == "learned_absolute" else 0,
    }
    flags: dict[str, Any] = {
        "gated": shape.activation != "gelu",
        "untied_embeddings": not shape.tied_embeddings,
        "linear_biases": shape.biases,
        "norm_biases": shape.normalization == "LayerNorm",
        "dropout": training.hidden_dropout > 0 or training.attention_dropout > 0,
    }
    arrays: dict[str, Any] = {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}
    arrays |= {name: np.asarray(value, dtype=np.bool_) for name, value in flags.items()}
    return Network(**arrays)
