"""Decide how runs ended (from Slurm, exit status and log) and leave outcome.json and JUBE's marker `ready`."""

import argparse
import sys
from pathlib import Path

from nlp_bench.cli.options import add_every

EXAMPLE = "nlp-bench sync benchmark/jube/nlp_benchmark_run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench sync`."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="DIR", help="run folder, or any folder above run folders"
    )
    parser.add_argument("--exit-status", type=int, metavar="N", help="exit status of the job (given by the job script)")
    parser.add_argument(
        "--signalled", action="store_true", help=argparse.SUPPRESS
    )  # of scripts that were queued earlier
    parser.add_argument("--signal", default="", metavar="NAME", help="the signal that told it to stop (likewise)")
    parser.add_argument("--elapsed", type=int, metavar="SECONDS", help="how long it took, from begin to end (likewise)")
    parser.add_argument("--wait", action="store_true", help="poll until every run has ended")
    add_every(parser, 60.0, "with --wait: longest time between two looks (60)")


def run(options: argparse.Namespace) -> int:
    """Print one line per run: its outcome, or the state of its job."""
    from nlp_bench.errors import NlpBenchError, explained
    from nlp_bench.escape import one_line
    from nlp_bench.launch.end.advice import short
    from nlp_bench.launch.follow.runs import find_runs
    from nlp_bench.launch.follow.sync import sync, sync_script, wait
    from nlp_bench.outcome import Outcome

    if options.exit_status is not None:  # the job script speaks of its own run, recorded or not
        signal = options.signal or ("TERM" if options.signalled else "")
        ending, state = sync_script(
            options.paths[0], exit_status=options.exit_status, signal=signal, elapsed_s=options.elapsed
        )
        print(f"{options.paths[0]}: {ending.text() if ending else state}")
        return 0
    folders = find_runs(options.paths)
    if not folders:
        print(f"nlp-bench: no run.json of a submitted run below {' '.join(map(str, options.paths))}", file=sys.stderr)
        return 1
    num_faults = 0
    for folder in folders:
        try:
            ending = wait(folder, poll_s=options.every) if options.wait else None
            ending, state = (ending, "ended") if ending else sync(folder)
        except (NlpBenchError, OSError) as error:  # one damaged folder must not hide the others
            said = f"{folder}: {explained(error)}" if isinstance(error, OSError) else error
            print(f"nlp-bench: error: {said}", file=sys.stderr)
            num_faults += 1
            continue
        print(f"{one_line(folder)}: {ending.text() if ending else state}")
        if ending and ending.outcome is not Outcome.VALID:
            print(f"  {short(ending, folder)}", file=sys.stderr)
    return 1 if num_faults else 0
