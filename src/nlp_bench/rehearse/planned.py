"""The best configurations of an answer, rehearsed: the trainer's own step instead of formulas."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from nlp_bench.config.request import add_request_arguments, from_options
from nlp_bench.config.resolve import resolve
from nlp_bench.plan.ranking import GIB, Answer, Row
from nlp_bench.plan.sweep import run_words
from nlp_bench.rehearse.rehearsal import rehearse


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """One row and what its rehearsal found."""

    row: Row
    """What was planned."""
    peak_gib: float
    """Greatest sum of tensors of the rehearsed ranks."""
    needed_gib: float
    """That of the fullest rank with context, communicators and the allocator's loss."""
    fits: str
    """yes, tight or no."""

    def sentence(self) -> str:
        """Say it beside what was planned."""
        return (
            f"rank {self.row.rank} rehearsed ({self.row.sizes.layout}): tensors {self.peak_gib:.1f} GiB, with all that a GPU needs "
            f"{self.needed_gib:.1f} of {self.row.capacity_gib:g} GiB, fits: {self.fits}; planned {self.row.memory_gib:.1f} GiB, "
            f"fits: {self.row.fits}"
        )


def rehearse_rows(answer: Answer, count: int, *, model: str, system: str) -> Iterator[Rehearsed]:
    """Rehearse the fullest ranks of the first `count` rows, one row after the other; some seconds each."""
    parser = argparse.ArgumentParser()
    add_request_arguments(parser)
    for row in answer.rows[:count]:
        words = run_words(answer.problem, row.sizes, model=model, system=system)
        found = rehearse(resolve(from_options(parser.parse_args(words)), ask_scheduler=False), "fullest")
        yield Rehearsed(
            row=row,
            peak_gib=max(report.peak_bytes for report in found.reports) / GIB,
            needed_gib=max(room.needed_bytes or 0 for room in found.rooms) / GIB,
            fits=found.fits or "",
        )
