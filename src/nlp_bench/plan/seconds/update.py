"""Seconds between two iterations: gradients are reduced, parameters updated and gathered."""

import numpy as np

from nlp_bench.plan.configurations import SHARDING, Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.seconds.groups import ring_rate
from nlp_bench.plan.seconds.rates import Rates
from nlp_bench.plan.work.parameters import layer_parameters, table_parameters
from nlp_bench.plan.work.stages import stage_layers

_STATE_BYTES = 32.0
"""Adam on fp32: reads the parameter, both moments and the gradient, writes the first three and the 16-bit copy."""
_GRADIENT_BYTES = 8.0
"""The gradient's norm is taken and the sum set to zero, on all ranks."""


def stage_parameters(c: Configurations) -> Numbers:
    """Parameters of a rank of the stage that holds the most, without biases' and norms' ends: those that are reduced and updated."""
    ahead, between, behind = stage_layers(c)
    ends = np.maximum(ahead, behind) * layer_parameters(c) + table_parameters(c)
    return np.where(c.spread.pipeline > 2, np.maximum(ends, between * layer_parameters(c)), ends)


def reduce_seconds(c: Configurations, constants: Constants, rates: Rates, window: Numbers) -> Numbers:
    """Return seconds of scattering gradients and gathering parameters over the data- and context-parallel ranks.

    Without a sharded optimizer gradients are reduced to all: scattered, and gathered themselves. What compute hides is left out: `window` are the seconds of compute beside which it can run.
    """
    s, place = c.spread, c.framework
    ranks = s.data * s.context
    gradient = constants.trait("gradient_bytes")[place]
    parameter = np.where(rates.low_bit & (constants.trait("family") == "nvidia")[place], 1.0, 2.0)
    whole = s.sharding == SHARDING.index("none")
    gathered = np.where(whole, gradient, parameter)
    beside_gather = np.where(whole, s.overlap_grad_reduce, s.overlap_param_gather)
    rate = ring_rate(c, rates, ranks, s.tensor)
    share = (ranks - 1.0) / ranks * stage_parameters(c) / rate
    extra = np.where(
        constants.trait("deepspeed")[place] & (s.sharding == SHARDING.index("optimizer")),
        constants["deepspeed_traffic"],
        1.0,
    )
    latency = 2.0 * constants["collective_latency_s"] * constants["scale_network"] * np.log2(np.maximum(ranks, 2.0))
    done = (ranks > 1) & (s.sharding != SHARDING.index("parameters"))
    left = np.zeros(())
    for size, hidden in ((gradient, s.overlap_grad_reduce), (gathered, beside_gather)):
        seconds = np.where(done, extra * share * size + latency, 0.0)
        beside = np.minimum(seconds, 0.5 * window)
        left = left + np.where(hidden, seconds - (1.0 - constants["data_exposed"]) * beside, seconds)
    return left


def window_seconds(c: Configurations, pace: Numbers, virtual: Numbers) -> Numbers:
    """Return seconds of compute beside which an iteration's traffic can run.

    It is the last micro-batch, and with interleaving the virtual stages that other stages still work on.
    """
    in_flight = np.minimum(c.spread.num_microbatches, c.spread.pipeline)
    return pace * (1.0 + in_flight * (virtual - 1.0) / virtual)


def optimizer_seconds(c: Configurations, rates: Rates) -> Numbers:
    """Return seconds of updating this rank's share of the state, and of what every rank does with all its gradients; bound by memory."""
    s = c.spread
    shares = np.where(s.sharding >= SHARDING.index("optimizer"), np.maximum(s.shard_group, 1.0), 1.0)
    return stage_parameters(c) * (_STATE_BYTES / shares + _GRADIENT_BYTES) / rates.memory
