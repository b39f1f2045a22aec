"""Measure one accelerator for a few minutes (a CPU too) and write the constants that `nlp-bench plan` predicts with.

The machine should be idle. Several GPUs or CPU ranks of one node, with the all-reduce between them:
  torchrun --standalone --nproc-per-node 4 -m nlp_bench plan calibrate --output node.toml
An interrupted measurement writes nothing. Exit code 0; 1 when nothing could be measured; 2 for a wrong word.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import add_format, refuse_to_replace
from nlp_bench.config.options import add_fields
from nlp_bench.config.request import Request
from nlp_bench.config.values import OneOf, duration
from nlp_bench.errors import UsageError
from nlp_bench.packages import lacking

if TYPE_CHECKING:
    from nlp_bench.plan.calibrate.record import Calibration

EXAMPLE = """nlp-bench plan calibrate --output h200.toml
  nlp-bench plan --model 13 --system juwels-booster --nodes 8 --constants h200.toml"""
PRECISIONS = ("bf16", "fp16", "fp32")
LONGEST_MINUTES = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench plan calibrate`."""
    parser.add_argument(
        "--output",
        metavar="FILE.toml",
        type=Path,
        help="constants for plan --constants; FILE.json beside it keeps what was measured",
    )
    parser.add_argument("--minutes", metavar="M", type=_minutes, default=5.0, help="time to take (default 5)")
    parser.add_argument(
        "--device",
        type=OneOf("auto", "cpu", "cuda"),
        default="auto",
        metavar="WHAT",
        help="auto (default), cpu or cuda",
    )
    text = "the system file whose GPU this is, where its data sheet is wanted"
    add_fields(parser, Request, ["system"], {"system": text})
    parser.add_argument(
        "--precision",
        type=OneOf(*PRECISIONS),
        action="append",
        metavar="WORD",
        help="bf16, fp16 or fp32, the one of your trainings first; may be repeated (default all; first bf16, on a CPU fp32)",
    )
    parser.add_argument("--no-trainer", action="store_true", help="leave out the trainer's own overhead")
    parser.add_argument(
        "--from", dest="source", metavar="FILE.json", type=Path, help="measure nothing: fit again what FILE.json keeps"
    )
    add_format(parser, "table", "json")


def run(options: argparse.Namespace) -> int:
    """Measure or read, fit, write, print; return the exit code."""
    _check(options)
    measured = _measured(options)
    if measured:  # else another rank has everything
        _answer(options, measured)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not options.source:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # gloo's threads may abort a process that is torn down
    return 0


def _answer(options: argparse.Namespace, measured: "Calibration") -> None:
    from nlp_bench.plan.calibrate.fit import fit_all
    from nlp_bench.plan.calibrate.output import record, table, write_constants

    if options.output and not options.source:
        measured.write(options.output.with_suffix(".json"))  # first: a fit that fails can be repeated
    constants = fit_all(measured)
    if options.output:
        write_constants(options.output, measured, constants, options.system)
    if options.format == "json":
        from nlp_bench.show.table import json_text

        print(json_text(record(measured, constants)), end="")
    else:
        print(table(measured, constants), end="")
    if options.output:
        print(f"wrote {options.output}; use it with: nlp-bench plan --constants {options.output}", file=sys.stderr)


def _check(options: argparse.Namespace) -> None:
    output: Path | None = options.output
    if output and output.suffix != ".toml":
        raise UsageError(f"--output {output}: the constants are TOML; name it {output.with_suffix('.toml')}")
    if output and not output.parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {output.parent}; make it first")
    if output:
        from nlp_bench.plan.calibrate.record import SCHEMA as RECORD
        from nlp_bench.plan.constants import SCHEMA

        refuse_to_replace("--output", output, mark=SCHEMA.encode())
        if not options.source:
            refuse_to_replace("--output", output.with_suffix(".json"), mark=RECORD.encode())


def _measured(options: argparse.Namespace) -> "Calibration | None":
    if options.source:
        from nlp_bench.plan.calibrate.record import read_calibration

        return read_calibration(options.source)
    try:
        from nlp_bench.plan.calibrate.session import calibrate
    except ImportError as error:
        raise lacking(error, "calibrate") or error from error
    return calibrate(
        lambda line: print(f"nlp-bench: {line}", file=sys.stderr, flush=True),
        minutes=options.minutes,
        device=options.device,
        precisions=tuple(dict.fromkeys(options.precision or ())),
        trainer=not options.no_trainer,
    )


def _minutes(text: str) -> float:
    value = duration("min")(text)
    if value > LONGEST_MINUTES:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is more than {LONGEST_MINUTES:g} minutes")
    return value
