"""The result of a rehearsal of one rank, and whether the rank fits its GPU. No torch here."""

from collections.abc import Sequence

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.fits import Memory, overhead_bytes

GIB = 2**30
STATIC = ("weights", "gradients", "optimizer", "buffers")  # memory that is held for the whole training
SPLIT = (*STATIC, "activations", "temporary")  # all memory at the peak


@immutable
class Collective:
    """All calls of one iteration with the same kind, group and size."""

    kind: str  # all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, recv, barrier
    group: str
    """Name of the group: tensor, pipeline, data, context, embedding, model, world, … (for gradients and parameters "data"
    includes the context-parallel ranks)."""
    group_size: int
    num_bytes: int  # of the whole message of one call: output of all_gather, input of reduce_scatter
    count: int


@immutable
class RankReport:
    """The second iteration of one rank."""

    rank: int
    place: dict[str, int]  # its index, from 0, in its tensor, pipeline, data and context group
    parameters: int  # of its part of the model
    static_bytes: dict[str, int]  # by STATIC
    peak_bytes: int  # peak of the allocated tensors, static ones included
    peak_split: dict[str, int]  # the same by SPLIT; the parts add up to the peak
    activations: dict[str, int]  # at the peak, by the module that made them (layers.*.self_attention.core_attention)
    flops: dict[str, int]  # by operator: two per multiply-add; products and attention only
    collectives: tuple[Collective, ...]  # all communication
    warnings: tuple[str, ...] = ()  # of torch and megatron-core


@immutable
class MemoryHeadroom:
    """One rank's memory compared with its GPU's; every field None where there is no GPU."""

    overhead_bytes: int | None  # needed besides tensors: context, communicators, fragmentation of the allocator
    needed_bytes: int | None  # peak of the tensors and the overhead
    fits: str | None  # yes, tight or no


def headroom_of(report: RankReport, capacity_bytes: int | None, constants: Constants) -> MemoryHeadroom:
    """Compare a rank with its GPU by the constants of the memory model (benchmark/plan.toml, [memory], with their sources).

    A communicator is created when its group is first used; groups of one rank have none.
    """
    if capacity_bytes is None:
        return MemoryHeadroom(overhead_bytes=None, needed_bytes=None, fits=None)
    communicators = {(one.group, one.group_size) for one in report.collectives if one.group_size > 1}
    dynamic = report.peak_bytes - sum(report.static_bytes.values())
    overhead = round(float(overhead_bytes(constants, len(communicators), dynamic)))
    needed = report.peak_bytes + overhead
    memory = Memory(
        total=np.asarray(needed),
        parts={},
        capacity=np.asarray(capacity_bytes),
        fits_below=constants.memory.fits_below,
        fails_above=constants.memory.fails_above,
    )
    return MemoryHeadroom(overhead_bytes=overhead, needed_bytes=needed, fits=str(memory.words))


def worst(headrooms: Sequence[MemoryHeadroom]) -> str | None:
    """Return the worst answer of the rehearsed ranks, None where there is no GPU."""
    known = [one.fits for one in headrooms]
    return next((word for word in ("no", "tight", "yes") if word in known), None)
