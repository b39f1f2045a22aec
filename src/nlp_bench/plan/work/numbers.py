"""Rounding and sizes that the counts share."""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants

SINGLE = 4
"""Bytes of a float32 number: of gradient sums, losses and norms."""


def round_up(number: Numbers, multiple: Numbers | float) -> Numbers:
    """Return the smallest multiple that is not less."""
    return np.asarray(np.ceil(number / multiple) * multiple)


def element_bytes(c: Configurations, constants: Constants) -> Numbers:
    """Bytes of a parameter and of an activation: 4 in fp32, else 2 (8-bit products read 16-bit tensors)."""
    return np.where(_is(c, constants, "fp32"), 4.0, 2.0)


def is_float16(c: Configurations, constants: Constants) -> Flags:
    """Whether the loss is scaled, and every step asks all ranks for an overflow."""
    return _is(c, constants, "fp16")


def _is(c: Configurations, constants: Constants, name: str) -> Flags:
    names = constants.precisions
    return np.asarray(c.precision == (names.index(name) if name in names else -1))


def shard_ranks(c: Configurations) -> Numbers:
    """Ranks that hold the same parameters, and that share the optimizer's state under the distributed optimizer."""
    return c.spread.data * c.spread.context


def shares_optimizer(c: Configurations) -> Flags:
    """Whether the optimizer is distributed."""
    return np.asarray(c.spread.sharding > 0)


WIDEST_HEAD = 256
"""Width up to which flash attention applies."""


def keeps_scores(c: Configurations, constants: Constants) -> Flags:
    """Whether attention runs as separate products and keeps its scores: torch's memory-efficient kernel has no grouped queries.

    It stands in where flash attention does not apply: in float32, and with heads wider than 256. Source: torch's
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.
    """
    grouped = c.network.num_query_groups != c.network.num_attention_heads
    return np.asarray(grouped & ~has_flash(c, constants))


def has_flash(c: Configurations, constants: Constants) -> Flags:
    """Whether flash attention applies."""
    return np.asarray((element_bytes(c, constants) < SINGLE) & (c.network.head_width <= WIDEST_HEAD))
