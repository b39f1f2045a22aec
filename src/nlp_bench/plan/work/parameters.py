"""Parameters that one rank holds."""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.work.stages import Stage, padded_vocab_size


def layer_parameters(c: Configurations) -> Numbers:
    """Parameters of one layer on one tensor-parallel rank."""
    return np.asarray(c.network.divided_parameters / c.spread.tensor + c.network.whole_parameters)


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
    tables = num_tables(c, stage) * table_parameters(c)
    ends = stage.first * position_parameters(c) + stage.last * c.network.norm_parameters
    return np.asarray(stage.layers * layer_parameters(c) + tables + ends)
