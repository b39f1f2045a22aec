"""What a rehearsal finds out about one rank, and whether the rank fits its GPU. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass

from nlp_bench.plan.constants import Constants

GIB = 2**30
STATIC = ("weights", "gradients", "optimizer", "buffers")  # what stays for the whole training
SPLIT = (*STATIC, "activations", "temporary")  # what can live at the peak


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank stands in each parallel group, from 0."""

    tensor: int
    pipeline: int
    data: int
    context: int


@dataclass(frozen=True, kw_only=True)
class Collective:
    """Equal calls of one iteration."""

    kind: str  # all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, recv, barrier
    group: str
    """What the ranks of the group share: tensor, pipeline, data, context, embedding, model, world, … ("data" includes the
    context-parallel ranks where gradients and parameters travel)."""
    group_size: int
    num_bytes: int  # of one call's whole message: of all_gather the gathered tensor, of reduce_scatter the one before
    count: int


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """One rank's iteration."""

    rank: int
    place: Place
    parameters: int  # parameters that it holds
    static_bytes: dict[str, int]  # by STATIC
    peak_bytes: int  # greatest sum of living tensors in the second iteration, static ones included
    peak_split: dict[str, int]  # what lived at that moment, by SPLIT; the parts add up to the peak
    activations: dict[str, int]  # of that moment, by the module that made them (layers.*.self_attention.core_attention)
    flops: dict[str, int]  # executed in one iteration, by operator: two per multiply-add; products and attention only
    collectives: tuple[Collective, ...]  # all communication of one iteration
    warnings: tuple[str, ...] = ()  # what torch or megatron-core warned of


@dataclass(frozen=True, kw_only=True)
class MemoryHeadroom:
    """One rank's memory against its GPU's; every field None where there is no GPU."""

    overhead_bytes: int | None  # what is needed beyond tensors: context, communicators, and what the allocator loses
    needed_bytes: int | None  # peak of the tensors and the overhead
    fits: str | None  # yes, tight or no


def headroom_of(report: RankReport, capacity_bytes: int | None, constants: Constants) -> MemoryHeadroom:
    """Hold a rank against its GPU by the constants of the memory model (benchmark/plan.toml, [memory], with their sources).

    A communicator is made when its group is first used; groups of one rank have none.
    """
    if capacity_bytes is None:
        return MemoryHeadroom(overhead_bytes=None, needed_bytes=None, fits=None)
    memory = constants.memory
    communicators = {(one.group, one.group_size) for one in report.collectives if one.group_size > 1}
    dynamic = report.peak_bytes - sum(report.static_bytes.values())
    overhead = memory.context_bytes + len(communicators) * memory.communicator_bytes + memory.allocator_share * dynamic
    needed = report.peak_bytes + round(overhead)
    share = needed / capacity_bytes
    fits = "yes" if share <= memory.fits_below else "tight" if share <= memory.fails_above else "no"
    return MemoryHeadroom(overhead_bytes=round(overhead), needed_bytes=needed, fits=fits)


def worst(headrooms: Sequence[MemoryHeadroom]) -> str | None:
    """Return the answer for the whole job, as far as its ranks were rehearsed."""
    known = [one.fits for one in headrooms]
    return next((word for word in ("no", "tight", "yes") if word in known), None)
