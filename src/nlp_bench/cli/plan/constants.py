"""The constants of `nlp-bench plan`: `plan predict` applies them, `calibrate` and `learn` make a machine's own."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.cli.options import ConstantsOption, form, refuse_to_replace
from nlp_bench.cli.parser import Command
from nlp_bench.config.options import argument, flag, value
from nlp_bench.config.request import shared
from nlp_bench.config.values import OneOf, duration
from nlp_bench.errors import UsageError
from nlp_bench.escape import some
from nlp_bench.files import read_json, write_text
from nlp_bench.immutable import immutable
from nlp_bench.packages import lacking
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from nlp_bench.plan.calibrate.record import Calibration
    from nlp_bench.plan.constants import Constants
    from nlp_bench.plan.learn import Lesson

_SHOWN = 5
PRECISIONS = ("bf16", "fp16", "fp32")
LONGEST_MINUTES = 120.0


@immutable
class PlanPredict(Command, ConstantsOption):
    """Predict a table of points: seconds of an iteration with a 90 % interval, and peak memory, from the configuration columns alone.

    What was measured is not read. A row that no rule completes stays empty, and the reason goes to standard error.
    Exit code 0: every row is answered or refused with its reason; 2: no table of points.
    """

    EXAMPLE = "nlp-bench plan predict reports/reference/published_points/points.csv --output predictions.csv"

    points: Path = argument("POINTS.csv")  # Table of configurations (docs/accuracy.md has the columns).
    output: Path | None = value(metavar="PRED.csv")  # Where the predictions go (default standard output).
    cold: bool = flag()  # Data sheets only: every fitted constant at what was expected of it.

    def run(self) -> int:
        from nlp_bench.plan.constants import read_constants
        from nlp_bench.plan.machines import measured_elsewhere
        from nlp_bench.plan.predict import COLUMNS, predictions_of, read_rows
        from nlp_bench.show.table import as_csv

        refuse_to_replace("--output", self.output, mark=b"id,iter_time_s,")
        constants = read_constants(self.constants)
        rows = read_rows(self.points)
        predicted, refused = predictions_of(rows, constants.cold() if self.cold else constants)
        for doubt in measured_elsewhere(constants, dict.fromkeys(row["gpu"] for row in rows if row["gpu"])):
            say(f"warning: {doubt}")
        reasons: dict[str, list[str]] = {}
        for one, reason in refused.items():
            reasons.setdefault(reason, []).append(one)
        for reason, ids in reasons.items():
            say(f"not predicted: {some(ids, _SHOWN)}: {reason}")
        text = as_csv(COLUMNS, predicted, exact=("id",))
        if self.output is None:
            print(text, end="")
        else:
            write_text(self.output, text)
            say(f"{len(predicted) - len(refused)} of {len(predicted)} rows predicted: {self.output}")
        return 0


def _check_constants_file(output: Path | None) -> None:
    """Raise UsageError for an --output that is no place for a file of constants, or another file already."""
    if output and output.suffix != ".toml":
        raise UsageError(f"--output {output}: the constants are TOML; name it {output.with_suffix('.toml')}")
    if output and not output.parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {output.parent}; make it first")
    from nlp_bench.plan.constants import SCHEMA

    refuse_to_replace("--output", output, mark=SCHEMA.encode())


def _say_constants_file(output: Path) -> None:
    print(f"wrote {output}; use it with: nlp-bench plan --constants {shlex.quote(str(output))}", file=sys.stderr)


def _minutes(text: str) -> float:
    minutes = duration("min")(text)
    if minutes > LONGEST_MINUTES:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is more than {LONGEST_MINUTES:g} minutes")
    return minutes


@immutable
class PlanCalibrate(Command):
    """Measure one accelerator for a few minutes (a CPU too) and write the constants that `nlp-bench plan` predicts with.

    The machine should be idle. Several GPUs or CPU ranks of one node, with the all-reduce between them:
      torchrun --standalone --nproc-per-node 4 -m nlp_bench plan calibrate --output node.toml
    An interrupted measurement writes nothing. Exit code 0; 1 when nothing could be measured; 2 for a wrong word.
    """

    EXAMPLE = """nlp-bench plan calibrate --output h200.toml
  nlp-bench plan --model 13 --system juwels-booster --nodes 8 --constants h200.toml"""

    output: Path | None = value(metavar="FILE.toml")
    """Constants for plan --constants; FILE.json beside it keeps what was measured."""
    minutes: float = value(read=_minutes, default=5.0, metavar="M")  # Time to take (default 5).
    device: str = value(read=OneOf("auto", "cpu", "cuda"), default="auto", metavar="WHAT")
    """auto (default), cpu or cuda."""
    system: str | None = shared("system", group="")
    """The system file whose GPU this is, where its data sheet is wanted."""
    precision: tuple[str, ...] = value(read=OneOf(*PRECISIONS), default=(), is_repeated=True, metavar="WORD")
    """bf16, fp16 or fp32, the one of your trainings first; may be repeated (default all; first bf16, on a CPU fp32)."""
    no_trainer: bool = flag()  # Leave out the trainer's own overhead.
    source: Path | None = value("--from", metavar="FILE.json")  # Measure nothing: fit again what FILE.json keeps.
    format: str = form("table", "json")

    def run(self) -> int:
        self._check()
        measured = self._measured()
        if measured:  # else another rank has everything
            self._answer(measured)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not self.source:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # gloo's threads may abort a process that is torn down
        return 0

    def _answer(self, measured: "Calibration") -> None:
        from nlp_bench.plan.calibrate.output import record, table, write_constants
        from nlp_bench.plan.calibrate.record import fit_all

        if self.output and not self.source:
            measured.write(self.output.with_suffix(".json"))  # first: a fit that fails can be repeated
        constants = fit_all(measured)
        if self.output:
            write_constants(self.output, measured, constants, self.system)
        if self.format == "json":
            from nlp_bench.show.table import json_text

            print(json_text(record(measured, constants)), end="")
        else:
            print(table(measured, constants), end="")
        if self.output:
            _say_constants_file(self.output)

    def _check(self) -> None:
        _check_constants_file(self.output)
        if self.system:
            from nlp_bench.config.catalog import load_system

            load_system(self.system)  # before the minutes that it takes
        if self.output and not self.source:
            from nlp_bench.plan.calibrate.record import SCHEMA

            refuse_to_replace("--output", self.output.with_suffix(".json"), mark=SCHEMA.encode())

    def _measured(self) -> "Calibration | None":
        if self.source:
            from nlp_bench.plan.calibrate.record import read_calibration

            return read_calibration(self.source)
        try:
            from nlp_bench.plan.calibrate.session import calibrate
        except ImportError as error:
            raise lacking(error, "calibrate") or error from error
        return calibrate(
            say,
            minutes=self.minutes,
            device=self.device,
            precisions=tuple(dict.fromkeys(self.precision or ())),
            trainer=not self.no_trainer,
        )


@immutable
class PlanLearn(Command, ConstantsOption):
    """Learn from measured runs of one machine: factors on what the planner predicts, and a narrower interval.

    RESULTS are run folders, their result.json, or folders of runs (JUBE's too). Only valid runs count, and only of one machine and GPU.
    `nlp-bench plan --learn RESULTS` does the same before it plans. Exit code 0; 1 when no run counts; 2 for a wrong word.
    """

    EXAMPLE = """nlp-bench plan learn runs/tonight --output mine.toml
  nlp-bench plan --model 13 --system juwels-booster --nodes 8 --constants mine.toml"""

    results: tuple[Path, ...] = argument("RESULTS", nargs="+", read=Path)  # Run folders, result.json, folders of runs.
    system: str | None = shared("system", group="")  # Learn of this system only (default that of most runs).
    output: Path | None = value(metavar="FILE.toml")  # Write the constants for plan --constants.

    def run(self) -> int:
        _check_constants_file(self.output)
        from nlp_bench.plan.constants import read_constants
        from nlp_bench.plan.learn import report, write_learned

        lesson = learned(read_constants(self.constants), self.results, self.system)
        print(report(lesson), end="")
        if self.output:
            write_learned(self.output, lesson, self.constants)
            _say_constants_file(self.output)
        return 0


def learned(constants: "Constants", results: Sequence[Path], system: str | None) -> "Lesson":
    """Learn from the runs below `results`: of `system`, a name or the path of its file, or of the machine that most of them ran on."""
    from nlp_bench.config.catalog import load_system
    from nlp_bench.plan.learn import learn

    return learn(constants, list(results), result_of, load_system(system).name if system else None)


def result_of(folder: Path) -> dict[str, Any]:
    """Return the result of a run's folder: the written one, else one that is measured from its log now."""
    from nlp_bench.measure.folder import SCHEMA, result_record
    from nlp_bench.rules.apply import measured_folder, wanted

    if (folder / "result.json").exists():
        return read_json(folder / "result.json", SCHEMA)
    return result_record(measured_folder(folder, source="job.out", rules=wanted(None)))
