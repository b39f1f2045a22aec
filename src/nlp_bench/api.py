"""What `import nlp_bench` offers: the numbers and words of `nlp-bench report`, `compare` and `plan` as Python objects.

Nothing is computed here. The names of fields are those of the JSON records; rates are tokens per second of the whole machine, times are
seconds, and what is missing is None, never 0. `in_arguments` names arguments in place of options.
"""

import contextlib
import functools
import inspect
import math
import numbers
import operator
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from nlp_bench.analysis import comparison
from nlp_bench.analysis.comparison import Reading, Side
from nlp_bench.analysis.contrast import Gate
from nlp_bench.analysis.repeats import Observation
from nlp_bench.config.accelerators import FORMATS, forget
from nlp_bench.config.values import MAX_COUNT
from nlp_bench.errors import NlpBenchError, UsageError, nearest
from nlp_bench.escape import some
from nlp_bench.immutable import immutable
from nlp_bench.inputs.sources import read_sources
from nlp_bench.measure import REPORT_TOKENS
from nlp_bench.measure.contradiction import Contradiction
from nlp_bench.measure.efficiency import Given, with_given
from nlp_bench.measure.limit import Verdict, sustained_time_ci95_s, verdict_of
from nlp_bench.measure.result import RunResult, Supplied
from nlp_bench.measure.rows import Record, rows_of
from nlp_bench.measure.sizes import Overrides
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.window import Window
from nlp_bench.outcome import Outcome
from nlp_bench.report.answer import answer_of, answers_html
from nlp_bench.report.formats import frame, records_frame, table, typed_frame
from nlp_bench.report.report import Report
from nlp_bench.rules.apply import wanted as wanted_rules

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from nlp_bench.plan.ranking import Answer, Row

PathLike = str | os.PathLike[str]
P = ParamSpec("P")
R = TypeVar("R")
OPTION = re.compile(
    r"(?P<command>\bnlp-bench [a-z]+ [^;,`)\n]*)|^(?P<path>PATH)\b|(?<![\w-])(?P<name>--[a-z][a-z-]*)"
    r"(?:[ =](?P<value>[A-Z][A-Z_]*\b|\d+(?:\.\d+)?\w*|'[^'\n]*'|(?:none|selective|full|any|[a-z]+\d+)\b))?"
)
"""An option in a message with its value, or a command, whose options stay."""


@functools.cache
def _arguments() -> dict[str, tuple[str, bool]]:
    """Return by every spelling of an option its argument's name, and whether it is a switch."""
    from nlp_bench.config.options import spellings  # noqa: PLC0415  # only an error needs it
    from nlp_bench.config.request import Request  # noqa: PLC0415  # likewise
    from nlp_bench.plan.problem import Fixed  # noqa: PLC0415  # likewise

    found = {f"--{field.name.replace('_', '-')}": (field.name, "bool" in str(field.type)) for field in fields(Fixed)}
    for function in (read_log, measure, compare, plan):
        for name, argument in inspect.signature(function).parameters.items():
            found[f"--{name.replace('_', '-')}"] = name, argument.annotation is bool
    for field in fields(Request):
        words = spellings(Request, field.name)
        own = [found[word] for word in (f"--{field.name}", *words) if word in found]
        found |= dict.fromkeys(words, own[0]) if own else {}
    return found


def in_arguments(text: str) -> str:
    """Return a message with arguments for options: sequence_length=N for --sequence-length N."""

    def argument(option: "re.Match[str]") -> str:
        if option["path"]:
            return "path"
        if option["name"] not in _arguments():
            return option[0]
        (name, is_switch), value = _arguments()[option["name"]], option["value"]
        if value is None:
            return f"{name}=True" if is_switch else name
        raw = "r" if "\\" in value else ""
        return f"{name}={value!r}" if value[0].islower() else f"{name}={raw}{value}"

    return OPTION.sub(argument, text)


def _in_own_words(function: Callable[P, R]) -> Callable[P, R]:
    """Let the errors of a function name its arguments."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except NlpBenchError as error:
            error.args = (in_arguments(str(error)), *error.args[1:])
            raise

    return called


@dataclass(frozen=True, eq=False, repr=False)
class Log:
    """One run as a log shows it. `read_log` and `read_logs` make it."""

    entry: RunResult
    """All that was found, as the report holds it; its fields may change between versions."""

    @property
    def source(self) -> str:
        """Where it was read: the path as it was given."""
        return self.entry.source

    @property
    def dialect(self) -> str | None:
        """Program that wrote the log (`nlp-bench report --dialects`), None where nobody knows it."""
        return self.entry.dialect

    @property
    def outcome(self) -> Outcome:
        """How the run ended; only VALID and MEASURED ones have numbers."""
        return self.entry.outcome

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it has no number, or what to know about it."""
        return tuple(map(in_arguments, self.entry.reason_texts))

    @property
    def global_batch_size(self) -> int | None:
        """Samples per iteration, the last one where it changes."""
        return self.entry.global_batch_size

    @property
    def sequence_length(self) -> int | None:
        """Tokens per sample."""
        return self.entry.sequence_length

    @property
    def num_gpus(self) -> int | None:
        """GPUs (or CPU ranks) of the whole run."""
        return self.entry.num_gpus

    @cached_property
    def records(self) -> list[Record]:
        """Every logged line, restarts included: what it prints, what was measured of it, and why it does not count."""
        return list(rows_of(self.entry))

    def to_frame(self) -> "pd.DataFrame":
        """Return `records` as a pandas data frame with the columns of `nlp-bench report --format records-csv` (`help(nlp_bench.Record)`).

        Whole numbers are Int64; what is missing is NaN, NA or None. Raises NlpBenchError where pandas is missing.
        """
        return records_frame(self.records)

    def __repr__(self) -> str:
        number = sum(map(len, self.entry.attempts.values()))
        return f"<Log {self.source}: {self.dialect or 'no dialect'}, {self.outcome.value}, {number} records>"


class Logs(list[Log]):
    """A list of logs that a notebook shows as a table. `read_logs` makes it."""

    def _repr_html_(self) -> str:
        return in_arguments(answers_html([answer_of(log.entry, REPORT_TOKENS) for log in self]))


@_in_own_words
def read_log(  # noqa: PLR0913  # the options of nlp-bench report
    path: PathLike,
    *,
    sequence_length: int | None = None,
    global_batch_size: int | None = None,
    num_gpus: int | None = None,
    gpu: str | None = None,
    precision: str | None = None,
    pattern: str | Sequence[str] = (),
    rules: str | None = None,
) -> Log:
    """Read the one run of a log (any dialect; plain, gzip, xz, zstd, bzip2), of a run folder, or of a file of both.

    `sequence_length` (tokens), `global_batch_size` (samples) and `num_gpus` stand in for what the log does not say, `gpu` (name) and
    `precision` (bf16, fp8, …) too, for the peak that MFU is a share of. `pattern`
    describes the lines of an unknown program by regular expressions (docs/logs.md). `rules` names rules that the run is held to (benchmark/rules).

    A log that can give no number is a Log whose outcome is REFUSED. Raises NlpBenchError where the path cannot be read, where an argument
    is wrong, and where the path holds several runs (differently configured ones in one file, or a folder): `read_logs` gives them all.
    """
    logs = read_logs(
        _path("path", path),
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
        num_gpus=num_gpus,
        gpu=gpu,
        precision=precision,
        pattern=pattern,
        rules=rules,
    )
    if len(logs) != 1:
        raise UsageError(f"{os.fspath(path)} holds {len(logs)} runs, read_log gives one; read_logs gives them all")
    return logs[0]


@_in_own_words
def read_logs(  # noqa: PLR0913  # likewise
    *paths: PathLike | Iterable[PathLike],
    sequence_length: int | None = None,
    global_batch_size: int | None = None,
    num_gpus: int | None = None,
    gpu: str | None = None,
    precision: str | None = None,
    pattern: str | Sequence[str] = (),
    rules: str | None = None,
) -> "Logs":
    """Read every run of all paths; the other arguments are those of `read_log`.

    A path is a log, a folder of logs or runs, a pattern such as "runs/**/*.log", or a list of them.
    Differently configured runs in one file are several logs. Files below a folder that hold no training line are left out; a path that
    cannot be read is a REFUSED log among others, and raises NlpBenchError when it is the only one.
    """
    if not isinstance(pattern, str | list | tuple):
        raise UsageError(f"pattern: {pattern!r:.60} is no text; give a regular expression, or a list of them")
    overrides = Overrides(
        sequence_length=_count("sequence_length", sequence_length),
        global_batch_size=_count("global_batch_size", global_batch_size),
        num_gpus=_count("num_gpus", num_gpus),
        pattern=(pattern,) if isinstance(pattern, str) else tuple(pattern),
    )
    named = [one for path in paths for one in _several(path)]
    if not named:
        raise UsageError("paths: none is given; give a log, a folder, or a pattern")
    if precision is not None and precision not in FORMATS:
        raise UsageError(f"precision: {precision!r:.60} is not one of {', '.join(FORMATS)}")
    if gpu is not None and not isinstance(gpu, str):
        raise UsageError(f"gpu: {gpu!r:.60} is no name of a GPU, such as 'H100-SXM5'")
    forget()
    given = Given(gpu=gpu, precision=precision)
    requested = wanted_rules(rules)
    # No other processes: they would run the caller's script again.
    sources = read_sources(
        [_path("path", path) for path in named], overrides, with_records=True, rules=requested, alone_s=math.inf
    )
    return Logs(Log(entry) for entry in with_given(sources.entries, given))


def _several(path: object) -> Iterable[Any]:
    """Return the paths of a list, a generator or another collection; of one path itself."""
    is_several = (
        isinstance(path, Iterable) and not isinstance(path, str | bytes | os.PathLike) and not hasattr(path, "read")
    )
    return path if is_several else [path]  # type: ignore[return-value]  # as was just asked


@immutable
class Figures:
    """The three throughputs in one unit: tokens per second of the whole machine, or seconds of the hypothetical training.

    reference: by the published formula, batch x sequence / mean of every logged time, warm-up included.
    steady: over the steady window; ci95: its 95 % interval, the smaller end first.
    sustained: over the wall clock from the first counted iteration to the last, nothing left out; sustained_ci95: its 95 % interval.
    """

    reference: float | None
    steady: float | None
    ci95: tuple[float, float] | None
    sustained: float | None
    sustained_ci95: tuple[float, float] | None


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The numbers of one run; `print(result)` is the table of `nlp-bench report`. `measure` makes it.

    log: what was measured; tokens: of the hypothetical training; limit_s: limit of its time in seconds.
    """

    log: Log
    tokens: int
    limit_s: float | None = None

    @property
    def outcome(self) -> Outcome:
        """How the run ended; only VALID and MEASURED ones have numbers."""
        return self.log.outcome

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why there is no number, or what to know about it."""
        return self.log.reasons

    @property
    def supplied(self) -> tuple[Supplied, ...]:
        """Arguments that the log does not show, or contradicts: the log alone does not prove what rests on them."""
        return self.log.entry.supplied

    @property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """What speaks against the number, with code, weight and lines of the log."""
        return self.log.entry.contradictions

    @property
    def tokens_per_second(self) -> Figures:
        """Tokens per second of the whole machine: reference, steady, ci95, sustained, sustained_ci95 (`help(nlp_bench.api.Figures)`)."""
        entry = self.log.entry
        sustained = entry.throughput.sustained if entry.throughput else None
        return Figures(
            reference=entry.reference,
            steady=entry.steady,
            ci95=entry.ci95,
            sustained=entry.sustained,
            sustained_ci95=sustained.ci95 if sustained else None,
        )

    @property
    def time_to_report_s(self) -> Figures:
        """Seconds of the hypothetical training, `tokens` / tokens per second, by the same five names."""
        entry = self.log.entry
        return Figures(
            reference=time_to_report_s(self.tokens, entry.reference),
            steady=time_to_report_s(self.tokens, entry.steady),
            ci95=entry.time_ci95_s(self.tokens),
            sustained=time_to_report_s(self.tokens, entry.sustained),
            sustained_ci95=sustained_time_ci95_s(entry, self.tokens),
        )

    @property
    def window(self) -> Window | None:
        """The steady window: first_iteration, last_iteration, and `excluded`, what was left out and why; None without a number."""
        return self.log.entry.throughput.window if self.log.entry.throughput else None

    @property
    def verdict(self) -> Verdict | None:
        """PASS, FAIL or NOT PROVEN (`word`) with margins and reasons, None without a limit."""
        return None if self.limit_s is None else verdict_of(self.log.entry, self.tokens, self.limit_s)

    @property
    def _report(self) -> Report:
        return Report(entries=[self.log.entry], tokens=self.tokens, limit_s=self.limit_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the record nlp-bench/report/1 of this run, that of `nlp-bench report --format json`."""
        return self._report.to_json()

    def to_frame(self) -> "pd.DataFrame":
        """Return one row, as `nlp_bench.to_frame` does."""
        return to_frame(self)

    @_in_own_words
    def plot(self, kind: str = "throughput") -> "Figure":
        """Return a plot of the report, throughput, loss or step-times, as a figure of matplotlib.

        A notebook shows it. Raises NlpBenchError without matplotlib, a number, or data to draw.
        """
        from nlp_bench.measure.curves import curves_of  # noqa: PLC0415  # who reads numbers needs no plots
        from nlp_bench.report.plots import CHARTS, PLOTS  # noqa: PLC0415  # likewise
        from nlp_bench.show.chart import why_no_plots  # noqa: PLC0415  # likewise

        entry = self.log.entry
        if kind not in PLOTS:
            raise UsageError(f"kind: {kind!r:.60} is not one of {', '.join(PLOTS)}")
        if why := why_no_plots():
            raise NlpBenchError(f"plot: {why}")
        if entry.throughput is None:
            raise NlpBenchError(f"plot: {entry.source} has nothing to draw: {self!r}")
        drawn = replace(entry, curves=curves_of(entry.records, entry.throughput))
        chart = CHARTS[[*PLOTS].index(kind)]([drawn])
        if chart is None:
            raise NlpBenchError(f"plot: {entry.source} has nothing to draw of {kind}")
        from nlp_bench.show.draw import figure  # noqa: PLC0415  # matplotlib

        return figure(chart)

    def _repr_html_(self) -> str:
        return in_arguments(answers_html([answer_of(entry, self.tokens) for entry in self._report.entries]))

    def __str__(self) -> str:
        return table(self._report)

    def __repr__(self) -> str:
        rate, time, window = self.tokens_per_second, self.time_to_report_s.steady, self.window
        if rate.steady is None or time is None or window is None:
            known = f"{rate.reference:.2f} tokens/s reference" if rate.reference else "no number"
            said = [known, *self.reasons[:1]]
        else:
            between = f" (95 % {rate.ci95[0]:.2f} to {rate.ci95[1]:.2f})" if rate.ci95 else ""
            said = [
                f"{rate.steady:.2f} tokens/s steady{between}",
                f"{time:.2f} s for {self.tokens:,} tokens",
                f"iterations {window.first_iteration}-{window.last_iteration}",
            ]
        said += [f"limit {self.limit_s:g} s: {self.verdict.word}"] if self.verdict else []
        said += [f"supplied: {', '.join(each.cell for each in self.supplied)}"] if self.supplied else []
        return f"<Result {self.log.source}: {self.outcome.value}, {', '.join(said)}>"


@_in_own_words
def measure(log: Log, *, tokens: int = REPORT_TOKENS, limit: float | None = None) -> Result:
    """Return the numbers of a run for a training on `tokens` tokens, and with `limit` (seconds) whether it is proven to be within.

    A run that has no number is a Result with its outcome and reasons. Raises NlpBenchError on a wrong argument.
    """
    if not isinstance(log, Log):
        raise UsageError(f"log: {log!r:.60} is no Log; give what read_log returns")
    limit_s = _number("limit", limit, "no number of seconds above 0")
    return Result(log, _count("tokens", tokens) or REPORT_TOKENS, limit_s)


@_in_own_words
def to_frame(results: Result | Iterable[Result]) -> "pd.DataFrame":
    """Return a row for each result as a pandas data frame with the columns of `nlp-bench report --format csv` (docs/report.md has their units).

    Raises NlpBenchError where pandas is missing, and where the results are of different tokens or limits.
    """
    rows = [results] if isinstance(results, Result) else list(results) if isinstance(results, Iterable) else [None]
    if not all(isinstance(each, Result) for each in rows):
        raise UsageError("results: one of them is no Result; give what measure returns")
    questions = {(each.tokens, each.limit_s) for each in rows} or {(REPORT_TOKENS, None)}
    if len(questions) > 1:
        raise UsageError("results: their tokens or limits differ; measure all with the same")
    tokens, limit_s = questions.pop()
    return frame(Report(entries=[each.log.entry for each in rows], tokens=tokens, limit_s=limit_s))


@immutable
class Ratio:
    """Rate of B / rate of A in one configuration; all but the first None where one side has no number.

    configuration: in a few words. value: the ratio, above 1 B is faster; low, high: ends of its interval, whose level is 0.95 for all configurations together.
    p_value: of no difference, None where nothing is proven.
    verdict: what B is: faster, slower, no difference found, doubted (a log contradicts its own number), not proven, no interval.
    basis: what it rests on: several runs each, one run against several, one run each. method: whose scatter the interval is made of.
    """

    configuration: str
    value: float | None
    low: float | None
    high: float | None
    level: float | None
    p_value: float | None
    verdict: str | None
    basis: str | None
    method: str | None


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Whether B is faster than A; `print(comparison)` is the table of `nlp-bench compare`. `compare` makes it."""

    found: comparison.Comparison
    """All that was found; its fields may change between versions."""

    @property
    def ratios(self) -> list[Ratio]:
        """Rate of B / rate of A for each configuration of both sides (`help(nlp_bench.api.Ratio)`)."""
        names = [field.name for field in fields(Ratio)][1:]
        return [
            Ratio(configuration=one["configuration"], **{name: (one["ratio"] or {}).get(name) for name in names})
            for one in self.to_dict()["comparisons"]
        ]

    @property
    def passes(self) -> bool:
        """Whether `nlp-bench compare` would exit with 0: no gate stops; without one, every configuration has a number on both sides."""
        return self.found.exit_code == 0

    def to_dict(self) -> dict[str, Any]:
        """Return the record nlp-bench/compare/1, that of `nlp-bench compare --format json`."""
        return comparison.record(self.found)

    def __str__(self) -> str:
        return comparison.table(self.found)

    def __repr__(self) -> str:
        said = [
            f"{one.configuration}: " + (f"B/A {one.value:.4f}, {one.verdict}" if one.value else "without a number")
            for one in self.ratios
        ]
        gates = [self.found.word(gate).value for gate in self.found.gates]
        return f"<Comparison {'; '.join([*said, *gates])}>"


@_in_own_words
def compare(  # noqa: PLR0913  # the options of nlp-bench compare
    a: Log | Iterable[Log],
    b: Log | Iterable[Log],
    *,
    gate: float | None = None,
    equivalent: float | None = None,
    strict: bool = False,
    scatter: Iterable[Log] | None = None,
    same_workload: bool = False,
    allow_measured: bool = False,
    tokens: int = REPORT_TOKENS,
) -> Comparison:
    """Compare the runs of B with those of A, the baseline: one log each, or several that are repeats or other configurations.

    One run each proves nothing, unless `scatter` has repeated runs of A's machine. `gate` (percent) asks whether B is slower by more
    than that, `equivalent` whether neither is; `strict` lets what is not proven stop too. `same_workload`: you vouch that logs which do not
    show what they trained did the same. `allow_measured`: take MEASURED logs as repeats of each other, too.

    Raises NlpBenchError where the sides did different work, where nothing of A has a number, and on a wrong argument.
    """
    for name, switch in (("strict", strict), ("same_workload", same_workload), ("allow_measured", allow_measured)):
        _switch(name, switch)
    gates = [
        Gate(percent=percent, strict=strict, equivalence=name == "equivalent")
        for name, value in (("gate", gate), ("equivalent", equivalent))
        if (percent := _number(name, value, "no percentage above 0 and below 100", 100))
    ]
    if strict and not gates:
        raise UsageError("strict: goes with gate or equivalent; give one of them")
    reading = Reading(overrides=Overrides(), trust=same_workload, allow_measured=allow_measured)
    first, second = _side("a", a, reading), _side("b", b, reading)
    if scatter is not None:
        first = comparison.with_scatter(first, _observations("scatter", scatter), reading, "scatter")
    count = _count("tokens", tokens) or REPORT_TOKENS
    return Comparison(comparison.compare(first, second, tokens=count, vouched=same_workload, gates=gates))


def _side(name: str, logs: Log | Iterable[Log], reading: Reading) -> Side:
    runs = _observations(name, logs)
    return Side.of(some((run.source for run in runs), 1), runs, reading)


def _observations(name: str, logs: Log | Iterable[Log]) -> list[Observation]:
    found = [logs] if isinstance(logs, Log) else list(logs) if isinstance(logs, Iterable) else [logs]
    if not found or not all(isinstance(log, Log) for log in found):
        raise UsageError(f"{name}: {logs!r:.60} is no Log and no list of them; give what read_log or read_logs returns")
    return [Observation.of(log.entry) for log in found]


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Predicted, not measured: ranked configurations; `print(plan)` is the table of `nlp-bench plan`. `plan` makes it."""

    answer: "Answer"
    """All that was found; its fields may change between versions."""

    @property
    def configurations(self) -> "Sequence[Row]":
        """Those that fit, fastest first; none where nothing fits.

        Each has `sizes` (tp, pp, dp, …), `report_s` (seconds of the training), `low_s` and `high_s` (90 % interval), `iteration_s`,
        `tokens_per_second`, `memory_gib` of `capacity_gib` (fullest GPU), `fits` (yes, tight, no).
        """
        return self.answer.rows

    @property
    def published(self) -> "Row | None":
        """The configuration of the model file, None where it is not legal here."""
        return self.answer.published

    def to_dict(self) -> dict[str, Any]:
        """Return the record nlp-bench/plan-answer/1, that of `nlp-bench plan --format json`."""
        from nlp_bench.plan.record import plan_record  # noqa: PLC0415  # who reads logs needs no planner

        return plan_record(self.answer)

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each configuration, with the columns of `nlp-bench plan --format csv`. Raises NlpBenchError where pandas is missing."""
        from nlp_bench.plan.record import COLUMNS, flat  # noqa: PLC0415  # likewise

        return typed_frame(COLUMNS, [flat(row) for row in self.configurations])

    def __str__(self) -> str:
        from nlp_bench.plan.text import ranking_lines  # noqa: PLC0415  # likewise
        from nlp_bench.show.table import TEXT  # noqa: PLC0415  # likewise

        return "\n".join(ranking_lines(self.answer, TEXT)) + "\n"

    def __repr__(self) -> str:
        problem = self.answer.problem
        best = "nothing fits"
        if self.configurations:
            row = self.configurations[0]
            best = f"{row.sizes.layout}: {row.report_s:.1f} s (90 % {row.low_s:.1f} to {row.high_s:.1f}), {row.memory}"
        return f"<Plan {problem.model.name} on {problem.nodes} nodes of {problem.system.name}, predicted: {best}>"


@_in_own_words
def plan(  # noqa: PLR0913  # the options of nlp-bench plan
    model: PathLike,
    system: PathLike,
    nodes: int | None = None,
    *,
    gpus_per_node: int | None = None,
    global_batch_size: int | None = None,
    sequence_length: int | None = None,
    precision: str | None = None,
    tokens: int = REPORT_TOKENS,
    top: int = 10,
    constants: PathLike | None = None,
    **fixed: int | str | bool,
) -> Plan:
    """Rank every legal configuration of a model on a machine by the predicted time of a training on `tokens` tokens.

    `model` and `system` are names of benchmark/models and benchmark/systems, or paths of such files; what is not given is as they have
    it. `fixed` holds sizes and switches: tp, pp, vpp, cp, micro_batch_size, gas, first_layers, last_layers, recompute (none, selective, full,
    any), recompute_method, recompute_num_layers, recompute_modules (a tuple), sequence_parallel, distributed_optimizer, overlap_grad_reduce,
    overlap_param_gather. `constants` is a file as of `nlp-bench plan
    calibrate`.

    Raises NlpBenchError where no configuration is legal, and on a wrong argument.
    """
    from nlp_bench.config import catalog  # noqa: PLC0415  # who reads logs needs no planner
    from nlp_bench.plan.constants import read_constants  # noqa: PLC0415  # likewise
    from nlp_bench.plan.problem import make_problem  # noqa: PLC0415  # likewise
    from nlp_bench.plan.ranking import ranking  # noqa: PLC0415  # likewise

    forget()
    problem = make_problem(
        catalog.load_model(_path("model", model)),
        catalog.load_system(_path("system", system)),
        read_constants(None if constants is None else _path("constants", constants)),
        nodes=_count("nodes", nodes),
        gpus_per_node=_count("gpus_per_node", gpus_per_node),
        global_batch_size=_count("global_batch_size", global_batch_size),
        sequence_length=_count("sequence_length", sequence_length),
        tokens=_count("tokens", tokens) or REPORT_TOKENS,
        precision=precision,
        fixed=_fixed(fixed),
    )
    return Plan(ranking(problem, top=_count("top", top) or 1))


def _fixed(given: dict[str, Any]) -> Any:
    from nlp_bench.plan.problem import RECOMPUTE_WORDS, Fixed  # noqa: PLC0415  # likewise

    kinds = {field.name: str(field.type) for field in fields(Fixed)}
    for name, value in given.items():
        if name not in kinds:
            raise UsageError(f"plan: unknown argument {name!r}{nearest(name, list(kinds))}")
        if "int" in kinds[name]:
            _count(name, value)
        elif name == "recompute" and value not in RECOMPUTE_WORDS:
            raise UsageError(f"recompute: {value!r:.60} is not one of {', '.join(RECOMPUTE_WORDS)}")
        elif "bool" in kinds[name]:
            _switch(name, value)
    return Fixed(**given)


def _count(name: str, value: float | None) -> int | None:
    """Return a whole number above 0, also one of numpy's and 20e6, which is a float of Python's; None stays None."""
    if value is None:
        return None
    try:
        whole: Any = int(value) if isinstance(value, float) and value.is_integer() else value
        number = 0 if isinstance(value, bool) else operator.index(whole)
    except TypeError:
        number = 0
    if not 0 < number <= MAX_COUNT:
        raise UsageError(f"{name}: {value!r:.60} is no whole number above 0 and at most 10^18")
    return number


def _switch(name: str, value: bool) -> None:
    if not isinstance(value, bool):
        raise UsageError(f"{name}: {value!r:.60} is neither True nor False")


def _path(name: str, value: object) -> str:
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    is_several = isinstance(value, Iterable) and not isinstance(value, bytes)
    remedy = "read_logs takes several" if is_several else "give it in quotes"
    remedy = "give the name of the file" if hasattr(value, "read") else remedy
    raise UsageError(f"{name}: {value!r:.60} is neither a text nor a path; {remedy}")


def _number(name: str, value: object, said: str, most: float = math.inf) -> float | None:
    """Return a number above 0 and below `most` as one of Python's own, also one of numpy's; None stays None, and `said` is the error."""
    if value is None:
        return None
    number = math.nan
    if not isinstance(value, bool) and isinstance(value, numbers.Real):
        with contextlib.suppress(OverflowError):
            number = float(value)
    if not 0 < number < most:
        raise UsageError(f"{name}: {value!r:.60} is {said}")
    return int(value) if isinstance(value, numbers.Integral) else number
