"""Show how far runs are (queue reason, iteration, tokens per second, time left) until all of them have ended."""

import argparse
from pathlib import Path

EXAMPLE = "nlp-bench watch benchmark/jube/nlp_benchmark_run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench watch`."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="DIR", help="run folder, or any folder above run folders"
    )
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="time between two looks (5)")
    parser.add_argument("--once", action="store_true", help="look once and return")
    parser.add_argument("--while-pid", type=int, metavar="PID", help="go on for as long as this process lives")
    parser.add_argument("--new", action="store_true", help="show only runs that are submitted from now on")


def run(options: argparse.Namespace) -> int:
    """Print a line per run whenever it has moved; return 0 when every run is VALID, else 1."""
    from nlp_bench.launch.watch import watch

    return watch(
        options.paths,
        every_s=options.every,
        once=options.once,
        while_pid=options.while_pid,
        only_new=options.new,
    )
