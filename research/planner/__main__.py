"""Fit the constants of the time model to a table of measured points, and say how well they predict what the fit has not seen.

Points of one configuration group (model, GPU, number format, TP, PP, CP, micro batch, sequence, recompute) never stand on both
sides of a split. A row that no GPU can have run so fast, or that the rows of other sources contradict by more than half, is held back,
with the reason, until its cell in the column `looked_at` says who has looked. Nothing is written without --output.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nlp_bench.errors import NlpBenchError
from nlp_bench.plan.constants import Constants, read_constants
from research.planner.data import Measured, read_measured
from research.planner.file import write_fit
from research.planner.gate import held_back
from research.planner.reach import intervals
from research.planner.report import ablation_table, accuracy, constants_table, interval_tables
from research.planner.solve import solve
from research.planner.validate import ablations

EXAMPLE = """example:
  python -m research.planner reports/reference/published_points/points.csv --cross-validate
  python -m research.planner reports/reference/published_points/points.csv --output benchmark/plan.toml"""


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line asks; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m research.planner",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "points", metavar="POINTS.csv", type=Path, help="table of measured points (docs/accuracy.md has the columns)"
    )
    parser.add_argument(
        "--output", metavar="plan.toml", type=Path, help="write benchmark/plan.toml with the fitted values here"
    )
    parser.add_argument(
        "--cross-validate", action="store_true", help="print the errors of rows that the fit has not seen"
    )
    parser.add_argument(
        "--intervals",
        action="store_true",
        help="print what widens the 90 %% interval, and how many rows it holds of kinds that fits have not seen (a minute)",
    )
    parser.add_argument(
        "--ablate", action="store_true", help="print what each term of the model is worth (some minutes)"
    )
    options = parser.parse_args(words)
    try:
        return _run(options)
    except NlpBenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    constants = read_constants()
    measured = _trusted(read_measured(options.points, constants), constants)
    fitted = solve(measured, constants)
    print("\n".join(constants_table(fitted)))
    if options.cross_validate:
        print("\n" + "\n".join(accuracy(measured, constants, fitted)))
    if options.ablate:
        print("\n" + "\n".join(ablation_table(ablations(measured, constants))))
    if options.intervals or options.output:
        learned = intervals(measured, constants, fitted)
        if options.intervals:
            print("\n" + "\n".join(interval_tables(learned, measured, constants)))
    if options.output:
        write_fit(options.output, options.points, learned, fitted)
        print(f"constants of {len(measured)} rows: {options.output}", file=sys.stderr)
    return 0


def _trusted(measured: Measured, constants: Constants) -> Measured:
    """Return the rows that nothing speaks against, and say which are held back."""
    held = held_back(measured, constants)
    for one, reason in held.items():
        print(f"held back: {one}: {reason}", file=sys.stderr)
    if held:
        print(
            "compare them with their source; mend the row, or write into its column looked_at who has looked and what it says",
            file=sys.stderr,
        )
    return measured.take(np.array([one not in held for one in measured.ids])) if held else measured


if __name__ == "__main__":
    sys.exit(main())
