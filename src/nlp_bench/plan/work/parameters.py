"""Parameters that one rank holds."""

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.work.stages import (
    Stage,
    attention_weights,
    feed_forward_weights,
    key_width,
    padded_vocab_size,
    query_width,
)


def layer_parameters(c: Configurations) -> Numbers:
    """Parameters of one layer on one tensor-parallel rank: products and the biases of their columns are divided, the rest is not."""
    n, tensor = c.network, c.spread.tensor
    columns = query_width(c) + 2 * key_width(c) + n.ffn_hidden_size * (1.0 + n.gated)
    divided = attention_weights(c) + feed_forward_weights(c) + columns * n.linear_biases
    return divided / tensor + 2 * norm_parameters(c) + 2 * n.hidden_size * n.linear_biases


def norm_parameters(c: Configurations) -> Numbers:
    """Parameters of one normalisation."""
    return c.network.hidden_size * (1.0 + c.network.norm_biases)


def table_parameters(c: Configurations) -> Numbers:
    """Parameters of the embedding table, or of the output layer, on one tensor-parallel rank."""
    return c.network.hidden_size * padded_vocab_size(c) / c.spread.tensor


def position_parameters(c: Configurations) -> Numbers:
    """Parameters of the learned positions, which no rank shares with another."""
    return c.network.num_learned_positions * c.network.hidden_size


def num_tables(c: Configurations, stage: Stage) -> Numbers:
    """Tables of a rank: the embedding, and the output layer where it has weights of its own or is a copy on another stage.

    Source: megatron-core's `LanguageModule.setup_embeddings_and_output_layer`.
    """
    own_output = c.network.untied_embeddings | (c.spread.pipeline > 1)
    return stage.first.astype(float) + (stage.last & own_output)


def rank_parameters(c: Configurations, stage: Stage) -> Numbers:
    """Parameters that a rank of this stage holds, the last stage's copy of a tied embedding included."""
    return (
        stage.layers * layer_parameters(c)
        + num_tables(c, stage) * table_parameters(c)
        + stage.first * position_parameters(c)
        + stage.last * norm_parameters(c)
    )
