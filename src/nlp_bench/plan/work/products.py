"""FLOPs of matrix products of one rank and one micro-batch, forward."""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers


def tokens(c: Configurations) -> Numbers:
    """Tokens of one micro-batch that one rank's linear layers see (with tensor parallelism all ranks of a group see the same)."""
    return c.spread.micro_batch_size * c.network.sequence_length / c.spread.context


def query_width(c: Configurations) -> Numbers:
    """Width of all query heads."""
    return c.network.num_attention_heads * c.network.head_width


def key_width(c: Configurations) -> Numbers:
    """Width of all key heads; the values have the same."""
    return c.network.num_query_groups * c.network.head_width


def attention_weights(c: Configurations) -> Numbers:
    """Entries of the query, key, value and output matrices of one layer."""
    return 2 * c.network.hidden_size * (query_width(c) + key_width(c))


def feed_forward_weights(c: Configurations) -> Numbers:
    """Entries of the feed-forward matrices of one layer."""
    return c.network.hidden_size * c.network.ffn_hidden_size * (2.0 + c.network.gated)


def padded_vocab_size(c: Configurations) -> Numbers:
    """Rows of the embedding table; see `nlp_bench.flops.padded_vocab_size`."""
    multiple = c.network.vocab_multiple * c.spread.tensor
    return -(-c.network.vocab_size // multiple) * multiple


def layer_products(c: Configurations) -> Numbers:
    """FLOPs of the products with weights in one layer."""
    return 2 * tokens(c) * (attention_weights(c) + feed_forward_weights(c)) / c.spread.tensor


def layer_core(c: Configurations) -> Numbers:
    """FLOPs of scores and their product with the values in one layer, the full square; a causal kernel does half."""
    return 4 * tokens(c) * c.network.sequence_length * query_width(c) / c.spread.tensor


def seen(c: Configurations) -> Numbers:
    """Share of the rectangle of scores that context-parallel ranks compute, 1 without them.

    Of 2 n chunks each of n ranks has an early and a late one, which together see 2 n + 1 chunks of keys, not 4 n: a chunk of keys
    that no query of a chunk may look at is left out (train/context.py).
    """
    ranks = c.spread.context
    return np.where(ranks > 1, (2 * ranks + 1) / (4 * ranks), 1.0)


def head_products(c: Configurations) -> Numbers:
    """FLOPs of the output layer."""
    return 2 * tokens(c) * c.network.hidden_size * padded_vocab_size(c) / c.spread.tensor
