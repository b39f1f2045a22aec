"""Resolve one run from data files, options and JUBE's tags, check its arithmetic and limits, and write run.json."""

import argparse
import os
import sys
from pathlib import Path

from nlp_bench.config.request import Request, add_request_arguments, from_options
from nlp_bench.config.system import System
from nlp_bench.config.values import OneOf
from nlp_bench.errors import UsageError

EXAMPLE = "nlp-bench check --model 175 --system juwels-booster --tp 8 --pp 8 --output ."

MAX_REPEATS = 100
MACHINE = ("environment", "machine")
"""What may be asked of the machine alone, without a model."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench check`."""
    add_request_arguments(parser)
    parser.add_argument("--jube-run", type=Path, metavar="DIR", help="folder of a JUBE run, whose tags are applied")
    parser.add_argument(
        "--run", type=Path, metavar="FILE", help="with --print of the machine: the system of this run.json"
    )
    parser.add_argument("--tags", nargs="*", default=[], metavar="TAG", help="tags as JUBE takes them: 175 slurm")
    parser.add_argument(
        "--repeats", default="1", metavar="N", help="refuse unless it is a number of runs from 1 to 100"
    )
    parser.add_argument("--offline", action="store_true", help="ask no Slurm: check a run of another machine")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write run.json into this folder")
    parser.add_argument(
        "--print", dest="what", type=OneOf("summary", *MACHINE), default="summary", metavar="WHAT",
        help="what goes to stdout: summary (the resolved run); environment: the shell lines that load the system's software; machine, for the set-up "
        "script: cuda or cpu, whether the site's Python packages are seen, and those shell lines",
    )  # fmt: skip


def requested(options: argparse.Namespace) -> tuple[Request, bool]:
    """Return what the options and, under JUBE, the tags ask for, and whether it is to be rehearsed only."""
    from nlp_bench.config.resolve import REHEARSE, apply_tags, for_rehearsal, read_tags

    tags = read_tags(options.jube_run) if options.jube_run else options.tags
    request = apply_tags(from_options(options), tags)
    return (for_rehearsal(request), True) if REHEARSE in tags else (request, False)


def run(options: argparse.Namespace) -> int:
    """Check, print and, with --output, write run.json."""
    from nlp_bench.config.catalog import find, root
    from nlp_bench.config.resolve import resolve, resolve_system
    from nlp_bench.config.run import read_run, summary
    from nlp_bench.config.scheduler import get_scheduler
    from nlp_bench.launch.arguments import check_arguments
    from nlp_bench.launch.expected import expected
    from nlp_bench.launch.folder import script_text, writable_folder
    from nlp_bench.launch.nodes.torchrun import program_words

    _check_repeats(options.repeats)
    request, is_rehearsal = requested(options)
    if options.run and options.what == "summary":
        raise UsageError("--run: a run.json is resolved already; it goes with --print environment or machine")
    if options.what != "summary":  # these ask for the machine only: a login node may set up software for any model
        system = read_run(options.run).system if options.run else resolve_system(request)
        print(_machine(options.what, system))
        return 0
    # Without --output nothing is going to run here, and a named system may be checked where no Slurm answers.
    is_elsewhere = bool(request.system and not request.launcher and not options.output) and not _scheduler_answers(
        str(request.system)
    )
    resolved = resolve(request, ask_scheduler=not (options.offline or is_rehearsal or is_elsewhere))
    check_arguments(resolved)
    program_words(resolved)  # refuses what the other trainer cannot do
    script_text(resolved, root=root(), run_dir=(options.output or Path()).absolute())  # refuses what no script can hold
    if options.output:
        resolved.write(writable_folder(options.output))
    print(summary(resolved))
    files = [
        find("models", request.model or resolved.model.name),
        find("systems", request.system or os.environ.get("NLP_BENCH_SYSTEM") or resolved.system.name),
    ]
    print(f"{'files':<7} {', '.join(map(str, files))}")
    if resolved.system.accelerator == "cuda":
        found = expected(resolved)
        print(f"{'plan':<7} {found if isinstance(found, str) else found.line()}")
        for doubt in () if isinstance(found, str) else found.doubts:
            print(f"nlp-bench: warning: {doubt}", file=sys.stderr)
    if is_elsewhere and resolved.launch.launcher != "local" and not options.offline:
        title = get_scheduler(resolved.launch.launcher).title
        print(
            f"nlp-bench: no {title} answers here: partition, nodes and time limit were not asked for", file=sys.stderr
        )
    for deviation in resolved.deviations:
        print(f"nlp-bench: warning: {deviation}: not the benchmark", file=sys.stderr)
    return 0


def _scheduler_answers(system: str) -> bool:
    """Whether there is a scheduler to ask for what is checked; for a machine without one, nobody is asked."""
    from nlp_bench.config.catalog import load_system
    from nlp_bench.config.scheduler import LOCAL, NoAnswerError, get_scheduler

    launcher = load_system(system).launcher
    try:
        return launcher != LOCAL and get_scheduler(launcher).detect() is not None
    except NoAnswerError:
        return False


def _check_repeats(text: str) -> None:
    """Raise UsageError unless JUBE can make a job of each repeat: its template would take any other word for one run."""
    if text not in map(str, range(1, MAX_REPEATS + 1)):  # 05 would be no number in JUBE's template
        raise UsageError(f"repeats: {text[:40]!r} is no whole number from 1 to {MAX_REPEATS}; 5 runs are usual")


def _machine(what: str, system: System) -> str:
    from nlp_bench.config import machine
    from nlp_bench.launch.script import software_lines

    lines = software_lines(system)
    if what == "machine":
        lines = [machine.settle(system)[0], "yes" if system.software.system_site_packages else "no", *lines]
    return "\n".join(lines)
