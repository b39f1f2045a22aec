"""Run the trainer's own step of chosen ranks on tensors without data, in a world of all ranks: memory, FLOPs, communication.

No GPU, no Slurm and no data are needed. What it proves and what not: docs/rehearse.md.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import add_format
from nlp_bench.config.request import Request, add_request_arguments, from_options
from nlp_bench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nlp_bench.config.run import Run
    from nlp_bench.rehearse.ranks import Work
    from nlp_bench.rehearse.report import RankReport

EXAMPLE = "nlp-bench rehearse --model 175 --system juwels-booster --nodes 96 --tp 8 --pp 8 --vpp 4 --ranks 0,last"

MANY_RANKS = 4096
"""Of a job whose rehearsal is worth a word before the first rank is done."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench rehearse`."""
    add_request_arguments(parser)
    own = parser.add_argument_group("what is rehearsed")
    own.add_argument(
        "--run", type=Path, metavar="FILE", help="a resolved run.json, or its folder, instead of all of the above"
    )
    own.add_argument(
        "--ranks", default="fullest", metavar="WORDS",
        help="numbers (0,8 or 0-7), last, stages (the first rank of each pipeline stage), all, or fullest: the first rank of the "
        "first, the second and the last stage (default)",
    )  # fmt: skip
    add_format(own, "table", "json")
    own.add_argument("--output", type=Path, metavar="DIR", help="write rehearsal.json into this folder")


def run(options: argparse.Namespace) -> int:
    """Rehearse; print, and with --output write rehearsal.json."""
    from nlp_bench.files import write_json
    from nlp_bench.launch.folder import writable_folder
    from nlp_bench.rehearse.rehearsal import as_tables, rehearsed, works_of
    from nlp_bench.show.table import json_text

    folder = writable_folder(options.output) if options.output else None
    resolved = _run(options)
    works, notes = works_of(resolved, options.ranks)
    found = rehearsed(resolved, works, notes, _told(works))
    if folder:
        write_json(folder / "rehearsal.json", found.record())
    print(json_text(found.record()) if options.format == "json" else as_tables(found))
    return 0


def _run(options: argparse.Namespace) -> "Run":
    from nlp_bench.config.resolve import for_rehearsal, resolve
    from nlp_bench.config.run import read_run

    request = from_options(options)
    if options.run:
        if request != Request():
            raise UsageError("--run: a run.json is resolved already; leave the options that describe a run out")
        return read_run(options.run)
    return resolve(for_rehearsal(request), ask_scheduler=False)


def _told(works: "Sequence[Work]") -> "Iterator[RankReport]":
    """Rehearse, say on a terminal how far it is, and anywhere what takes so long where nothing was heard for a while."""
    import threading

    from nlp_bench.files import PATIENCE_S
    from nlp_bench.rehearse.ranks import rehearse_ranks

    world, count, is_terminal = works[0].layout.world_size, len(works), sys.stderr.isatty()
    said = f"nlp-bench: rehearsing {count} of {world} ranks; each makes the process groups of all {world}, which may take minutes"
    timer = threading.Timer(PATIENCE_S if world > MANY_RANKS else 10 * PATIENCE_S, print, [said], {"file": sys.stderr})
    timer.daemon = True
    timer.start()
    try:
        for number, report in enumerate(rehearse_ranks(works), start=1):
            timer.cancel()
            yield report
            if is_terminal:
                end = "\n" if number == count else ""
                print(f"\rrehearsed {number} of {count} ranks", end=end, file=sys.stderr, flush=True)
    finally:
        timer.cancel()
