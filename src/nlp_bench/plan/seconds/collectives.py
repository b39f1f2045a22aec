"""Seconds of what is sent inside a layer, for each micro-batch: tensor parallelism, context parallelism, gathered parameters."""

import numpy as np

from nlp_bench.plan.configurations import SHARDING, Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.seconds.again import Again
from nlp_bench.plan.seconds.groups import ring_rate
from nlp_bench.plan.seconds.rates import Rates
from nlp_bench.plan.work.parameters import layer_parameters
from nlp_bench.plan.work.products import key_width, tokens


def tensor_seconds(c: Configurations, constants: Constants, rates: Rates, again: Again) -> Numbers:
    """Return seconds of the all-reduces of the hidden state, or of the gathers and scatters that replace them.

    Two forward, two backward (Shoeybi et al. 2019, arXiv 1909.08053), two more with full recompute; each sends 2 (t - 1) / t of it
    (Korthikanti et al. 2022, section 4.2.2).

    Those of the input's gradient can run beside the product of the weights' gradient: both backward ones, with sequence parallelism
    half of each, the scatter; the gather of the output's gradient stays in the way.
    """
    t, place = c.spread.tensor, c.framework
    sent = 2.0 * (t - 1.0) / t * 2.0 * tokens(c) * c.network.hidden_size
    latency = 2.0 * constants["collective_latency_s"] * constants["scale_network"]
    one = sent / ring_rate(c, rates, t, np.ones(())) + latency
    every = 4.0 + 2.0 * again.collectives
    backward = np.where(c.spread.sequence_parallel, 1.0, 2.0) * constants.trait("backward_overlap")[place]
    beside = np.where(constants.trait("tensor_overlap")[place], every, backward)
    exposed = every - (1.0 - constants["tensor_exposed"]) * beside
    return np.where(t > 1, exposed * one, 0.0)


def context_seconds(c: Configurations, constants: Constants, rates: Rates) -> Numbers:
    """Keys and values of the other ranks, forward, and with their gradients backward: three times two 16-bit tensors."""
    s = c.spread
    if not np.any(s.context > 1):
        return np.zeros(())
    sent = 3.0 * 2.0 * 2.0 * tokens(c) * key_width(c) / s.tensor * (s.context - 1.0)
    latency = 3.0 * (s.context - 1.0) * constants["collective_latency_s"] * constants["scale_network"]
    seconds = sent / ring_rate(c, rates, s.context, s.tensor) + latency
    return np.where(s.context > 1, constants["context_exposed"] * seconds, 0.0)


def gather_seconds(c: Configurations, constants: Constants, rates: Rates) -> Numbers:
    """Fully sharded parameters: gathered forward and backward, gradients scattered, all in 16 bit (Zhao et al. 2023, arXiv 2304.11277)."""
    s = c.spread
    full = s.sharding == SHARDING.index("parameters")
    if not np.any(full):
        return np.zeros(())
    group = np.maximum(s.shard_group, 1.0)
    slow = np.where(constants.trait("slow_gathers")[c.framework], constants["zero3_share"], 1.0)
    rate = slow * ring_rate(c, rates, group, s.tensor)
    latency = constants["collective_latency_s"] * constants["scale_network"] * np.log2(np.maximum(group, 2.0))
    sent = (group - 1.0) / group * layer_parameters(c) * 6.0
    return np.where(full & (group > 1), sent / rate + 3.0 * latency, 0.0)


def gathers_left(gathers: Numbers, compute: Numbers, constants: Constants) -> Numbers:
    """Seconds that gathers beside compute add: max(a, b) + slow-down x min(a, b), less the compute (Echo, arXiv 2412.12487, has the form)."""
    if not np.any(gathers):
        return np.zeros(())
    both = np.maximum(compute, gathers) + constants["gather_slowdown"] * np.minimum(compute, gathers)
    return np.where(gathers > 0, both - compute, 0.0)
