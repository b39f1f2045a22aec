"""Any training log, run folder or published table to tokens per second and the time of the hypothetical training.

PATH is a log of any dialect (plain, gzip, xz, zstd or bzip2; known by content), - for standard input, a pattern in quotes, or a folder:
one with runs of nlp-bench or JUBE gives these runs, any other every log below it (not hidden files, not binary ones; files
without a training line are counted in one remark).
Exit code 0 when every run has a number, 1 when some have none, 2 for a wrong word on the command line.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.errors import UsageError

if TYPE_CHECKING:
    from nlp_bench.report.table import Report

EXAMPLE = """nlp-bench report job.out --sequence-length 2048
  nlp-bench report train.log.zst --num-gpus 64 --explain
  nlp-bench report logs/ 'runs/**/*.log' --format csv
  nlp-bench report --dialects"""

MAX_COUNT = 10**18
"""No training has more tokens; whole numbers above have no exact place in the arithmetic."""


def _count(text: str) -> int:
    try:
        value = int(text.replace("_", ""))
    except ValueError:
        value = 0
    if not 0 < value <= MAX_COUNT:
        rule = "is no whole number above 0 and at most 10^18; write all digits, as 20000000"
        raise argparse.ArgumentTypeError(f"{text[:40]!r} {rule}")
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
        "paths", metavar="PATH", nargs="*", help="log, -, run folder, folder of logs, 'pattern*', reference table"
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
    parser.add_argument(
        "--explain", action="store_true", help="print the lines, sources, window and formula behind each number"
    )
    formats = ("table", "json", "csv", "markdown", "html")
    parser.add_argument("--format", choices=formats, default="table", help="form of standard output (default table)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="also write tables and plots into this folder")
    parser.add_argument(
        "--dialects", action="store_true", help="list the dialects of logs that can be read (table, json, markdown)"
    )


def run(options: argparse.Namespace) -> int:
    """Read, measure, print; return 0 or 1."""
    # No linear algebra is done here, and a login node may not allow a thread for each of its cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if options.dialects:
        return _dialects(options)
    if not options.paths:
        raise UsageError("PATH is missing: give a log file, a folder, a pattern in quotes or - (or --dialects)")
    report = _read(options)
    from nlp_bench.report.formats import FORMATS

    print(FORMATS[options.format](report), end="")
    if options.format == "csv":
        for passed in report.passed_over:  # its rows have no place for it
            print(f"nlp-bench: {passed.sentence()}", file=sys.stderr)
    if options.explain:
        _explain(report, options.format)
    if options.output:
        from nlp_bench.report.output import write_report  # heavy

        for path in write_report(report, options.output):
            print(f"wrote {path}", file=sys.stderr)
    return 0 if all(entry.has_number for entry in report.entries) else 1


def _read(options: argparse.Namespace) -> "Report":
    from nlp_bench.measure.sizes import Overrides  # --help stays light
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
    sources = read_sources(
        options.paths, overrides, with_quotes=options.explain, with_samples=options.output is not None
    )
    return Report(
        entries=sources.entries, tokens=options.tokens, limit_s=options.limit, passed_over=sources.passed_over
    )


def _dialects(options: argparse.Namespace) -> int:
    from nlp_bench.report.dialects import DIALECT_FORMATS

    if options.paths:
        raise UsageError("--dialects takes no PATH; leave one of the two out")
    if options.format not in DIALECT_FORMATS:
        raise UsageError(f"--dialects has no --format {options.format}; choose one of {', '.join(DIALECT_FORMATS)}")
    print(DIALECT_FORMATS[options.format](), end="")
    return 0


def _explain(report: "Report", form: str) -> None:
    from nlp_bench.report.explain import explain

    # Beside data the explanation is talk: standard output stays one document.
    print("\n" + explain(report), end="", file=sys.stdout if form == "table" else sys.stderr)
