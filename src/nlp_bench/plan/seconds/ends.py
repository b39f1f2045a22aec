"""Seconds of the embedding and the output layer, for each micro-batch, forward and backward."""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.seconds.layer import product_seconds, stream_factor
from nlp_bench.plan.seconds.rates import Rates
from nlp_bench.plan.work.products import padded_vocab_size, tokens

_LOGIT_BYTES = 24.0
"""Bytes per logit: written in 16 bit, read and written in fp32 for maximum, exponentials and their sum, and their gradient
(megatron-core, tensor_parallel/cross_entropy.py)."""


def output_seconds(c: Configurations, constants: Constants, rates: Rates) -> Numbers:
    """Three 16-bit products with the vocabulary, and the cross entropy; never computed again."""
    words = padded_vocab_size(c) / c.spread.tensor
    moved_per_s = rates.memory / constants["operand_traffic"]
    rows, width = tokens(c), c.network.hidden_size
    moved = 2.0 * ((rows + words) * width + rows * words)
    one = product_seconds(2.0 * rows * words * width, rates.half, moved, moved_per_s)
    return np.asarray(3.0 * one + stream_factor(c, constants) * rows * words * _LOGIT_BYTES / rates.memory)


def embedding_seconds(c: Configurations, constants: Constants, rates: Rates) -> Numbers:
    """Rows read and written, their gradients likewise."""
    return np.asarray(stream_factor(c, constants) * tokens(c) * c.network.hidden_size * 8.0 / rates.memory)
