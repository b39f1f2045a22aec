"""How fast groups of ranks send to each other over a hierarchical network."""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.seconds.rates import Rates


def ring_rate(c: Configurations, rates: Rates, size: Numbers, stride: Numbers) -> Numbers:
    """Bytes per second of a ring over `size` ranks that are `stride` apart; ranks are numbered tensor, context, data, pipeline.

    Inside an NVLink domain it is the link's rate. A ring that leaves the domain passes the domain's border once in each channel, and
    the channels are spread over the adapters of all its members inside: members x a GPU's share of the adapters (NCCL's rings on
    rail-optimised fabrics). So a tensor-parallel group over two nodes of four GPUs has all four adapters, not one; and rings that
    run at the same time share the node's adapters by their members.
    """
    domain = c.machines.domain
    inside = np.minimum(np.maximum(np.floor(domain / stride), 1.0), size)
    return np.where(size * stride <= domain, rates.link, np.minimum(rates.link, rates.rail * inside))


def neighbour_rate(c: Configurations, rates: Rates) -> Numbers:
    """Bytes per second from one pipeline stage to the next: the outermost dimension, each GPU over its own share of the adapters."""
    return np.where(c.spread.num_gpus <= c.machines.domain, rates.link, np.minimum(rates.link, rates.rail))
