"""A rehearsal as tables for people."""

from collections import Counter
from collections.abc import Iterable

from nlp_bench.rehearse.rehearsal import Rehearsal
from nlp_bench.rehearse.report import GIB, SPLIT, RankReport
from nlp_bench.show.table import Column, as_text, shown

LISTED = 8
"""Modules whose activations are listed."""
MEANING = {
    "yes": "it fits, with what context, communicators and allocator take",
    "tight": "it may run out of memory: the rest is what the allocator loses, which cannot be rehearsed",
    "no": "it will run out of memory",
}


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
    run, layout, gpu = rehearsal.run, rehearsal.layout, rehearsal.run.system.gpu
    card = f" ({gpu.name}, {gpu.memory_gib:g} GiB)" if rehearsal.capacity_bytes and gpu else ""
    virtual = f" x {layout.virtual_stages} virtual" if layout.virtual_stages > 1 else ""
    context = f", context {run.parallel.context}" if run.parallel.context > 1 else ""
    return (
        f"{run.model.name} on {run.system.name}{card}: {layout.world_size} ranks, tensor {run.parallel.tensor}, pipeline "
        f"{run.parallel.pipeline}{virtual}{context}, data {layout.data_parallel_size}, {layout.num_microbatches} micro-batches of "
        f"{run.batch.micro_batch_size}\nthe trainer's own step on tensors without data: second iteration, torch's kernels; nothing is measured"
    )


def _verdict(rehearsal: Rehearsal) -> str:
    if rehearsal.capacity_bytes is None:
        return "fits: not known, the system has no GPU"
    return f"fits {rehearsal.capacity_bytes / GIB:g} GiB: {rehearsal.fits} ({MEANING[rehearsal.fits or 'no']})"


def _column(heading: str, cells: Iterable[object], *, is_text: bool = False) -> Column:
    return Column(heading=heading, cells=tuple(map(str, cells)), is_text=is_text)


def _memory(rehearsal: Rehearsal) -> list[Column]:
    reports, headrooms = rehearsal.reports, rehearsal.headrooms
    return [
        _column("rank", [one.rank for one in reports]),
        _column("stage", [one.place.pipeline for one in reports]),
        _column("parameters\nmillion", [f"{one.parameters / 1e6:.1f}" for one in reports]),
        _column("static\nGiB", [_gib(sum(one.static_bytes.values())) for one in reports]),
        _column("peak\nGiB", [_gib(one.peak_bytes) for one in reports]),
        *(_column(f"of it\n{kind}", [_gib(one.peak_split[kind]) for one in reports]) for kind in SPLIT),
        _column("beside\ntensors", [_gib(one.overhead_bytes) for one in headrooms]),
        _column("needed\nGiB", [_gib(one.needed_bytes) for one in headrooms]),
        _column("fits", [one.fits or "" for one in headrooms], is_text=True),
        _column("TFLOP per\niteration", [f"{sum(one.flops.values()) / 1e12:.4g}" for one in reports]),
    ]


def _activations(report: RankReport) -> list[Column]:
    listed = list(report.activations.items())
    lines = [*listed[:LISTED], *([("others", sum(size for _, size in listed[LISTED:]))] if listed[LISTED:] else [])]
    return [
        _column("module", [name for name, _ in lines], is_text=True),
        _column("GiB", [f"{size / GIB:.3f}" for _, size in lines]),
    ]


def _collectives(report: RankReport) -> list[Column]:
    sent = [one for one in report.collectives if one.group_size > 1]
    totals = Counter[str]()
    for one in sent:
        totals[one.group] += one.num_bytes * one.count
    sizes = [one.num_bytes for one in sent]
    return [
        _column("group", [one.group for one in sent], is_text=True),
        _column("ranks", [one.group_size for one in sent]),
        _column("kind", [one.kind for one in sent], is_text=True),
        _column("MiB of\none message", [f"{n / 2**20:.3f}" if n >= 1024 else f"{n} B" for n in sizes]),
        _column("times", [one.count for one in sent]),
        _column("GiB\ntogether", [f"{one.num_bytes * one.count / GIB:.3f}" for one in sent]),
        _column("GiB of\nthe group", [f"{totals[one.group] / GIB:.3f}" for one in sent]),
    ]


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size / GIB:.2f}"
