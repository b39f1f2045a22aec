"""Fit the constants of the time model to a table of measured points, and say how well they predict what the fit has not seen.

Points of one configuration group (model, GPU, number format, TP, PP, CP, micro batch, sequence, recompute) never stand on both
sides of a split. A row that no GPU can have run so fast, or that the rows of other sources contradict by more than half, is held back,
with the reason, until its cell in the column `looked_at` says who has looked. Nothing is written without --output.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nlp_bench.plan.constants import Constants
    from nlp_bench.plan.fit.data import Measured

EXAMPLE = """nlp-bench plan fit reports/reference/published_points/points.csv --cross-validate
  nlp-bench plan fit reports/reference/published_points/points.csv --output benchmark/plan.toml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench plan fit`."""
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


def run(options: argparse.Namespace) -> int:
    """Fit, print, write; return the exit code."""
    import os

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from nlp_bench.plan.constants import read_constants
    from nlp_bench.plan.fit.data import read_measured
    from nlp_bench.plan.fit.report import ablation_table, accuracy, constants_table
    from nlp_bench.plan.fit.solve import solve

    constants = read_constants()
    measured = _trusted(read_measured(options.points, constants), constants)
    fitted = solve(measured, constants)
    print("\n".join(constants_table(fitted)))
    if options.cross_validate:
        print("\n" + "\n".join(accuracy(measured, constants, fitted)))
    if options.ablate:
        from nlp_bench.plan.fit.ablate import ablations

        print("\n" + "\n".join(ablation_table(ablations(measured, constants))))
    if options.intervals or options.output:
        from nlp_bench.plan.fit.reach import intervals
        from nlp_bench.plan.fit.report import interval_tables

        learned = intervals(measured, constants, fitted)
        if options.intervals:
            print("\n" + "\n".join(interval_tables(learned, measured, constants)))
    if options.output:
        from nlp_bench.plan.fit.written import write_fit

        write_fit(options.output, options.points, learned, fitted)
        print(f"nlp-bench: constants of {len(measured)} rows: {options.output}", file=sys.stderr)
    return 0


def _trusted(measured: "Measured", constants: "Constants") -> "Measured":
    """Return the rows that nothing speaks against, and say which are held back."""
    import numpy as np

    from nlp_bench.plan.fit.gate import held_back

    held = held_back(measured, constants)
    for one, reason in held.items():
        print(f"nlp-bench: held back: {one}: {reason}", file=sys.stderr)
    if held:
        print(
            "nlp-bench: compare them with their source; mend the row, or write into its column looked_at who has looked and what it says",
            file=sys.stderr,
        )
    return measured.take(np.array([one not in held for one in measured.ids])) if held else measured
