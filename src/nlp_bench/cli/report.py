"""Any training log, run folder or published table to tokens per second and the time of the hypothetical training.

PATH is a log of any dialect (plain, gzip, xz, zstd or bzip2; known by content), - for standard input, a pattern in quotes, or a folder:
one with runs of nlp-bench or JUBE gives these runs, any other every log below it (not hidden files, not binary ones; files
without a training line are counted in one remark).
Exit code 0 when every run has a number, 1 when some have none, 2 for a wrong word on the command line.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import (
    add_allow_measured,
    add_format,
    add_limit,
    add_pattern,
    add_rules,
    add_sizes,
    add_tokens,
    overrides_of,
    say_written,
    use_one_thread,
)
from nlp_bench.config.accelerators import FORMATS
from nlp_bench.config.values import OneOf, price, size
from nlp_bench.errors import UsageError

if TYPE_CHECKING:
    from nlp_bench.report.formats import View
    from nlp_bench.report.table import Report

MAX_ADVISED = 100
EXAMPLE = """nlp-bench report job.out --sequence-length 2048
  nlp-bench report train.log.zst --num-gpus 64 --explain
  nlp-bench report logs/ 'runs/**/*.log' --format csv
  nlp-bench report runs/ --scaling --output scaling/
  nlp-bench report --dialects"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the paths, what a log may not say, and the form of the answer."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", help="log, -, run folder, folder of logs, 'pattern*', reference table"
    )
    log = parser.add_argument_group("what a log may not say")
    add_sizes(log)
    add_pattern(log)
    log.add_argument("--gpu", metavar="NAME", help="name of the GPU, for its peak (MFU)")
    log.add_argument("--precision", type=OneOf(*FORMATS), metavar="WORD", help=f"number format: {', '.join(FORMATS)}")
    asked = parser.add_argument_group("what is asked")
    add_tokens(asked)
    add_limit(asked)
    add_rules(asked)
    asked.add_argument(
        "--price-per-kwh", type=price, metavar="X", help="cost of the training's energy, where a meter has counted it"
    )
    asked.add_argument("--currency", metavar="WORD", help="unit of the price, such as EUR; goes with --price-per-kwh")
    add_allow_measured(asked, "pool as repeats of one configuration")
    asked.add_argument(
        "--scaling", action="store_true", help="speed-up and efficiency over the GPUs, strong or weak, with flags"
    )
    asked.add_argument(
        "--baseline-gpus", type=size, metavar="N", help="baseline of --scaling (default: the smallest size)"
    )
    asked.add_argument(
        "--sweep", action="store_true", help="rank configurations on equal GPUs; a tie is reported as a tie"
    )
    answer = parser.add_argument_group("the answer")
    answer.add_argument(
        "--explain", action="store_true", help="print the lines, sources, window and formula behind each number"
    )
    text = "form of standard output (default table); records-csv is a row for each logged line"
    add_format(answer, "table", "json", "csv", "records-csv", "markdown", "html", text=text)
    answer.add_argument("--output", type=Path, metavar="DIR", help="also write tables and plots into this folder")
    answer.add_argument(
        "--dialects", action="store_true", help="list the dialects of logs that can be read (table, json, markdown)"
    )


def run(options: argparse.Namespace) -> int:
    """Read, measure, print; return 0 or 1."""
    use_one_thread()
    if options.dialects:
        return _dialects(options)
    if not options.paths:
        raise UsageError("PATH is missing: give a log file, a folder, a pattern in quotes or - (or --dialects)")
    from nlp_bench.report import formats
    from nlp_bench.rules.apply import is_accepted, wanted

    report = _read(options, wanted(options.rules))
    view = _view(options, report)
    # The page holds both views already.
    text = view.text if view and options.format != "html" else lambda form: formats.FORMATS[form](report)
    print(text(options.format), end="")
    if options.format.endswith("csv"):
        for passed in report.passed_over:  # its rows have no place for it
            print(f"nlp-bench: {passed.sentence()}", file=sys.stderr)
    if options.explain:
        _explain(report, options.format)
    if options.output:
        from nlp_bench.report.output import write_report, write_view  # heavy

        written = [*write_report(report, options.output), *(write_view(view, options.output) if view else ())]
        if options.format == "records-csv":
            from nlp_bench.files import write_text

            written.append(options.output / "records.csv")
            write_text(written[-1], formats.records_csv(report))
        say_written(written)
    _advise(report)
    _advise_on_speed(report)
    return 0 if all(entry.has_number and is_accepted(entry) for entry in report.entries) else 1


def _advise(report: "Report") -> None:
    """Say of our own runs that did not end well where to look and what to type; a plain log pays for no launcher."""
    entries = [entry for entry in report.entries if _is_file(f"{entry.source}/outcome.json")]
    if entries:
        from nlp_bench.launch.end.advice import of_entry

        for entry in entries[:MAX_ADVISED]:
            if words := of_entry(entry):
                print(f"{entry.source}: {words}", file=sys.stderr)


def _advise_on_speed(report: "Report") -> None:
    from nlp_bench.logs.scan import LARGE_BYTES, why_slow

    paths = {Path(entry.source) for entry in report.entries}
    if sum(path.stat().st_size for path in paths if _is_file(path)) > LARGE_BYTES and (words := why_slow()):
        print(f"nlp-bench: {words}", file=sys.stderr)


def _is_file(path: Path | str) -> bool:
    """Whether it is a file that we may see; pathlib raises where another user has closed its folder."""
    try:
        return Path(path).is_file()
    except OSError:
        return False


def _view(options: argparse.Namespace, report: "Report") -> "View | None":
    from nlp_bench.report.formats import scaling_view, sweep_view

    if options.scaling:
        return scaling_view(report)
    return sweep_view(report) if options.sweep else None


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError where the options of the two views contradict each other or the format."""
    if options.scaling and options.sweep:
        raise UsageError("--scaling and --sweep are two views of the same runs; give one of them")
    if (options.scaling or options.sweep) and options.format == "records-csv":
        raise UsageError(
            "--format records-csv gives the lines of each log, without --scaling or --sweep; leave one out"
        )
    if options.baseline_gpus and not options.scaling:
        raise UsageError("--baseline-gpus chooses the baseline of --scaling; add --scaling")


def _read(options: argparse.Namespace, rules: str | None) -> "Report":
    _check(options)
    from nlp_bench.inputs.sources import read_sources
    from nlp_bench.measure.efficiency import Given, with_given  # --help stays light
    from nlp_bench.report.energy import currency_of
    from nlp_bench.report.table import Report

    if options.output:
        from nlp_bench.report.output import prepare  # heavy

        prepare(options.output)
    currency = currency_of(options.currency, options.price_per_kwh)
    given = Given(gpu=options.gpu, precision=options.precision)
    with_plots = options.output is not None or options.format == "html"
    sources = read_sources(
        options.paths,
        overrides_of(options),
        with_quotes=options.explain,
        with_samples=with_plots,
        with_records=options.format == "records-csv",
        rules=rules,
    )
    return Report(
        allow_measured=options.allow_measured,
        baseline_gpus=options.baseline_gpus,
        price_per_kwh=options.price_per_kwh,
        currency=currency,
        entries=with_given(sources.entries, given),
        tokens=options.tokens,
        limit_s=options.limit,
        passed_over=sources.passed_over,
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
