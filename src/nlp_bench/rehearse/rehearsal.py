"""The rehearsal of one resolved run: chosen ranks, beside the GPU's memory. No torch here."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nlp_bench.config.run import Run
from nlp_bench.launch.arguments import training_arguments
from nlp_bench.plan.constants import read_constants
from nlp_bench.rehearse.rank import work_of
from nlp_bench.rehearse.ranks import Work, rehearse_ranks
from nlp_bench.rehearse.rehearsable import rehearsable
from nlp_bench.rehearse.report import RankReport
from nlp_bench.rehearse.room import GIB, Room, room_of, worst
from nlp_bench.rehearse.which import chosen_ranks
from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout

SCHEMA = "nlp-bench/rehearsal/1"
"""rehearsal.json: written here, read by the workflow and by `submit`."""


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What the rehearsed ranks of a run found."""

    run: Run
    """What was rehearsed."""
    layout: Layout
    """What follows from its settings."""
    reports: tuple[RankReport, ...]
    """Of each rank, in order."""
    rooms: tuple[Room, ...]
    """Whether each fits."""
    capacity_bytes: int | None
    """Memory of one GPU; None where the machine has none."""
    notes: tuple[str, ...]
    """In what the rehearsal differs from the run."""

    @property
    def fits(self) -> str | None:
        """yes, tight or no for the fullest of the rehearsed ranks; None where the machine has no GPU."""
        return worst(self.rooms)

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
            "ranks": [
                {**asdict(report), **asdict(room)} for report, room in zip(self.reports, self.rooms, strict=True)
            ],
        }


def works_of(run: Run, words: str) -> tuple[list[Work], tuple[str, ...]]:
    """Return the ranks to rehearse and the notes. Raises UsageError for settings or ranks that the trainer would refuse."""
    settings, notes = rehearsable(parse(training_arguments(run)))
    accelerator = "cuda" if run.system.accelerator == "cuda" else "cpu"
    if run.tuning.trainer == "megatron-lm":
        notes = (*notes, "the run asks for Megatron-LM's trainer; rehearsed is this package's, with the same layout")
    ranks = chosen_ranks(words, run.parallel.num_gpus, run.parallel.pipeline)
    return [work_of(settings, run.parallel.num_gpus, rank, accelerator) for rank in ranks], notes


def rehearsed(run: Run, works: Sequence[Work], notes: tuple[str, ...], reports: Iterator[RankReport]) -> Rehearsal:
    """Return the rehearsal of `works`, whose reports are still to come."""
    gpu, constants = run.system.gpu, read_constants()
    capacity = round(gpu.memory_gib * GIB) if gpu and run.system.accelerator == "cuda" else None
    found = tuple(reports)
    return Rehearsal(
        run=run,
        layout=works[0].layout,
        reports=found,
        rooms=tuple(room_of(report, capacity, constants) for report in found),
        capacity_bytes=capacity,
        notes=notes,
    )


def rehearse(run: Run, words: str) -> Rehearsal:
    """Rehearse the ranks of a run that `words` names (see `chosen_ranks`)."""
    works, notes = works_of(run, words)
    return rehearsed(run, works, notes, rehearse_ranks(works))
