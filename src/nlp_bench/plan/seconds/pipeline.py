"""The pipeline's schedule: which stage sets the pace, the bubble, the transfers between stages."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.seconds.groups import neighbour_rate
from nlp_bench.plan.seconds.rates import Rates
from nlp_bench.plan.work.products import tokens
from nlp_bench.plan.work.stages import stage_layers


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The slowest stage of a pipeline, for each micro-batch; arrays of shape [N] or []."""

    layers: Numbers
    """Its layers."""
    embedding: Flags
    """Whether it holds the embedding."""
    output: Flags
    """Whether it holds the output layer."""
    seconds: Numbers
    """Its time."""
    others: Numbers
    """Time of all other stages together."""


def pace_of(c: Configurations, layer: Numbers, embedding: Numbers, output: Numbers) -> Pace:
    """Return the slowest stage, from the seconds of a layer, of the embedding and of the output layer."""
    p = c.spread.pipeline
    alone = p == 1
    ahead, between, behind = stage_layers(c)
    first = ahead * layer + embedding + np.where(alone, output, 0.0)
    last = behind * layer + output
    middle = np.where(p > 2, between * layer, 0.0)
    is_last = ~alone & (last >= first) & (last >= middle)
    is_first = alone | (~is_last & (first >= middle))
    seconds = np.where(is_first, first, np.where(is_last, last, middle))
    total = np.where(alone, first, first + last + (p - 2.0) * middle)
    return Pace(
        layers=np.where(is_first, ahead, np.where(is_last, behind, between)),
        embedding=np.asarray(is_first),
        output=np.asarray(is_last | alone),
        seconds=seconds,
        others=np.maximum(total - seconds, 0.0),
    )


def interleaved(c: Configurations) -> Numbers:
    """Virtual stages that take effect: one where the micro-batches are no multiple of the stages (megatron-core refuses those)."""
    return np.where(c.spread.num_microbatches % c.spread.pipeline == 0, c.spread.virtual, 1.0)


def bubble_seconds(pace: Pace, virtual: Numbers) -> Numbers:
    """Seconds in which the slowest stage waits: one pass through the other stages, divided by the virtual stages.

    1F1B: m x slowest + the sum of the others, which is (p - 1) / m of the ideal time for equal stages; interleaved / v
    (Narayanan et al. 2021, section 2.2).
    """
    return pace.others / virtual


def transfer_seconds(c: Configurations, constants: Constants, rates: Rates, virtual: Numbers) -> Numbers:
    """Activations and gradients between stages: each micro-batch forward and backward for each virtual stage, and the way through.

    Ranks of a tensor-parallel group send a share each (scatter-gather, Narayanan et al. 2021, section 4.1).
    """
    s, v = c.spread, virtual
    sent = 2.0 * tokens(c) * c.network.hidden_size / s.tensor
    one = sent / neighbour_rate(c, rates) + constants["collective_latency_s"] * constants["scale_network"]
    exposed = np.where(v > 1, constants["pipeline_exposed"], 1.0)
    return np.where(s.pipeline > 1, 2.0 * one * (s.num_microbatches * v * exposed + s.pipeline - 1.0), 0.0)
