"""Whether a rank fits its GPU: the tensors that the rehearsal saw, and what a GPU needs beside them. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass

from nlp_bench.plan.constants import Constants
from nlp_bench.rehearse.report import RankReport

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Room:
    """One rank's memory beside the GPU's."""

    beside_bytes: int | None
    """What is needed beside tensors: context, communicators, and what the allocator loses; None where there is no GPU."""
    needed_bytes: int | None
    """Peak of the tensors and what is needed beside them; None where there is no GPU."""
    fits: str | None
    """yes, tight or no; None where there is no GPU."""


def room_of(report: RankReport, capacity_bytes: int | None, constants: Constants) -> Room:
    """Hold a rank against its GPU by the constants of the memory model (benchmark/plan.toml, [memory], with their sources).

    A communicator is made when its group is first used; groups of one rank have none.
    """
    if capacity_bytes is None:
        return Room(beside_bytes=None, needed_bytes=None, fits=None)
    memory = constants.memory
    communicators = {(one.group, one.group_size) for one in report.collectives if one.group_size > 1}
    dynamic = report.peak_bytes - sum(report.static_bytes.values())
    beside = memory.context_bytes + len(communicators) * memory.communicator_bytes + memory.allocator_share * dynamic
    needed = report.peak_bytes + round(beside)
    share = needed / capacity_bytes
    fits = "yes" if share <= memory.fits_below else "tight" if share <= memory.fails_above else "no"
    return Room(beside_bytes=round(beside), needed_bytes=needed, fits=fits)


def worst(rooms: Sequence[Room]) -> str | None:
    """Return the answer for the whole job, as far as its ranks were rehearsed."""
    known = [room.fits for room in rooms]
    return next((word for word in ("no", "tight", "yes") if word in known), None)
