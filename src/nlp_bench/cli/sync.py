"""Decide how runs ended (from Slurm, exit status and log) and leave outcome.json and JUBE's marker `ready`."""

import argparse
import sys
from pathlib import Path

EXAMPLE = "nlp-bench sync benchmark/jube/nlp_benchmark_run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench sync`."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="DIR", help="run folder, or any folder above run folders"
    )
    parser.add_argument("--exit-status", type=int, metavar="N", help="exit status of the job (given by the job script)")
    parser.add_argument("--wait", action="store_true", help="poll until every run has ended")
    parser.add_argument("--poll", type=float, default=20.0, metavar="SECONDS", help="time between two questions (20)")


def run(options: argparse.Namespace) -> int:
    """Print one line per run: its outcome, or the state of its job."""
    from nlp_bench.launch.runs import find_runs
    from nlp_bench.launch.sync import sync, wait

    folders = find_runs(options.paths)
    if not folders:
        print(f"nlp-bench: no run.json of a submitted run below {' '.join(map(str, options.paths))}", file=sys.stderr)
        return 1
    for folder in folders:
        ending = wait(folder, poll_s=options.poll) if options.wait else None
        if ending is None:
            ending, state = sync(folder, exit_status=options.exit_status)
        else:
            state = "ended"
        print(f"{folder}: {ending.outcome.value + ''.join(f': {r}' for r in ending.reasons) if ending else state}")
    return 0
