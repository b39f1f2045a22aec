"""Valid runs in the forms of others: MLPerf, torchtitan's benchmark pages, collectors of continuous benchmarking.

FORMAT is one of
  mlperf      system description JSON, 33 fields; what nobody recorded is "" and listed on standard error (--set fills it)
  mllog       `:::MLLOG` events that mlperf_logging reads: no MLPerf submission, the measurement in its words
  torchtitan  markdown page with the six items of torchtitan's submission guidelines
  bigger      JSON for github-action-benchmark, tool customBiggerIsBetter: tokens per second
  smaller     JSON for github-action-benchmark, tool customSmallerIsBetter: seconds
  bencher     JSON in the Bencher Metric Format
Exit code 0 when every run was exported, 1 when some have no number (each is named), 2 for a wrong word.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import add_allow_measured, add_sizes, add_tokens, overrides_of, use_one_thread
from nlp_bench.config.values import OneOf
from nlp_bench.errors import NlpBenchError, UsageError, explained

if TYPE_CHECKING:
    from nlp_bench.export.subject import Subject

EXAMPLE = """nlp-bench export torchtitan nlp_benchmark_run/000000 --submitter 'Example Centre'
  nlp-bench export mlperf nlp_benchmark_run/000000 --set cooling=liquid --output mlperf/"""
FORMATS = ("mlperf", "mllog", "torchtitan", "bigger", "smaller", "bencher")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the form, the paths, what no record holds and what a log may not say."""
    parser.add_argument("form", metavar="FORMAT", type=OneOf(*FORMATS), help=", ".join(FORMATS))
    parser.add_argument("paths", metavar="PATH", nargs="+", help="run folder, JUBE run or log")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write files of the usual names into this folder")
    parser.add_argument("--submitter", default="", metavar="NAME", help="who measured: no record knows it")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="given",
        metavar="FIELD=VALUE",
        help="fill a field of the system description",
    )
    add_allow_measured(parser, "export")
    add_tokens(parser)
    add_sizes(parser)


def run(options: argparse.Namespace) -> int:
    """Export; return 0 or 1."""
    use_one_thread()
    from nlp_bench.export.subject import subjects
    from nlp_bench.files import write_text

    found, refused = subjects(
        options.paths, overrides_of(options), options.tokens, allow_measured=options.allow_measured
    )
    for said in refused:
        print(f"nlp-bench: {said}", file=sys.stderr)
    if not found:
        raise NlpBenchError("no run has a number that could be exported; see: nlp-bench report PATH")
    documents = list(_documents(found, options))
    if options.output:
        try:
            options.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--output {options.output} cannot be made: {explained(error)}; or give another folder"
            ) from error
        for name, text in documents:
            write_text(options.output / name, text)
            print(f"wrote {options.output / name}", file=sys.stderr)
    elif len(documents) > 1:
        raise UsageError(f"{len(documents)} files are to be written: give --output DIR")
    else:
        print(documents[0][1], end="")
    return 1 if refused else 0


def _documents(found: "Sequence[Subject]", options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file."""
    from nlp_bench.export import continuous, mllog, torchtitan

    if options.given and options.form != "mlperf":
        raise UsageError("--set fills fields of the system description: it goes with mlperf")
    if options.form == "mlperf":
        yield from _descriptions(found, options)
    elif options.form == "mllog":
        yield from ((f"result_{n}.txt", mllog.events_text(s, options.submitter)) for n, s in enumerate(found))
    elif options.form == "torchtitan":
        yield torchtitan.page_name(found, options.submitter), torchtitan.page(found, options.submitter)
    else:
        forms = {
            "bigger": continuous.bigger_is_better,
            "smaller": continuous.smaller_is_better,
            "bencher": continuous.bencher,
        }
        yield f"{options.form}.json", forms[options.form](found)


def _descriptions(found: "Sequence[Subject]", options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    import json

    from nlp_bench.export.mlperf import given_fields, system_description

    given = {**({"submitter": options.submitter} if options.submitter else {}), **given_fields(options.given)}
    descriptions = []
    for subject in found:
        description = system_description(subject, given)
        if description not in descriptions:
            descriptions.append(description)
    for number, description in enumerate(descriptions, start=1):
        missing = [field for field, text in description.items() if not text]
        if missing:
            print(
                f"nlp-bench: to be filled by hand or by --set ({len(missing)}): {', '.join(missing)}", file=sys.stderr
            )
        name = "system_desc_id.json" if len(descriptions) == 1 else f"system_desc_id_{number}.json"
        yield name, json.dumps(description, indent=2, ensure_ascii=False) + "\n"
