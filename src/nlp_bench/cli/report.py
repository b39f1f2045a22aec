"""Logs and run folders to numbers: `nlp-bench report`."""

import gc
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.cli.options import (
    ASKED,
    LOG,
    JudgedOptions,
    PatternOptions,
    allowing_measured,
    form,
    say_written,
    use_one_thread,
)
from nlp_bench.cli.parser import Command
from nlp_bench.config.accelerators import FORMATS
from nlp_bench.config.options import argument, flag, value
from nlp_bench.config.values import OneOf, price, size
from nlp_bench.errors import UsageError
from nlp_bench.escape import some
from nlp_bench.files import write_text
from nlp_bench.immutable import immutable
from nlp_bench.show.table import FORMS
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from nlp_bench.report.report import Report as Result

MAX_ADVISED = 100
ANSWER = "the answer"


@immutable
class Report(Command, JudgedOptions, PatternOptions):
    """Any training log, run folder or published table to tokens per second and the time of the hypothetical training.

    PATH is a log of any dialect (plain, gzip, xz, zstd or bzip2; known by content), - for standard input, a pattern in quotes, or a folder:
    one with runs of nlp-bench or JUBE gives these runs, any other every log below it (not hidden files, not binary ones; files
    without a training line are counted in one remark).
    Exit code 0 when every run has a number, 1 when some have none, 2 for a wrong word on the command line.
    """

    EXAMPLE = """nlp-bench report job.out --sequence-length 2048
  nlp-bench report train.log.zst --num-gpus 64 --explain
  nlp-bench report logs/ 'runs/**/*.log' --format csv
  nlp-bench report runs/ --scaling --output scaling/
  nlp-bench report --training chain/
  nlp-bench report --dialects"""

    paths: tuple[str, ...] = argument("PATH", nargs="*", default=())
    """Log, -, run folder, folder of logs, 'pattern*', reference table."""
    gpu: str | None = value(metavar="NAME", group=LOG)  # Name of the GPU, for its peak (MFU).
    precision: str | None = value(
        read=OneOf(*FORMATS), metavar="WORD", group=LOG, help=f"number format: {', '.join(FORMATS)}"
    )
    price_per_kwh: float | None = value(read=price, metavar="X", group=ASKED)
    """Cost of the training's energy, where a meter has counted it."""
    currency: str | None = value(metavar="WORD", group=ASKED)
    """Unit of the price, such as EUR; goes with --price-per-kwh."""
    allow_measured: bool = allowing_measured("pool as repeats of one configuration", ASKED)
    scaling: bool = flag(group=ASKED)  # Speed-up and efficiency over the GPUs, strong or weak, with flags.
    baseline_gpus: int | None = value(read=size, group=ASKED)  # Baseline of --scaling (default: the smallest size).
    sweep: bool = flag(group=ASKED)  # Rank configurations on equal GPUs; a tie is reported as a tie.
    training: bool = flag(group=ASKED)  # All PATHs are one training with restarts: goodput, and where its seconds went.
    explain: bool = flag(group=ANSWER)  # Print the lines, sources, window and formula behind each number.
    format: str = form(
        *FORMS, group=ANSWER,
        text="form of standard output (default table); records-csv is a row for each logged line",
    )  # fmt: skip
    output: Path | None = value(metavar="DIR", group=ANSWER)  # Also write tables and plots into this folder.
    dialects: bool = flag(group=ANSWER)  # List the dialects of logs that can be read (table, json, markdown).

    def run(self) -> int:
        use_one_thread()
        if self.dialects:
            return self._dialects()
        if not self.paths:
            raise UsageError("PATH is missing: give a log file, a folder, a pattern in quotes or - (or --dialects)")
        return self._training() if self.training else self._runs()

    def _runs(self) -> int:
        from nlp_bench.report import formats
        from nlp_bench.rules.apply import is_accepted, wanted

        report = self._read(wanted(self.rules))
        gc.freeze()  # 10 000 runs are 7 million objects, none of them garbage: looking for some takes a fifth of the time of their table
        view = formats.view_of(report, "scaling" if self.scaling else "sweep") if self.scaling or self.sweep else None
        # The page contains both views already.
        text = view.text if view and self.format != "html" else lambda form: formats.FORMATS[form](report)
        # With data on standard output the explanation goes to stderr: standard output stays one document.
        aside = sys.stdout if self.format == "table" else sys.stderr
        if self.explain:
            from nlp_bench.inputs.read import EXPLAINED

            print(f"{EXPLAINED}\n", file=aside)
        print(text(self.format), end="")
        if view:
            say(*_rules_not_kept(report))  # it decides the exit code, and the view does not show it
        if self.format.endswith("csv") or (view and self.format != "html"):
            say(*(passed.sentence() for passed in report.passed_over))  # no field or line of these is for it
        if self.explain:
            from nlp_bench.report.explain import explain

            print("\n" + explain(report), end="", file=aside)
        if self.output:
            from nlp_bench.report.output import left_over, write_report, write_view  # heavy

            written = [*write_report(report, self.output), *(write_view(view, self.output) if view else ())]
            if self.format == "records-csv":
                written.append(self.output / "records.csv")
                write_text(written[-1], formats.records_csv(report))
            say_written(written)
            if earlier := left_over(self.output, written):
                say(f"of an earlier call, and not of these logs perhaps, are in {self.output}: {', '.join(earlier)}")
        _advise(report)
        return 0 if all(entry.has_number and is_accepted(entry) for entry in report.entries) else 1

    def _read(self, rules: str | None) -> "Result":
        if self.scaling and self.sweep:
            raise UsageError("--scaling and --sweep are two views of the same runs; give one of them")
        if (self.scaling or self.sweep) and self.format == "records-csv":
            raise UsageError(
                "--format records-csv gives the lines of each log, without --scaling or --sweep; leave one out"
            )
        if (self.scaling or self.sweep) and not (self.output or self.format == "html"):
            self._refuse_beside_view()
        if self.baseline_gpus and not self.scaling:
            raise UsageError("--baseline-gpus chooses the baseline of --scaling; add --scaling")
        from nlp_bench.inputs.sources import read_sources
        from nlp_bench.measure.efficiency import Given, with_given  # --help stays light
        from nlp_bench.report.report import Report as Result
        from nlp_bench.report.report import currency_of

        if self.output:
            from nlp_bench.report.output import prepare  # heavy
            from nlp_bench.report.plots import PLOTS

            others = {"scaling": self.scaling, "sweep": self.sweep, "records": self.format == "records-csv"}
            prepare(self.output, "report", *PLOTS, *(stem for stem, is_written in others.items() if is_written))
        currency = currency_of(self.currency, self.price_per_kwh)
        sources = read_sources(
            self.paths,
            self.overrides(),
            with_quotes=self.explain,
            with_samples=self.output is not None or self.format == "html",  # with plots
            with_records=self.format == "records-csv",
            rules=rules,
        )
        given = Given(gpu=self.gpu, precision=self.precision)
        if given.choice:
            say(given.choice)
        return Result(
            allow_measured=self.allow_measured,
            baseline_gpus=self.baseline_gpus,
            price_per_kwh=self.price_per_kwh,
            currency=currency,
            entries=with_given(sources.entries, given),
            tokens=self.tokens,
            limit_s=self.limit,
            passed_over=sources.passed_over,
        )

    def _training(self) -> int:
        from nlp_bench.inputs.find import Kind, find
        from nlp_bench.measure.training import training_of
        from nlp_bench.report.training import FORMATS
        from nlp_bench.show.table import json_text

        taken = {"paths", "training", "format", "pattern", "sequence_length", "global_batch_size", "num_gpus"}
        self._refuse_others("--training answers for all PATHs together", taken)
        if self.format not in FORMATS:
            raise UsageError(f"--training has no --format {self.format}; choose one of {', '.join(FORMATS)}")
        items = [item for group in find(self.paths) for item in group.items]
        if broken := next((item for item in items if item.kind not in {Kind.LOG, Kind.RUN}), None):
            raise UsageError(
                f"PATH {broken.path} is no log ({broken.problem or broken.kind.value}); --training takes logs and run folders"
            )
        training = training_of([str(item.file) for item in items], self.overrides())
        if self.format == "json":
            record = self._read(None).to_json()
            print(json_text({**record, "training": training.to_json()}), end="")
        else:
            print(FORMATS[self.format](training), end="")
        return 0 if training.goodput is not None else 1

    def _refuse_others(self, why: str, taken: set[str]) -> None:
        """Raise UsageError for an option that is given and not among `taken`."""
        for one in fields(self):
            if one.name not in taken and getattr(self, one.name) != one.default:
                option = f"--{one.name.replace('_', '-')}"
                raise UsageError(f"{why}, and takes no {option}; leave one of the two out")

    def _refuse_beside_view(self) -> None:
        """Raise UsageError for a question that only the table of runs answers: --output and the page hold it beside the view."""
        asked = {"--limit": self.limit, "--price-per-kwh": self.price_per_kwh, "--currency": self.currency}
        if option := next((name for name, given in asked.items() if given is not None), None):
            view = "--scaling" if self.scaling else "--sweep"
            raise UsageError(
                f"{option} is answered for each run, which {view} does not show; leave one out, or add --output DIR"
            )

    def _dialects(self) -> int:
        from nlp_bench.report.dialects import DIALECT_FORMATS

        if self.paths:
            raise UsageError("--dialects takes no PATH; leave one of the two out")
        self._refuse_others("--dialects lists what can be read", {"dialects", "format"})
        if self.format not in DIALECT_FORMATS:
            raise UsageError(f"--dialects has no --format {self.format}; choose one of {', '.join(DIALECT_FORMATS)}")
        print(DIALECT_FORMATS[self.format](), end="")
        return 0


def _rules_not_kept(report: "Result") -> list[str]:
    """Return in sentences which runs do not keep the requested rules, those with the same words together."""
    from nlp_bench.rules.apply import is_accepted

    sources: dict[str, list[str]] = {}
    for entry in report.entries:
        if entry.rules and not is_accepted(entry):
            sources.setdefault(entry.rules.note(), []).append(entry.source)
    return [f"{some(found, 1)}: {note}" for note, found in sources.items()]


def _advise(report: "Result") -> None:
    """Report for our own runs that did not end well where to look and what to type, and why large logs were read slowly."""
    from nlp_bench.logs.scan import LARGE_BYTES, why_slow

    # os.path.isfile is false, too, where another user's folder is closed.
    entries = [entry for entry in report.entries if os.path.isfile(f"{entry.source}/outcome.json")]  # noqa: PTH113
    if entries:
        from nlp_bench.launch.end.advice import of_entry  # a plain log needs no launcher

        for entry in entries[:MAX_ADVISED]:
            if words := of_entry(entry):
                print(f"{entry.source}: {words}", file=sys.stderr)
    paths = {entry.source for entry in report.entries}
    size = sum(os.path.getsize(path) for path in paths if os.path.isfile(path))  # noqa: PTH113, PTH202
    if size > LARGE_BYTES and (words := why_slow()):
        say(words)
