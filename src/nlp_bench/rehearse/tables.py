"""A rehearsal as tables for people."""

from collections import Counter

from nlp_bench.rehearse.rehearsal import Rehearsal
from nlp_bench.rehearse.report import SPLIT, RankReport
from nlp_bench.rehearse.room import GIB
from nlp_bench.show.grid import Column, as_text, shown

LISTED = 8
"""Modules whose activations are listed."""


def as_tables(rehearsal: Rehearsal) -> str:
    """Return the whole answer: the job, its ranks, the activations of the fullest, its communication."""
    fullest = max(rehearsal.reports, key=lambda report: report.peak_bytes)
    parts = [
        [_title(rehearsal), *(f"note: {note}" for note in rehearsal.notes)],
        as_text(shown(_memory(rehearsal))),
        [_verdict(rehearsal)],
        [f"activations at the peak of rank {fullest.rank}, by the module that made them"],
        as_text(_activations(fullest)),
        [f"communication of rank {fullest.rank} in one iteration (whole messages; groups of one rank send nothing)"],
        as_text(_collectives(fullest)),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _title(rehearsal: Rehearsal) -> str:
    run, layout = rehearsal.run, rehearsal.layout
    gpu = (
        f" ({run.system.gpu.name}, {run.system.gpu.memory_gib:g} GiB)"
        if rehearsal.capacity_bytes and run.system.gpu
        else ""
    )
    virtual = f" x {layout.virtual_stages} virtual" if layout.virtual_stages > 1 else ""
    context = f", context {run.parallel.context}" if run.parallel.context > 1 else ""
    return (
        f"{run.model.name} on {run.system.name}{gpu}: {layout.world_size} ranks, tensor {run.parallel.tensor}, pipeline "
        f"{run.parallel.pipeline}{virtual}{context}, data {layout.data_parallel_size}, {layout.num_microbatches} micro-batches of "
        f"{run.batch.micro_batch_size}\nthe trainer's own step on tensors without data: second iteration, torch's kernels; nothing is measured"
    )


def _memory(rehearsal: Rehearsal) -> list[Column]:
    reports, rooms = rehearsal.reports, rehearsal.rooms
    return [
        Column(heading="rank", cells=tuple(str(one.rank) for one in reports)),
        Column(heading="stage", cells=tuple(str(one.place.pipeline) for one in reports)),
        Column(heading="parameters\nmillion", cells=tuple(f"{one.parameters / 1e6:.1f}" for one in reports)),
        Column(heading="static\nGiB", cells=tuple(_gib(sum(one.static_bytes.values())) for one in reports)),
        Column(heading="peak\nGiB", cells=tuple(_gib(one.peak_bytes) for one in reports)),
        *(
            Column(heading=f"of it\n{kind}", cells=tuple(_gib(one.peak_split[kind]) for one in reports))
            for kind in SPLIT
        ),
        Column(heading="beside\ntensors", cells=tuple(_gib(room.beside_bytes) for room in rooms)),
        Column(heading="needed\nGiB", cells=tuple(_gib(room.needed_bytes) for room in rooms)),
        Column(heading="fits", cells=tuple(room.fits or "" for room in rooms), is_text=True),
        Column(heading="TFLOP per\niteration", cells=tuple(f"{sum(one.flops.values()) / 1e12:.4g}" for one in reports)),
    ]


def _verdict(rehearsal: Rehearsal) -> str:
    if rehearsal.capacity_bytes is None:
        return "fits: not known, the system has no GPU"
    meaning = {
        "yes": "it fits, with what context, communicators and allocator take",
        "tight": "it may run out of memory: the rest is what the allocator loses, which cannot be rehearsed",
        "no": "it will run out of memory",
    }
    return f"fits {rehearsal.capacity_bytes / GIB:g} GiB: {rehearsal.fits} ({meaning[rehearsal.fits or 'no']})"


def _activations(report: RankReport) -> list[Column]:
    listed = list(report.activations.items())
    lines = [*listed[:LISTED], *([("others", sum(size for _, size in listed[LISTED:]))] if listed[LISTED:] else [])]
    return [
        Column(heading="module", cells=tuple(name for name, _ in lines), is_text=True),
        Column(heading="GiB", cells=tuple(f"{size / GIB:.3f}" for _, size in lines)),
    ]


def _collectives(report: RankReport) -> list[Column]:
    sent = [one for one in report.collectives if one.group_size > 1]
    totals = Counter[str]()
    for one in sent:
        totals[one.group] += one.num_bytes * one.count
    return [
        Column(heading="group", cells=tuple(one.group for one in sent), is_text=True),
        Column(heading="ranks", cells=tuple(str(one.group_size) for one in sent)),
        Column(heading="kind", cells=tuple(one.kind for one in sent), is_text=True),
        Column(heading="MiB of\none message", cells=tuple(_mib(one.num_bytes) for one in sent)),
        Column(heading="times", cells=tuple(str(one.count) for one in sent)),
        Column(heading="GiB\ntogether", cells=tuple(f"{one.num_bytes * one.count / GIB:.3f}" for one in sent)),
        Column(heading="GiB of\nthe group", cells=tuple(f"{totals[one.group] / GIB:.3f}" for one in sent)),
    ]


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size / GIB:.2f}"


def _mib(size: int) -> str:
    return f"{size / 2**20:.3f}" if size >= 1024 else f"{size} B"
