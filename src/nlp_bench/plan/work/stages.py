"""Pipeline ranks of configurations, and the layers that each holds."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One pipeline rank of each of N configurations; arrays of shape [N] or []."""

    rank: Numbers
    """Its number, from 0."""
    first: Flags
    """Whether it holds the embedding."""
    last: Flags
    """Whether it holds the output layer."""
    layers: Numbers
    """Its layers, all virtual stages together."""


def stage_layers(c: Configurations) -> tuple[Numbers, Numbers, Numbers]:
    """Return the layers of the first, the middle and the last pipeline rank, all virtual stages together.

    Source: megatron-core's `get_num_layers_to_build`. With one stage all three are its layers; with two there is no middle one,
    and its number is 0 where the two are uneven.
    """
    s = c.spread
    own = (s.first_layers > 0).astype(np.float64) + (s.last_layers > 0)
    others = np.maximum(s.pipeline - own, 1)
    middle = (c.network.num_layers - s.first_layers - s.last_layers) / others
    return (
        np.where(s.first_layers > 0, s.first_layers, middle),
        middle,
        np.where(s.last_layers > 0, s.last_layers, middle),
    )


def stage_of(c: Configurations, rank: Numbers) -> Stage:
    """Return the stage with pipeline rank `rank`, from 0 to below the pipeline-parallel size."""
    first, last = rank == 0, rank == c.spread.pipeline - 1
    ahead, middle, behind = stage_layers(c)
    layers = np.where(first, ahead, np.where(last, behind, middle))
    return Stage(rank=np.asarray(rank), first=np.asarray(first), last=np.asarray(last), layers=layers)


def telling_stages(c: Configurations) -> tuple[Stage, Stage, Stage]:
    """Return the first, the second and the last stage: no other one holds more parameters or more micro-batches at a time.

    Where there are fewer than three stages, some are the same.
    """
    last = c.spread.pipeline - 1
    return stage_of(c, np.zeros(())), stage_of(c, np.minimum(1.0, last)), stage_of(c, last)
