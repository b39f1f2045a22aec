"""Show how far runs are (queue reason, iteration, tokens per second, time left) until all of them have ended."""

import argparse
from pathlib import Path

from nlp_bench.cli.options import add_every, add_format
from nlp_bench.config.values import duration

EXAMPLE = """nlp-bench watch benchmark/jube/nlp_benchmark_run
  nlp-bench watch benchmark/jube/nlp_benchmark_run/000003 --continue --max-hours 24"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench watch`."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="DIR", help="run folder, or any folder above run folders"
    )
    add_every(parser, 5.0, "time between two looks (5)")
    parser.add_argument("--once", action="store_true", help="look once and return")
    parser.add_argument("--while-pid", type=int, metavar="PID", help="go on for as long as this process lives")
    parser.add_argument("--new", action="store_true", help="show only runs that are submitted from now on")
    parser.add_argument(
        "--continue", dest="drives", action="store_true",
        help="also call `jube continue` for JUBE's runs until nothing waits in them: unattended to the table",
    )  # fmt: skip
    parser.add_argument(
        "--until", metavar="SHARE",
        help="say when the mean time of a run is known to this share: 1%% (default: what the run itself was submitted with)",
    )  # fmt: skip
    parser.add_argument(
        "--max-hours", type=duration("h"), metavar="H", help="return after H hours (or 90min, 2d), with exit code 3"
    )
    add_format(parser, "lines", "json", text="lines on stderr, or one JSON record per change on stdout (default lines)")


def run(options: argparse.Namespace) -> int:
    """Print a line per run whenever it has moved; return 0 when every run is VALID, 3 when the hours are over before, else 1."""
    from nlp_bench.launch.follow.watch import Manner, watch
    from nlp_bench.measure.anytime import percent

    if options.until is not None:
        percent("--until", options.until)
    manner = Manner(
        every_s=options.every,
        once=options.once,
        while_pid=options.while_pid,
        only_new=options.new,
        drives=options.drives,
        max_hours=options.max_hours,
        until=options.until,
        as_json=options.format == "json",
    )
    return watch(options.paths, manner)
