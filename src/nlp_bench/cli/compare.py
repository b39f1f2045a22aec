"""Compare two measurements: whether B is faster than A, by how much, and whether both did the same work.

A and B are each what `nlp-bench report` takes (log, run folder, JUBE run, folder with several repeats), or a part of the history:
history:NAME, history:NUMBER, history:last (the valid run before the other side's), history:last-N.
Runs of different work are refused: the frozen parameters must be equal, and what both may tune is shown.
One run each proves nothing (NOT PROVEN) unless it is known what runs of the machine differ by: from repeats, --scatter, or history:last.
Exit code 0; 1 when the gate stops or a side has no number; 2 for a refused comparison or a wrong word.
"""

import argparse

from nlp_bench.cli.options import (
    add_allow_measured,
    add_format,
    add_history_file,
    add_pattern,
    add_sizes,
    add_tokens,
    overrides_of,
    use_one_thread,
)
from nlp_bench.config.values import percentage
from nlp_bench.errors import UsageError

EXAMPLE = """nlp-bench compare runs/before runs/after
  nlp-bench compare history:last-10 runs/tonight --gate 3
  nlp-bench compare baseline.log new.log --same-workload --format markdown"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add both sides, the gate and the form of the answer."""
    parser.add_argument("a", metavar="A", help="the baseline: log, run folder, folder of repeats, or history:NAME")
    parser.add_argument("b", metavar="B", help="what is held against it")
    parser.add_argument(
        "--gate", type=percentage, metavar="PERCENT",
        help="exit with 1 when B is proven to be slower by more than this (FAIL), or has no number",
    )  # fmt: skip
    parser.add_argument(
        "--equivalent", type=percentage, metavar="PERCENT",
        help="say whether neither is slower than the other by more than this: EQUIVALENT, NOT EQUIVALENT (exit code 1) or NOT PROVEN",
    )  # fmt: skip
    parser.add_argument(
        "--strict", action="store_true", help="with --gate or --equivalent: exit with 1 where it is not proven, too"
    )
    parser.add_argument(
        "--scatter", metavar="RUNS",
        help="repeated runs of the same machine, as A: what they differ by is known then, and one run each can be enough",
    )  # fmt: skip
    parser.add_argument(
        "--same-workload",
        action="store_true",
        help="you vouch that logs which do not show what they trained did the same",
    )
    add_allow_measured(parser, "take as repeats of each other")
    add_tokens(parser)
    add_sizes(parser)
    add_pattern(parser)
    add_history_file(parser)
    add_format(parser, "table", "json", "markdown")


def run(options: argparse.Namespace) -> int:
    """Read both sides, compare, print; return the exit code."""
    use_one_thread()
    from nlp_bench.analysis.comparison import Wanted, compare, read_sides
    from nlp_bench.analysis.comparison_text import FORMATS
    from nlp_bench.analysis.contrast import Gate

    asked = ((options.gate, False), (options.equivalent, True))
    gates = [Gate(percent=percent, strict=options.strict, equivalence=both) for percent, both in asked if percent]
    if options.strict and not gates:
        raise UsageError("--strict goes with --gate PERCENT or --equivalent PERCENT")
    wanted = Wanted(
        overrides=overrides_of(options),
        trust=options.same_workload,
        allow_measured=options.allow_measured,
        history=options.file,
        scatter=options.scatter,
    )
    a, b = read_sides(options.a, options.b, wanted)
    found = compare(a, b, tokens=options.tokens, vouched=options.same_workload, gates=gates)
    print(FORMATS[options.format](found), end="")
    return found.exit_code
