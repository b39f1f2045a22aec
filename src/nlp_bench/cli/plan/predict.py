"""Predict a table of points: seconds of an iteration with a 90 % interval, and peak memory, from the configuration columns alone.

What was measured is not read. A row that no rule completes stays empty, and the reason goes to standard error.
Exit code 0: every row is answered or refused with its reason; 2: no table of points.
"""

import argparse
import sys
from pathlib import Path

from nlp_bench.cli.options import add_constants, refuse_to_replace

EXAMPLE = """nlp-bench plan predict reports/reference/published_points/points.csv --output predictions.csv"""
_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench plan predict`."""
    parser.add_argument(
        "points", metavar="POINTS.csv", type=Path, help="table of configurations (docs/accuracy.md has the columns)"
    )
    parser.add_argument(
        "--output", metavar="PRED.csv", type=Path, help="where the predictions go (default standard output)"
    )
    add_constants(parser)
    parser.add_argument(
        "--cold", action="store_true", help="data sheets only: every fitted constant at what was expected of it"
    )


def run(options: argparse.Namespace) -> int:
    """Read, predict, write; return the exit code."""
    from nlp_bench.files import write_text
    from nlp_bench.plan.constants import read_constants
    from nlp_bench.plan.predict import predictions_of, read_rows

    refuse_to_replace("--output", options.output, mark=b"id,iter_time_s,")
    constants = read_constants(options.constants)
    predicted = predictions_of(read_rows(options.points), constants.cold() if options.cold else constants)
    _tell(predicted.refused)
    if options.output is None:
        print(predicted.text(), end="")
        return 0
    write_text(options.output, predicted.text())
    done = len(predicted.rows) - len(predicted.refused)
    print(f"nlp-bench: {done} of {len(predicted.rows)} rows predicted: {options.output}", file=sys.stderr)
    return 0


def _tell(refused: dict[str, str]) -> None:
    """Say why rows have no prediction, rows of one reason together."""
    reasons: dict[str, list[str]] = {}
    for one, reason in refused.items():
        reasons.setdefault(reason, []).append(one)
    for reason, ids in reasons.items():
        more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
        print(f"nlp-bench: not predicted: {', '.join(ids[:_SHOWN])}{more}: {reason}", file=sys.stderr)
