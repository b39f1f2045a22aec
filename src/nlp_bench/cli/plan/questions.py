"""The questions that `nlp-bench plan` answers, on standard output or in a file."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.cli.plan import Plan
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import real, write_bytes, write_text
from nlp_bench.packages import lacking
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from nlp_bench.config.model import Model
    from nlp_bench.plan.constants import Constants
    from nlp_bench.plan.problem import Problem
    from nlp_bench.plan.ranking import Answer
    from nlp_bench.show.chart import Chart
    from nlp_bench.show.table import Style


def answer(options: Plan, constants: "Constants") -> int:
    """Answer the question that the options ask; return the exit code."""
    if options.model_size:
        return _model_size(options, constants)
    from nlp_bench.config import catalog

    problem = options.problem(catalog.load_model(options.model or ""), options.named_system(), constants)
    say(*(f"warning: {deviation}: not the benchmark" for deviation in problem.deviations))
    say(*(f"warning: {doubt}" for doubt in problem.doubts))
    if options.time is not None:
        return _time(options, problem, options.time)
    return _why(options, problem) if options.why else _rank(options, problem)


def _rank(options: Plan, problem: "Problem") -> int:
    """Rank, rehearse the best if requested, print the ranking or the bid sheet, write the sweep and the plot."""
    from nlp_bench.plan.ranking import ranking

    found = ranking(problem, top=options.top or 10)
    words = {"model": _word(options.model or ""), "system": _word(options.system or problem.system.name)}
    if options.rehearse:
        found = replace(found, rehearsed=_rehearsed(found, min(options.rehearse, len(found.rows)), words))
    if options.bid:
        from nlp_bench.cli.plan.bid import FORMATS
        from nlp_bench.plan.bid import bid

        made = bid(
            found, margin=options.margin, constants=options.constants, model=words["model"], system=words["system"]
        )
        _out(options, FORMATS[options.format or "table"](made))
    elif options.format == "csv":
        from nlp_bench.plan.record import COLUMNS, flat
        from nlp_bench.show.table import as_csv

        _out(options, as_csv(COLUMNS, [flat(row) for row in found.shown]))
    else:
        from nlp_bench.plan.record import plan_record
        from nlp_bench.plan.text import ranking_lines

        _say(options, lambda style: ranking_lines(found, style), lambda: plan_record(found))
    if path := options.emit_jube:
        from nlp_bench.plan.sweep import shortlist, sweep_text

        write_text(path, sweep_text(shortlist(found), problem, **words))
        print(f"wrote {path}; run it with: jube run {shlex.quote(str(path))}", file=sys.stderr)
    if options.plot:
        from nlp_bench.plan.plot import plan_chart

        write_plot(plan_chart(found), options.plot)
        print(f"wrote {options.plot}", file=sys.stderr)
    return 0 if found.rows else 1


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
        from nlp_bench.show.chart import why_no_plots

        missing = lacking(error, "--plot") if isinstance(error, ImportError) else None
        raise missing or NlpBenchError(f"--plot {path}: {why_no_plots()}") from error
    write_bytes(path, image(chart, kind="svg" if path.suffix == ".svg" else "png"))


def _word(name: str) -> str:
    """Return a name for the workflow: a path is made absolute."""
    return str(real(name)) if name.endswith(".toml") else name


def _why(options: Plan, problem: "Problem") -> int:
    from nlp_bench.plan.record import why_record
    from nlp_bench.plan.text import why_lines
    from nlp_bench.plan.why import explain

    why = explain(problem)
    _say(options, lambda style: why_lines(why, style), lambda: why_record(why))
    return 0 if why.row is not None and why.row.fits == "yes" else 1


def _time(options: Plan, problem: "Problem", limit_s: float) -> int:
    from nlp_bench.plan.capacity import MOST, smallest
    from nlp_bench.plan.record import nodes_record
    from nlp_bench.plan.text import nodes_lines

    if options.nodes is None:
        problem = replace(problem, nodes=MOST * problem.nodes)
    found = smallest(problem, limit_s)
    _say(options, lambda style: nodes_lines(found, style), lambda: nodes_record(found))
    return 0 if found.within else 1


def _model_size(options: Plan, constants: "Constants") -> int:
    from nlp_bench.plan.capacity import batch_for, recommend
    from nlp_bench.plan.record import size_record
    from nlp_bench.plan.text import size_lines

    system = options.named_system()

    def make(model: "Model") -> "Problem":
        problem = options.problem(model, system, constants)
        if options.global_batch_size is None:
            problem = replace(problem, global_batch_size=batch_for(problem.global_batch_size, problem.num_gpus))
        return problem

    found = recommend(options.days or 0.0, make)
    say(*(f"warning: {doubt}" for doubt in found.problem.doubts))
    _say(options, lambda style: size_lines(found, style), lambda: size_record(found))
    return 0 if found.chosen else 1


def _say(options: Plan, lines: "Callable[[Style], list[str]]", record: Callable[[], dict[str, Any]]) -> None:
    from nlp_bench.show.table import MARKDOWN, TEXT, json_text

    if options.format == "json":
        _out(options, json_text(record()))
    else:
        _out(options, "\n".join(lines(MARKDOWN if options.format == "markdown" else TEXT)) + "\n")


def _out(options: Plan, text: str) -> None:
    path = options.target()
    if path is None:
        print(text, end="")
        return
    write_text(path, text)
    print(f"wrote {path}", file=sys.stderr)
