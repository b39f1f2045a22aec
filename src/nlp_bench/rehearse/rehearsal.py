"""Rehearses a resolved run or planned configurations and compares ranks with the GPU's memory; as JSON and as tables. No torch here."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from nlp_bench.config.request import read_request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.launch.arguments import training_arguments
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.problem import MOST_GPUS
from nlp_bench.plan.ranking import Answer, Row
from nlp_bench.plan.sweep import run_words
from nlp_bench.plan.text import column
from nlp_bench.rehearse.ranks import Work, chosen_ranks, rehearsable, rehearse_ranks
from nlp_bench.rehearse.report import GIB, SPLIT, MemoryHeadroom, RankReport, headroom_of, worst
from nlp_bench.show.table import Column, as_document, as_text, shown
from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout

SCHEMA = "nlp-bench/rehearsal/1"  # rehearsal.json: written here, read by the workflow and by `submit`


@immutable
class Rehearsal:
    """The results of the rehearsed ranks of a run."""

    run: Run
    layout: Layout
    reports: tuple[RankReport, ...]  # of each rank, in order
    headrooms: tuple[MemoryHeadroom, ...]  # likewise
    capacity_bytes: int | None  # memory of one GPU; None where the machine has none
    notes: tuple[str, ...]  # differences of the rehearsal from the run

    @property
    def fits(self) -> str | None:
        """yes, tight or no for the fullest of the rehearsed ranks; None where the machine has no GPU."""
        return worst(self.headrooms)

    def record(self) -> dict[str, Any]:
        """Return the JSON object of rehearsal.json."""
        run, layout = self.run, self.layout
        return {
            "schema": SCHEMA,
            "what": "one iteration of the trainer on tensors without data, not measured",
            "model": run.model.name,
            "system": run.system.name,
            "gpu": run.system.gpu.name if run.system.gpu else None,
            "fits": self.fits,
            "capacity_bytes": self.capacity_bytes,
            "num_ranks": layout.world_size,
            "layout": {
                "tensor": run.parallel.tensor,
                "pipeline": run.parallel.pipeline,
                "virtual": layout.virtual_stages,
                "context": run.parallel.context,
                "data": layout.data_parallel_size,
                "micro_batch_size": run.batch.micro_batch_size,
                "num_microbatches": layout.num_microbatches,
                "global_batch_size": layout.global_batch_size,
            },
            "iteration": 2,
            "kernels": "torch",
            "flop_rule": "2 per multiply-add; attention 2 products forward and 5 backward over all keys that a kernel is given; recompute counted",
            "notes": list(self.notes),
            "run": run.footprint(),
            "ranks": [
                asdict(report)
                | {"beside_bytes": one.overhead_bytes, "needed_bytes": one.needed_bytes, "fits": one.fits}
                for report, one in zip(self.reports, self.headrooms, strict=True)
            ],
        }


def works_of(run: Run, words: str) -> tuple[list[Work], tuple[str, ...]]:
    """Return the work of the ranks `words` and the notes. Raises UsageError for settings or ranks that the trainer would refuse."""
    if run.parallel.num_gpus > MOST_GPUS:
        raise UsageError(
            f"--nodes: {run.parallel.num_gpus} GPUs in all are more than the {MOST_GPUS} that a rehearsal pretends to have"
        )
    settings, notes = rehearsable(parse(training_arguments(run)))
    accelerator = "cuda" if run.system.accelerator == "cuda" else "cpu"
    if run.tuning.trainer == "megatron-lm":
        notes = (*notes, "the run asks for Megatron-LM's trainer; rehearsed is this package's, with the same layout")
    ranks = chosen_ranks(words, run.parallel.num_gpus, run.parallel.pipeline)
    layout = Layout.of(settings, run.parallel.num_gpus)
    return [Work(settings=settings, layout=layout, rank=rank, accelerator=accelerator) for rank in ranks], notes


def rehearsed(run: Run, works: Sequence[Work], notes: tuple[str, ...], reports: Iterator[RankReport]) -> Rehearsal:
    """Return the rehearsal of `works`, of which `reports` yields the reports."""
    gpu, constants = run.system.gpu, read_constants()
    capacity = round(gpu.memory_gib * GIB) if gpu and run.system.accelerator == "cuda" else None
    found = tuple(reports)
    return Rehearsal(
        run=run,
        layout=works[0].layout,
        reports=found,
        headrooms=tuple(headroom_of(report, capacity, constants) for report in found),
        capacity_bytes=capacity,
        notes=notes,
    )


def rehearse_rows(answer: Answer, count: int, *, model: str, system: str) -> Iterator[str]:
    """Rehearse the fullest ranks of the first `count` rows of a plan, one after the other, and yield a sentence on each."""
    answer.problem.refuse_other_format("--rehearse")
    for row in answer.rows[:count]:
        words = run_words(answer.problem, row.sizes, model=model, system=system)
        run = resolve(read_request(words), ask_scheduler=False)
        works, notes = works_of(run, "fullest")
        yield _sentence(row, rehearsed(run, works, notes, rehearse_ranks(works)))


def _sentence(row: Row, found: Rehearsal) -> str:
    peak_gib = max(report.peak_bytes for report in found.reports) / GIB
    needed_gib = max(one.needed_bytes or 0 for one in found.headrooms) / GIB
    return (
        f"rank {row.rank} rehearsed ({row.sizes.layout}): tensors {peak_gib:.1f} GiB, with all that a GPU needs "
        f"{needed_gib:.1f} of {row.capacity_gib:g} GiB, fits: {found.fits or ''}; planned {row.memory_gib:.1f} GiB, fits: {row.fits}"
    )


LISTED = 8  # modules whose activations are listed
MEANING = {
    "yes": "it fits, with what context, communicators and allocator take",
    "tight": "it may run out of memory: the rest is what the allocator loses, which cannot be rehearsed",
    "no": "it will run out of memory",
}


def as_tables(rehearsal: Rehearsal) -> str:
    """Return the whole report: the job, its ranks, activations and communication of the fullest."""
    run, layout, gpu = rehearsal.run, rehearsal.layout, rehearsal.run.system.gpu
    card = f" ({gpu.name}, {gpu.memory_gib:g} GiB)" if rehearsal.capacity_bytes and gpu else ""
    virtual = f" x {layout.virtual_stages} virtual" if layout.virtual_stages > 1 else ""
    context = f", context {run.parallel.context}" if run.parallel.context > 1 else ""
    title = (
        f"{run.model.name} on {run.system.name}{card}: {layout.world_size} ranks, tensor {run.parallel.tensor}, pipeline "
        f"{run.parallel.pipeline}{virtual}{context}, data {layout.data_parallel_size}, {layout.num_microbatches} micro-batches of "
        f"{run.batch.micro_batch_size}\nthe trainer's own step on tensors without data: second iteration, torch's kernels; nothing is measured"
    )
    verdict = "fits: not known, the system has no GPU"
    if rehearsal.capacity_bytes is not None:
        meaning = MEANING[rehearsal.fits or "no"]
        verdict = f"fits {rehearsal.capacity_bytes / GIB:g} GiB: {rehearsal.fits} ({meaning})"
    fullest = max(rehearsal.reports, key=lambda report: report.peak_bytes)
    made = list(fullest.activations.items())
    made[LISTED:] = [("others", sum(size for _, size in made[LISTED:]))] if made[LISTED:] else []
    activations = [
        column("module", [name for name, _ in made], is_text=True),
        column("GiB", [f"{size / GIB:.3f}" for _, size in made]),
    ]
    return as_document(
        [title, *(f"note: {note}" for note in rehearsal.notes)],
        as_text(shown(_memory(rehearsal))),
        [verdict],
        [f"activations at the peak of rank {fullest.rank}, by the module that made them"],
        as_text(activations),
        [f"communication of rank {fullest.rank} in one iteration (whole messages; groups of one rank send nothing)"],
        as_text(_collectives(fullest)),
    )


def _memory(rehearsal: Rehearsal) -> list[Column]:
    reports, headrooms = rehearsal.reports, rehearsal.headrooms
    return [
        column("rank", [one.rank for one in reports]),
        column("stage", [one.place["pipeline"] for one in reports]),
        column("parameters\nmillion", [f"{one.parameters / 1e6:.1f}" for one in reports]),
        column("static\nGiB", [_gib(sum(one.static_bytes.values())) for one in reports]),
        column("peak\nGiB", [_gib(one.peak_bytes) for one in reports]),
        *(column(f"of it\n{kind}", [_gib(one.peak_split[kind]) for one in reports]) for kind in SPLIT),
        column("beside\ntensors", [_gib(one.overhead_bytes) for one in headrooms]),
        column("needed\nGiB", [_gib(one.needed_bytes) for one in headrooms]),
        column("fits", [one.fits or "" for one in headrooms], is_text=True),
        column("TFLOP per\niteration", [f"{sum(one.flops.values()) / 1e12:.4g}" for one in reports]),
    ]


def _collectives(report: RankReport) -> list[Column]:
    sent = [one for one in report.collectives if one.group_size > 1]
    totals = Counter[str]()
    for one in sent:
        totals[one.group] += one.num_bytes * one.count
    sizes = [one.num_bytes for one in sent]
    return [
        column("group", [one.group for one in sent], is_text=True),
        column("ranks", [one.group_size for one in sent]),
        column("kind", [one.kind for one in sent], is_text=True),
        column("MiB of\none message", [f"{n / 2**20:.3f}" if n >= 1024 else f"{n} B" for n in sizes]),
        column("times", [one.count for one in sent]),
        column("GiB\ntogether", [f"{one.num_bytes * one.count / GIB:.3f}" for one in sent]),
        column("GiB of\nthe group", [f"{totals[one.group] / GIB:.3f}" for one in sent]),
    ]


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size / GIB:.2f}"
