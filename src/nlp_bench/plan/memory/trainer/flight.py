"""How many micro-batches a rank of this package's trainer has between their forward and their backward passes."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.work.stages import Stage


@dataclass(frozen=True, kw_only=True)
class Flight:
    """Of one rank; arrays of shape [N] or []."""

    passes: Numbers
    """Micro-batches at most, each virtual stage counted by itself."""
    first_passes: Numbers
    """Those among them of the first virtual stage, which on the first rank holds the embedding."""
    at_embedding: Numbers
    """Passes at most when the backward pass of the first virtual stage ends; all others of its micro-batch have ended."""
    steady: Flags
    """Whether a backward pass has ended while so many are under way: tensors that it received and sent are still held."""
    streams: Numbers
    """Tensors of a rank's part of the residual stream that an interleaved schedule holds besides (a count)."""


def flight_of(c: Configurations, stage: Stage) -> Flight:
    """Return it for a rank of this stage.

    Without interleaving as many passes are ahead as there are stages behind; with it twice as many, and all virtual stages but
    one of a group of micro-batches (Narayanan et al. 2021, https://arxiv.org/abs/2104.04473, section 2.2; megatron-core,
    pipeline_parallel/schedules.py, `get_pp_rank_microbatches`).
    """
    s, micro = c.spread, c.spread.num_microbatches
    behind, interleaved = s.pipeline - stage.rank - 1, s.virtual > 1
    ahead = np.where(interleaved, 2 * behind + (s.virtual - 1) * s.pipeline, behind)
    total = micro * s.virtual
    passes = np.minimum(ahead + 1, total)
    whole = s.virtual * s.pipeline
    left = passes - np.floor(passes / whole) * whole
    firsts = np.floor(passes / whole) * s.pipeline + np.minimum(left, s.pipeline)
    return Flight(
        passes=passes,
        first_passes=np.where(interleaved, firsts, passes),
        at_embedding=np.minimum(passes, total - (s.virtual - 1) * np.where(interleaved, s.pipeline, 0)),
        steady=np.asarray(total - np.minimum(ahead, total) >= 2),
        streams=np.where(interleaved, _streams(c, stage, total - np.minimum(ahead, total)), 0.0),
    )


def _streams(c: Configurations, stage: Stage, pairs: Numbers) -> Numbers:
    """Tensors of one residual stream that the interleaved schedule holds besides; `pairs` are forward passes with a backward one.

    The output that is still being sent, the input and the gradient that are received early, and inputs with their gradients
    that the schedule's variables and megatron-core's modules still refer to. Counted in rehearsals.
    """
    s = c.spread
    many = s.num_microbatches > s.pipeline
    first = np.where(many, np.where(s.virtual > 2, 5.0, 3.0), 0.0)
    last = np.where(many, 6.0, np.minimum(s.pipeline - 1, 3.0))
    middle = np.where(many, np.where(stage.rank > 1, 6.0, 4.0), np.minimum(np.maximum(pairs - 1, pairs == 1), 4.0))
    return np.where(stage.first, first, np.where(stage.last, last, middle))
