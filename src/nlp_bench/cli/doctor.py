"""What is wrong with this machine, before a job waits in the queue: each check with evidence and the command to type next.

Exit code 0: no check failed; 1: one failed, or a node stands out; 2: a wrong word. docs/doctor.md tells what each check means.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import add_format
from nlp_bench.config.request import add_run_options, from_options
from nlp_bench.config.values import duration

if TYPE_CHECKING:
    from nlp_bench.doctor.checks import Examined
    from nlp_bench.doctor.place import Place

EXAMPLE = """nlp-bench doctor --system juwels-booster --model 175
  nlp-bench doctor --checks jube,disk,data
  nlp-bench doctor --nodes all                 # a job of a minute on every node of the partition: which ones are slow, or silent"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench doctor`."""
    what = parser.add_argument_group("for which run")
    texts = {"model": "file of benchmark/models (default: tiny), or a path"}
    names = ("system", "model", "launcher", "data_path", "queue", "account", "timelimit", "gres", "container_image")
    add_run_options(what, names, texts)
    what.add_argument("--runs", type=Path, metavar="DIR", help="where runs will be written (default: reports/runs)")
    parser.add_argument("--checks", metavar="A,B", help="these checks only (--list names them)")
    parser.add_argument("--list", action="store_true", help="name the checks and end")
    parser.add_argument("--verbose", action="store_true", help="evidence of the checks that are well, too")
    add_format(parser, "table", "json")
    nodes = parser.add_argument_group(
        "testing nodes (a Slurm job; inside an allocation at once; without Slurm this machine)"
    )
    nodes.add_argument(
        "--nodes",
        dest="which",
        metavar="WHICH",
        help="all nodes of the partition that are up, a number of them, or a list: node[1-3],node7",
    )
    nodes.add_argument(
        "--wait",
        type=duration("s"),
        default=3600.0,
        metavar="SECONDS",
        help="how long the job may wait and run (default: 3600)",
    )
    nodes.add_argument(
        "--join-timeout",
        "--join",
        dest="join",
        type=duration("s"),
        default=60.0,
        metavar="SECONDS",
        help="how long the nodes wait for each other (default: 60)",
    )
    nodes.add_argument(
        "--output", type=Path, metavar="DIR", help="folder of the test's records (default: reports/doctor/TIME)"
    )
    nodes.add_argument("--test-this-node", type=Path, metavar="DIR", help=argparse.SUPPRESS)  # what the job starts


def run(options: argparse.Namespace) -> int:
    """Examine, print, and return 1 where something failed."""
    from nlp_bench.doctor.checks import CHECKS, chosen, examine, is_bad
    from nlp_bench.doctor.place import look_around
    from nlp_bench.doctor.worker import test_this_node

    if options.list:
        width = max(map(len, CHECKS))
        print("\n".join(f"{name:<{width}}  {text}" for name, text in CHECKS.items()))
        return 0
    names = chosen(options.checks)
    if options.test_this_node:
        test_this_node(options.test_this_node)
        return 0
    place = look_around(from_options(options), runs=options.runs)
    if options.which is not None:
        return _nodes(options, place, options.which, names)
    examined = examine(place, names)
    _print(options, place, examined)
    return 1 if is_bad(examined) else 0


def _print(options: argparse.Namespace, place: "Place", examined: "list[Examined]") -> None:
    from nlp_bench.doctor.checks import counts, record, table

    if options.format == "json":
        print(json.dumps(record(place, examined), indent=1, ensure_ascii=False))
        return
    print(table(examined, is_verbose=options.verbose))
    print(f"nlp-bench: {counts(examined)}", file=sys.stderr)


def _nodes(options: argparse.Namespace, place: "Place", which: str, names: list[str]) -> int:
    """Examine this node, test the others, write doctor.json; return 1 where either found a fault."""
    from nlp_bench.doctor.checks import examine, is_bad, record
    from nlp_bench.doctor.nodes import carry_out, choose, end_of_errors, prepare, read_nodes
    from nlp_bench.doctor.verdict import text, verdict
    from nlp_bench.files import write_json

    choice = choose(place, which)
    examined = examine(place, names) if options.checks else []
    folder = prepare(place, choice, options.output, join_s=options.join)
    ended = carry_out(place, folder, wait_s=options.wait, say=_say)
    found = verdict(choice, read_nodes(folder), place.accelerator, folder=folder, ended=ended)
    found["errors"] = end_of_errors(folder) if found["bad"] else []
    whole = record(place, examined, nodes=found)
    write_json(folder / "doctor.json", whole)
    if options.format == "json":
        print(json.dumps(whole, indent=1, ensure_ascii=False))
    else:
        if examined:
            _print(options, place, examined)
            print()
        print(text(found))
    return 1 if found["bad"] or ended or is_bad(examined) else 0


def _say(words: str) -> None:
    print(f"nlp-bench: {words}", file=sys.stderr)
