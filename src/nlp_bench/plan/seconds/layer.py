"""Seconds that one GPU computes for one layer and one micro-batch, forward and backward."""

from collections.abc import Iterator

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.seconds.again import Again
from nlp_bench.plan.seconds.rates import Rates
from nlp_bench.plan.work.products import key_width, query_width, tokens

_WIDE = 128.0
"""Head width at which the rates of fused attention kernels are stated."""
_FUSED_PASSES = 3.5
"""Forward with backward of a fused kernel over its forward: two products forward, five backward (Dao 2023, section 3.1)."""
_SCORE_BYTES = 26.0
"""Bytes per score, forward and backward, where scores are stored in 16 bit: written, masked with softmax, dropped out, read, and
the gradients of each (Korthikanti et al. 2022, section 4.1 lists what is stored)."""
_SCORE_BYTES_AGAIN = 11.0
"""Those of the forward pass alone."""
_MAIN_GRADIENT_BYTES = 8.0
"""A weight's gradient is added to its fp32 sum: read and written (megatron-core, gradient_accumulation_fusion)."""


def layer_compute(c: Configurations, constants: Constants, rates: Rates, again: Again) -> dict[str, Numbers]:
    """Return seconds of a layer by kind: matrix products, attention, memory-bound."""
    tuned = np.where((constants.trait("family") == "nvidia")[c.framework], constants["nvidia_tuning"], 1.0)
    return {
        "matrix products": tuned * _products(c, constants, rates, again),
        "attention": _attention(c, constants, rates, again),
        "memory-bound": tuned * _streams(c, constants, rates, again),
    }


def product_seconds(flops: Numbers, flops_per_s: Numbers, moved: Numbers, moved_per_s: Numbers) -> Numbers:
    """Seconds of a matrix product, from its FLOPs and the bytes of its operands and result: a roofline with a rounded ridge.

    The root of the sum of both squares: the longer of both far from the ridge (Williams et al. 2009, doi:10.1145/1498765.1498785),
    1.4 times as long where they are equal.
    """
    arithmetic, movement = flops / flops_per_s, moved / moved_per_s
    return np.asarray(np.sqrt(arithmetic * arithmetic + movement * movement))


def _shapes(c: Configurations) -> Iterator[tuple[Numbers, Numbers]]:
    """Columns and depth of a layer's products on one rank: query-key-value, projection, up, down."""
    n, tensor = c.network, c.spread.tensor
    yield (query_width(c) + 2 * key_width(c)) / tensor, n.hidden_size
    yield n.hidden_size, query_width(c) / tensor
    yield n.ffn_hidden_size * (1.0 + n.gated) / tensor, n.hidden_size
    yield n.hidden_size, n.ffn_hidden_size / tensor


def _products(c: Configurations, constants: Constants, rates: Rates, again: Again) -> Numbers:
    """Three products of each shape (output, gradient of the input, gradient of the weights) and what is computed again."""
    rows, operand = tokens(c), np.where(rates.low_bit, 1.0, 2.0)
    moved_per_s = rates.memory / constants["operand_traffic"]
    family = np.array(
        [_MAIN_GRADIENT_BYTES if one.family in {"megatron", "nvidia"} else 0.0 for one in constants.traits]
    )
    summed = family[c.framework]
    shares = (again.products, again.products, again.products, again.last_product)
    total: Numbers = np.zeros(())
    for (columns, depth), share in zip(_shapes(c), shares, strict=True):
        flops = 2.0 * rows * columns * depth
        moved = operand * (rows + columns) * depth + 2.0 * rows * columns
        one = product_seconds(flops, rates.products, moved, moved_per_s)
        with_sum = product_seconds(flops, rates.products, moved + summed * columns * depth, moved_per_s)
        total = total + (2.0 + share) * one + with_sum
    return total


def _attention(c: Configurations, constants: Constants, rates: Rates, again: Again) -> Numbers:
    n, tensor = c.network, c.spread.tensor
    causal = 2.0 * tokens(c) * n.sequence_length * query_width(c) / tensor  # half of the square's FLOPs
    narrow = constants["attention_narrow"]
    slower = (1 + constants["attention_short"] / n.sequence_length) * (1 + narrow / n.head_width) / (1 + narrow / _WIDE)
    fused = causal * (_FUSED_PASSES + again.attention) * slower / rates.attention
    unfused = (constants.trait("attention") == "unfused")[c.framework]
    if not np.any(unfused):
        return fused
    scores = tokens(c) * n.sequence_length * n.num_attention_heads / tensor
    moved = constants["score_traffic"] * scores * (_SCORE_BYTES + _SCORE_BYTES_AGAIN * again.scores)
    return np.where(unfused, 2.0 * causal * (3.0 + again.scores) / rates.half + moved / rates.memory, fused)


def _streams(c: Configurations, constants: Constants, rates: Rates, again: Again) -> Numbers:
    """Bytes between products, counted in passes over 16-bit tensors: normalisation and residual, activation, rotation; casts to 8 bit.

    Forward: normalisation reads and writes, twice; dropout and residual read two, write one, twice: 10 passes over the hidden state;
    the activation reads one (gated: two), writes one; the rotation reads and writes. Backward: 14, 3 (5) and 2.
    """
    n, s = c.network, c.spread
    split = np.where(s.sequence_parallel, s.tensor, 1.0)
    heads = query_width(c) + key_width(c)
    passes = (24.0 + 10.0 * again.streams) * n.hidden_size / split
    passes = passes + (5.0 + 3.0 * n.gated + (2.0 + n.gated) * again.streams) * n.ffn_hidden_size / s.tensor
    passes = passes + (4.0 + 2.0 * again.streams) * heads / s.tensor
    moved = stream_factor(c, constants) * 2.0 * passes
    if np.any(rates.low_bit):
        moved = moved + np.where(rates.low_bit, constants["cast_traffic"] * _casts(c, rates), 0.0)
    return tokens(c) * moved / rates.memory


def stream_factor(c: Configurations, constants: Constants) -> Numbers:
    """Bytes moved over the least count, by who joins the operators."""
    kinds = {"fused": constants["stream_fused"], "eager": constants["stream_eager"], "xla": constants["stream_xla"]}
    return np.asarray(np.array([kinds[kind] for kind in constants.trait("streams")])[c.framework])


def _casts(c: Configurations, rates: Rates) -> Numbers:
    """Bytes per token of casting each product's operand: 16 bit read, 8 bit written; along both axes where blocks are scaled."""
    n, tensor = c.network, c.spread.tensor
    ffn, query, key = n.ffn_hidden_size, query_width(c), key_width(c)
    widths = 2.0 * n.hidden_size + (query + ffn + query + 2.0 * key + ffn * (1.0 + n.gated)) / tensor
    return np.asarray(np.where(rates.transposed, 6.0, 3.0) * widths)
