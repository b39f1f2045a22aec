"""`nlp-bench rehearse`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import form
from nlp_bench.cli.parser import Command
from nlp_bench.config.options import value
from nlp_bench.config.request import Request, from_options
from nlp_bench.errors import UsageError
from nlp_bench.files import reported_late, write_json
from nlp_bench.immutable import immutable
from nlp_bench.terminal import StatusLine, duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nlp_bench.config.run import Run
    from nlp_bench.rehearse.ranks import Work
    from nlp_bench.rehearse.report import RankReport

WHAT = "what is rehearsed"
MANY_RANKS = 4096  # ranks of a job from which on its rehearsal is announced before the first rank is done
STEP_S = 30.0  # seconds between two lines of progress where there is no terminal


@immutable
class Rehearse(Command, Request):
    """Run the trainer's own step of chosen ranks on tensors without data, in a world of all ranks: memory, FLOPs, communication.

    No GPU, no Slurm and no data are needed. What it proves and what not: docs/rehearse.md.
    """

    EXAMPLE = "nlp-bench rehearse --model 175 --system juwels-booster --nodes 96 --tp 8 --pp 8 --vpp 4 --ranks 0,last"

    recorded: Path | None = value("--run", metavar="FILE", group=WHAT)
    """A resolved run.json, or its folder, instead of all of the above."""
    ranks: str = value(default="fullest", metavar="WORDS", group=WHAT)
    """Numbers (0,8 or 0-7), last, stages (the first rank of each pipeline stage), all, or fullest: the first rank of the first, the
    second and the last stage (default)."""
    format: str = form("table", "json", group=WHAT)
    output: Path | None = value(metavar="DIR", group=WHAT)  # Write rehearsal.json into this folder.

    def run(self) -> int:
        from nlp_bench.launch.folder import record_folder
        from nlp_bench.launch.prediction import REHEARSAL
        from nlp_bench.rehearse.rehearsal import SCHEMA, as_tables, rehearsed, works_of
        from nlp_bench.show.table import json_text

        folder = record_folder(self.output, REHEARSAL, SCHEMA) if self.output else None
        resolved = self._resolved()
        works, notes = works_of(resolved, self.ranks)
        found = rehearsed(resolved, works, notes, _with_progress(works))
        if folder:
            write_json(folder / REHEARSAL, found.record())
        print(json_text(found.record()) if self.format == "json" else as_tables(found), end="")
        return 0

    def _resolved(self) -> "Run":
        from nlp_bench.config.resolve import for_rehearsal, resolve
        from nlp_bench.config.run import read_run

        request = from_options(self)
        if self.recorded:
            if request != Request():
                raise UsageError("--run: a run.json is resolved already; leave the options that describe a run out")
            return read_run(self.recorded)
        return resolve(for_rehearsal(request), ask_scheduler=False)


def _with_progress(works: "Sequence[Work]") -> "Iterator[RankReport]":
    """Rehearse with progress: on a terminal after each rank, elsewhere now and then; a first rank that takes long is announced."""
    from nlp_bench.rehearse.ranks import rehearse_ranks

    world, count, line = works[0].layout.world_size, len(works), StatusLine(sys.stderr)
    begun = (
        f"rehearsing {count} of {world} ranks; each makes the process groups of all {world} and executes all "
        f"{works[0].layout.num_microbatches} micro-batches, which may take minutes"
    )
    started_s = time.monotonic()
    next_s = started_s if line.is_terminal else started_s + STEP_S
    with reported_late(begun, patience=1 if world > MANY_RANKS else 10) as is_going_on:
        for number, report in enumerate(rehearse_ranks(works), start=1):
            is_going_on()
            yield report
            now_s = time.monotonic()
            if now_s >= next_s and number < count:
                next_s = now_s if line.is_terminal else now_s + STEP_S
                left = duration_text((now_s - started_s) / number * (count - number))
                line.show(f"nlp-bench: rehearsed {number} of {count} ranks, {left} left")
    line.wipe()
