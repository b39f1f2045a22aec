"""Pipeline stages of other frameworks: layers, tables and micro-batches in flight."""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.work.stages import Stage, stage_layers


def published_stages(c: Configurations) -> tuple[Stage, Stage, Stage]:
    """Return the first, the second and the last stage; where there are fewer, some are the same.

    Layers that do not divide are spread as publications describe it: where layers + 2 divide, the embedding and the output layer
    take the place of one layer each (bigscience tr11-176B-ml; Megatron-LM --account-for-embedding-in-pipeline-split); else the
    fullest stage has the next whole number.
    """
    pipeline = c.spread.pipeline
    ahead, middle, behind = (_layers(c, layers, position) for position, layers in enumerate(stage_layers(c)))
    last = pipeline - 1
    return (
        _stage(c, np.zeros(()), ahead),
        _stage(c, np.minimum(1.0, last), np.where(last < 1, ahead, np.where(last == 1, behind, middle))),
        _stage(c, last, np.where(last < 1, ahead, behind)),
    )


def _stage(c: Configurations, rank: Numbers, layers: Numbers) -> Stage:
    last = rank == c.spread.pipeline - 1
    return Stage(rank=rank, first=np.asarray(rank == 0), last=np.asarray(last), layers=np.asarray(layers))


def _layers(c: Configurations, even: Numbers, position: int) -> Numbers:
    layers, pipeline = c.network.num_layers, c.spread.pipeline
    uneven = (layers % pipeline != 0) & (c.spread.first_layers == 0) & (c.spread.last_layers == 0)
    slots = (layers + 2) % pipeline == 0
    shared = np.where(slots, (layers + 2) / pipeline - (position != 1), np.ceil(layers / pipeline))
    return np.where(uneven, shared, even)


def in_flight(c: Configurations, stage: Stage) -> Numbers:
    """Micro-batches whose activations a stage holds at a time, as a real number of its layers' worth.

    1F1B: min(m, p - rank) (Narayanan et al. 2021, arXiv 2104.04473, section 2.2); interleaved: the chunks of the warm-up,
    ((v + 1) p - 2 rank - 1) / v, which is p (1 + (p - 1) / (p v)) on the first stage (Korthikanti et al. 2022, arXiv 2205.05198).
    """
    pipeline, virtual = c.spread.pipeline, c.spread.virtual
    plain = pipeline - stage.rank
    interleaved = ((virtual + 1) * pipeline - 2 * stage.rank - 1) / virtual
    return np.minimum(np.maximum(c.spread.num_microbatches, 1.0), np.where(virtual > 1, interleaved, plain))
