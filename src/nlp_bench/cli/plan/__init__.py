"""`nlp-bench plan`: its options, the problem that they describe, and the answers, on standard output or in a file."""

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.cli.options import (
    ASKED,
    ConstantsOption,
    form,
    overwriting,
    refuse_one_file,
    refuse_to_replace,
    use_one_thread,
)
from nlp_bench.cli.parser import Command
from nlp_bench.config.options import flag, value
from nlp_bench.config.request import Request, shared
from nlp_bench.config.values import OneOf, UnlessDefault, count, duration, percent_from_0, size
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import real, write_bytes, write_text
from nlp_bench.immutable import immutable
from nlp_bench.layout.rules import RECOMPUTE
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from nlp_bench.config.model import Model
    from nlp_bench.config.system import System
    from nlp_bench.plan.constants import Constants
    from nlp_bench.plan.problem import Problem
    from nlp_bench.plan.ranking import Answer
    from nlp_bench.show.chart import Chart
    from nlp_bench.show.table import Style

ENDINGS = {"table": "txt", "markdown": "md", "json": "json", "csv": "csv", "html": "html"}
HELD, OTHERS, ANSWER = "held fixed instead of searched", "other questions", "where the answer goes"


@immutable
class Plan(Command, ConstantsOption):
    """Rank every legal configuration of a model on a machine by its predicted steady time, with memory and an interval.

    Nothing is measured and no job is started. The global batch stays as the benchmark has it. `nlp-bench plan predict`, `calibrate`
    and `learn` have options of their own. Exit code 0: found; 1: nothing fits; 2: a wrong word, or no legal configuration.
    """

    EXAMPLE = """nlp-bench plan --model 175 --system juwels-booster --nodes 96
  nlp-bench plan --model 175 --system juwels-booster --time 560
  nlp-bench plan --model 175 --system juwels-booster dgx-a100 dgx-h100 --gpus 384
  nlp-bench plan --model 175 --system juwels-booster --tp 4 --pp 16 --vpp 6 --why
  nlp-bench plan --model 175 --system juwels-booster --emit-jube sweep.yaml && jube run sweep.yaml
  nlp-bench plan --model-size auto --days 5 --tokens 300B --nodes 20 --system dgx-a100"""

    model: str | None = shared("model", group=ASKED)  # File of benchmark/models (175, 13, llama_8b), or a path.
    system: tuple[str, ...] = value(nargs="+", read=str, default=(), metavar="S", group=ASKED)
    """Files of benchmark/systems, or paths (default: this machine's); several make one table of equal work."""
    nodes: int | None = shared("nodes", group=ASKED)  # Nodes of the job (default: the model's); with --time the most.
    gpus: int | None = value(read=size, group=ASKED)  # GPUs of the job in place of --nodes: as many on each system.
    gpus_per_node: int | None = shared("gpus_per_node", group=ASKED)  # GPUs of each (default: the system's).
    global_batch_size: int | None = shared("global_batch_size", group=ASKED)
    """Samples of an iteration (default: the model's, on every machine; it stays fixed)."""
    sequence_length: int | None = shared("sequence_length", group=ASKED)
    """Tokens of a sample (frozen by the rules); 2048 or 2Ki."""
    precision: str | None = value(metavar="WORD", group=ASKED)
    """bf16, fp16, fp8, mxfp8, nvfp4, ... (default: the model's)."""
    tokens: int | None = value(read=count, group=ASKED)  # Tokens of the training: 20M (default), 300B, 1.5T.
    learn: tuple[Path, ...] = value(nargs="+", read=Path, default=(), metavar="RESULTS", group=ASKED)
    """Correct the constants by measured runs of this machine."""
    tensor: int | None = shared("tensor", group=HELD)
    pipeline: int | None = shared("pipeline", group=HELD)
    context: int | None = shared("context", group=HELD)
    num_virtual_stages_per_pipeline_rank: int | None = shared("num_virtual_stages_per_pipeline_rank", group=HELD)
    """Interleaved schedule: virtual stages of each pipeline rank, 1 for none."""
    decoder_first_pipeline_num_layers: int | None = shared("decoder_first_pipeline_num_layers", group=HELD)
    decoder_last_pipeline_num_layers: int | None = shared("decoder_last_pipeline_num_layers", group=HELD)
    micro_batch_size: int | None = shared("micro_batch_size", group=HELD)
    gradient_accumulation_steps: int | None = shared("gradient_accumulation_steps", group=HELD)
    sequence_parallel: bool | None = shared("sequence_parallel", group=HELD)
    use_distributed_optimizer: bool | None = shared("use_distributed_optimizer", group=HELD)
    overlap_grad_reduce: bool | None = shared("overlap_grad_reduce", group=HELD)
    overlap_param_gather: bool | None = shared("overlap_param_gather", group=HELD)
    recompute: str | None = shared("recompute", group=HELD, read=OneOf(*RECOMPUTE, "any"))
    """none, selective, full, or any to search all three, with parts of the layers and modules."""
    recompute_method: str | None = shared("recompute_method", group=HELD)
    recompute_num_layers: int | None = shared("recompute_num_layers", group=HELD)
    recompute_modules: tuple[str, ...] = shared("recompute_modules", group=HELD)
    why: bool = flag(group=OTHERS)  # Explain one configuration: the published one, changed by what is held fixed.
    time: float | None = value("--time", "--limit", read=duration("s"), metavar="SECONDS", group=OTHERS)
    """The fewest nodes on which the steady time is at most this; 560, 560s or 10min."""
    model_size: str | None = value(metavar="auto", group=OTHERS)  # The largest GPT that trains --tokens in --days.
    days: float | None = value(read=duration("d"), metavar="D", group=OTHERS)  # Of --model-size auto.
    bid: bool = flag(group=OTHERS)  # A bid sheet of the best configuration.
    margin: float | None = value(read=percent_from_0, metavar="PERCENT", group=OTHERS)
    """Of --bid: commit to the prediction and so much more."""
    top: int | None = value(read=UnlessDefault(size), metavar="K", group=ANSWER)  # Rows of the table (default 10).
    format: str | None = form(
        "table", "json", "csv", "markdown", "html", default=None, group=ANSWER,
        text="form of the answer (default table; html: of --bid only)",
    )  # fmt: skip
    output: Path | None = value(metavar="FILE", group=ANSWER)
    """Write the answer here, in the form of its ending, or into this folder, instead of printing it."""
    plot: Path | None = value(metavar="FILE", group=ANSWER)  # Draw time over memory into FILE.svg or FILE.png.
    rehearse: int | None = value(read=size, group=ANSWER)
    """Rehearse the N best as well: the trainer's own step, without a GPU (some seconds each, minutes with hundreds of micro-batches)."""
    emit_jube: Path | None = value(metavar="FILE", group=ANSWER)
    """Write the best and the published configuration as a sweep: jube run FILE."""
    overwrite: bool = overwriting("replace a FILE that exists", ANSWER)

    def run(self) -> int:
        use_one_thread()
        ending = self.output.suffix[1:] if self.output and not self.format else ""
        if word := next((one for one, its in ENDINGS.items() if its == ending), None):
            return replace(self, format=word).run()
        self._check()
        written = {"--output": self._target(), "--plot": self.plot, "--emit-jube": self.emit_jube}
        refuse_one_file({"--constants": self.constants, **written})
        for name, path in written.items():
            refuse_to_replace(name, path, overwrite=self.overwrite)
        if ending and self._target() == self.output:
            known = ", ".join(f".{its}" for its in ENDINGS.values())
            raise UsageError(
                f"--output: {self.output} ends in none of {known}, by which the answer's form is known; give --format, too"
            )
        from nlp_bench.plan.constants import read_constants

        constants = read_constants(self.constants)
        if self.learn:
            from nlp_bench.cli.plan.constants import learned
            from nlp_bench.plan.learn import report

            lesson = learned(constants, self.learn, next(iter(self.system), None))
            print(report(lesson), end="", file=sys.stderr)
            constants = lesson.constants
        return self._answer(constants)

    def _target(self) -> Path | None:
        """Return the file of --output; in a folder it is called plan, with the ending of the answer's form."""
        if self.output is None or not os.path.isdir(self.output):  # noqa: PTH112  # false, too, where it cannot be looked at
            return self.output
        return self.output / f"plan.{ENDINGS[self.format or 'table']}"

    def _check(self) -> None:
        """Raise UsageError for options that do not go together."""
        questions = {"--why": self.why, "--time": self.time, "--model-size": self.model_size, "--bid": self.bid}
        asked = [name for name, question in questions.items() if question]
        if len(asked) > 1:
            raise UsageError(f"plan: {' and '.join(asked)} are two questions; ask one at a time")
        drawn = {"--plot": self.plot, "--emit-jube": self.emit_jube, "--rehearse": self.rehearse}
        self._check_machines([*asked, *(name for name, given in {**drawn, "--learn": self.learn}.items() if given)])
        for name, file in drawn.items():
            if file and asked and asked != ["--bid"]:
                raise UsageError(f"plan: {name} goes with the ranking, not with {asked[0]}")
        for name, number, of in (("--days", self.days, "--model-size"), ("--margin", self.margin, "--bid")):
            if number is not None and of not in asked:
                raise UsageError(f"plan: {name} goes with {of}")
        if self.format == "html" and not self.bid:
            raise UsageError("plan: --format html is of --bid; the ranking has table, json, csv and markdown")
        if self.format == "csv" and asked:
            raise UsageError(f"plan: {asked[0]} has no --format csv; choose table, json or markdown")
        if self.model_size is not None:
            self._check_size()
        elif self.model is None:
            from nlp_bench.config.catalog import names

            raise UsageError(
                f"plan: --model M is missing; known: {', '.join(names('models'))}; or --model-size auto --days D --tokens T"
            )

    def _check_machines(self, of_one: list[str]) -> None:
        """Raise UsageError for several systems with what is `of_one` machine, and for two sizes of a job."""
        if len(self.system) > 1 and of_one:
            raise UsageError(f"plan: {of_one[0]} goes with one --system, not with {len(self.system)}")
        if self.nodes is not None and self.gpus is not None:
            raise UsageError("plan: --nodes and --gpus exclude each other; give one of them")

    def _check_size(self) -> None:
        if self.model_size != "auto":
            raise UsageError(f"--model-size: {(self.model_size or '')[:40]!r} is not auto; a known size is --model M")
        if self.model is not None:
            raise UsageError("plan: --model and --model-size exclude each other; give one of them")
        missing = [name for name in ("days", "tokens") if getattr(self, name) is None]
        if missing:
            raise UsageError(
                f"--model-size auto: {' and '.join('--' + name for name in missing)} missing; for example --days 5 --tokens 300B"
            )

    def _named_system(self) -> "System":
        """Return the system that the options name, or this machine's."""
        from nlp_bench.config import catalog

        if self.system:
            return catalog.load_system(self.system[0])
        from nlp_bench.config.resolve import resolve_system

        return resolve_system(Request())

    def _problem(self, model: "Model", system: "System", constants: "Constants") -> "Problem":
        from nlp_bench.measure import REPORT_TOKENS
        from nlp_bench.plan.problem import OPTIONS, Fixed, make_problem

        return make_problem(
            model,
            system,
            constants,
            nodes=self.nodes if self.gpus is None else self._nodes_of(model, system, self.gpus),
            gpus_per_node=self.gpus_per_node,
            global_batch_size=self.global_batch_size,
            sequence_length=self.sequence_length,
            tokens=self.tokens or REPORT_TOKENS,
            precision=self.precision,
            fixed=Fixed(**{name: getattr(self, option) for name, option in OPTIONS.items()}),
        )

    def _nodes_of(self, model: "Model", system: "System", gpus: int) -> int:
        """Return the nodes that have so many GPUs; raises UsageError where no number of them does."""
        ranks = self.gpus_per_node or system.layout_of(model).gpus_per_node or system.gpus_per_node
        if not isinstance(ranks, int):
            raise UsageError(f"--gpus: {system.name} counts the GPUs of its nodes where the job runs; give --nodes")
        if left := gpus % ranks:
            near = " and ".join(str(one) for one in (gpus - left, gpus - left + ranks) if one)
            raise UsageError(
                f"--gpus: {gpus} are no whole number of nodes of {system.name} with {ranks} GPUs; {near} are"
            )
        return gpus // ranks

    def _answer(self, constants: "Constants") -> int:
        """Answer the question that the options ask; return the exit code."""
        if self.model_size:
            return self._answer_size(constants)
        from nlp_bench.config import catalog

        model = catalog.load_model(self.model or "")
        if len(self.system) > 1:
            return self._compare(model, constants)
        problem = self._problem(model, self._named_system(), constants)
        say(*(f"warning: {deviation}: not the benchmark" for deviation in problem.deviations))
        say(*(f"warning: {doubt}" for doubt in problem.doubts))
        if self.time is not None:
            return self._answer_time(problem, self.time)
        return self._explain(problem) if self.why else self._rank(problem)

    def _compare(self, model: "Model", constants: "Constants") -> int:
        """Plan on each system and print one table; exit code 1 where nothing fits on any of them."""
        from nlp_bench.config import catalog
        from nlp_bench.plan.record import SYSTEM_COLUMNS, system_row, systems_record
        from nlp_bench.plan.systems import compare
        from nlp_bench.plan.text import systems_lines

        systems = [catalog.load_system(name) for name in self.system]
        sides = compare(systems, lambda system: self._problem(model, system, constants))
        for problem in (side.problem for side in sides if side.problem):
            warned = (*(f"{deviation}: not the benchmark" for deviation in problem.deviations), *problem.doubts)
            say(*(f"warning: {problem.system.name}: {doubt}" for doubt in warned))
        if self.format == "csv":
            from nlp_bench.show.table import as_csv

            self._out(as_csv(SYSTEM_COLUMNS, [system_row(side) for side in sides]))
        else:
            self._say(lambda style: systems_lines(sides, style), lambda: systems_record(sides))
        return 0 if any(side.best for side in sides) else 1

    def _rank(self, problem: "Problem") -> int:
        """Rank, rehearse the best if requested, print the ranking or the bid sheet, write the sweep and the plot."""
        from nlp_bench.plan.ranking import ranking

        found = ranking(problem, top=self.top or 10)
        words = {"model": _word(self.model or ""), "system": _word(next(iter(self.system), problem.system.name))}
        if self.rehearse:
            found = replace(found, rehearsed=_rehearsed(found, min(self.rehearse, len(found.rows)), words))
        if self.bid:
            from nlp_bench.cli.plan.bid import FORMATS
            from nlp_bench.plan.bid import bid

            model, system = words["model"], words["system"]
            made = bid(found, margin=self.margin, constants=self.constants, model=model, system=system)
            self._out(FORMATS[self.format or "table"](made))
        elif self.format == "csv":
            from nlp_bench.plan.record import COLUMNS, flat
            from nlp_bench.show.table import as_csv

            self._out(as_csv(COLUMNS, [flat(row) for row in found.shown]))
        else:
            from nlp_bench.plan.record import plan_record
            from nlp_bench.plan.text import ranking_lines

            self._say(lambda style: ranking_lines(found, style), lambda: plan_record(found))
        if path := self.emit_jube:
            from nlp_bench.plan.sweep import shortlist, sweep_text

            write_text(path, sweep_text(shortlist(found), problem, **words))
            print(f"wrote {path}; run it with: jube run {shlex.quote(str(path))}", file=sys.stderr)
        if self.plot:
            from nlp_bench.plan.plot import plan_chart

            write_plot(plan_chart(found), self.plot)
            print(f"wrote {self.plot}", file=sys.stderr)
        return 0 if found.rows else 1

    def _explain(self, problem: "Problem") -> int:
        from nlp_bench.plan.record import why_record
        from nlp_bench.plan.text import why_lines
        from nlp_bench.plan.why import explain

        why = explain(problem)
        self._say(lambda style: why_lines(why, style), lambda: why_record(why))
        return 0 if why.row is not None and why.row.fits == "yes" else 1

    def _answer_time(self, problem: "Problem", limit_s: float) -> int:
        from nlp_bench.plan.capacity import MOST, smallest
        from nlp_bench.plan.record import nodes_record
        from nlp_bench.plan.text import nodes_lines

        if self.nodes is None and self.gpus is None:
            problem = replace(problem, nodes=MOST * problem.nodes)
        found = smallest(problem, limit_s)
        self._say(lambda style: nodes_lines(found, style), lambda: nodes_record(found))
        return 0 if found.within else 1

    def _answer_size(self, constants: "Constants") -> int:
        from nlp_bench.plan.capacity import batch_for, recommend
        from nlp_bench.plan.record import size_record
        from nlp_bench.plan.text import size_lines

        system = self._named_system()

        def make(model: "Model") -> "Problem":
            problem = self._problem(model, system, constants)
            if self.global_batch_size is None:
                problem = replace(problem, global_batch_size=batch_for(problem.global_batch_size, problem.num_gpus))
            return problem

        found = recommend(self.days or 0.0, make)
        say(*(f"warning: {doubt}" for doubt in found.problem.doubts))
        self._say(lambda style: size_lines(found, style), lambda: size_record(found))
        return 0 if found.chosen else 1

    def _say(self, lines: "Callable[[Style], list[str]]", record: Callable[[], dict[str, Any]]) -> None:
        from nlp_bench.show.table import MARKDOWN, TEXT, json_text

        if self.format == "json":
            self._out(json_text(record()))
        else:
            self._out("\n".join(lines(MARKDOWN if self.format == "markdown" else TEXT)) + "\n")

    def _out(self, text: str) -> None:
        path = self._target()
        if path is None:
            print(text, end="")
            return
        write_text(path, text)
        print(f"wrote {path}", file=sys.stderr)


def _rehearsed(found: "Answer", count: int, words: dict[str, str]) -> tuple[str, ...]:
    from nlp_bench.rehearse.rehearsal import rehearse_rows

    sentences = []
    for place, said in enumerate(rehearse_rows(found, count, **words), start=1):
        sentences.append(said)
        if sys.stderr.isatty():
            print(f"\rrehearsed {place} of {count}", end="\n" if place == count else "", file=sys.stderr, flush=True)
    return tuple(sentences)


def write_plot(chart: "Chart", path: Path) -> None:
    """Write the plot to FILE.svg or FILE.png. Raises UsageError for another ending."""
    if path.suffix not in {".svg", ".png"}:
        raise UsageError(f"--plot: {path} ends neither in .svg nor in .png; name a file of one of the two kinds")
    try:
        from nlp_bench.show.draw import image
    except (ImportError, OSError) as error:
        from nlp_bench.packages import lacking
        from nlp_bench.show.chart import why_no_plots

        missing = lacking(error, "--plot") if isinstance(error, ImportError) else None
        raise missing or NlpBenchError(f"--plot {path}: {why_no_plots()}") from error
    write_bytes(path, image(chart, kind="svg" if path.suffix == ".svg" else "png"))


def _word(name: str) -> str:
    """Return a name for the workflow: a path is made absolute."""
    return str(real(name)) if name.endswith(".toml") else name
