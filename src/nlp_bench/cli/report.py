"""Any training log, run folder or published table to tokens per second and the time of the hypothetical training.

Exit code 0 when every run has a number, 1 when some have none, 2 for a wrong word on the command line.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nlp_bench.report.table import Report

EXAMPLE = "nlp-bench report job.out --sequence-length 2048"


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the paths, what a log may not say, and the form of the answer."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help="log (plain, gzip, xz), -, run folder, JUBE folder, reference table"
    )
    parser.add_argument(
        "--tokens", type=_count, default=20_000_000, metavar="N", help="tokens of the training (default 20000000)"
    )
    parser.add_argument(
        "--sequence-length", type=_count, metavar="N", help="tokens per sample, where the log does not say"
    )
    parser.add_argument(
        "--global-batch-size", type=_count, metavar="N", help="samples per iteration, where the log does not say"
    )
    parser.add_argument("--num-gpus", type=_count, metavar="N", help="GPUs of the run, where the log does not say")
    parser.add_argument(
        "--limit", type=_seconds, metavar="SECONDS", help="say per run whether its time is proven to be within"
    )
    parser.add_argument("--explain", action="store_true", help="print the lines, window and formula behind each number")
    formats = ("table", "json", "csv", "markdown", "html")
    parser.add_argument("--format", choices=formats, default="table", help="form of standard output (default table)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="also write tables and plots into this folder")


def run(options: argparse.Namespace) -> int:
    """Read, measure, print; return 0 or 1."""
    from nlp_bench.measure.foreign import Overrides  # --help stays light
    from nlp_bench.report.formats import FORMATS
    from nlp_bench.report.sources import read_sources
    from nlp_bench.report.table import Report

    if options.output:
        from nlp_bench.report.output import prepare  # heavy

        prepare(options.output)
    overrides = Overrides(
        sequence_length=options.sequence_length,
        global_batch_size=options.global_batch_size,
        num_gpus=options.num_gpus,
    )
    report = Report(entries=read_sources(options.paths, overrides), tokens=options.tokens, limit_s=options.limit)
    print(FORMATS[options.format](report), end="")
    if options.explain:
        _explain(report, options.format)
    if options.output:
        from nlp_bench.report.output import write_report  # heavy

        for path in write_report(report, options.output):
            print(f"wrote {path}", file=sys.stderr)
    return 0 if all(entry.has_number for entry in report.entries) else 1


def _explain(report: "Report", form: str) -> None:
    from nlp_bench.report.explain import explain

    # Beside data the explanation is talk: standard output stays one document.
    print("\n" + explain(report), end="", file=sys.stdout if form == "table" else sys.stderr)
