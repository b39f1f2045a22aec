"""A report: its runs, what each column of them is on a terminal, in markdown, CSV, HTML and data frames, and its notes and legend."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from nlp_bench.analysis.repeats import Pool, apart_line, pool_json, repeat_lines, repeats
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.inputs.sources import PassedOver
from nlp_bench.measure.limit import verdict_of
from nlp_bench.measure.result import RunResult, supplied_lines
from nlp_bench.measure.throughput import Clock, time_to_report_s
from nlp_bench.report.answer import WIDTH, Answer, answer_of, digits_of
from nlp_bench.show.table import TEXT, Column, Style, plain, small, tflops, widest

MAX_WORD = 12


def currency_of(word: str | None, price_per_kwh: float | None) -> str | None:
    """Return the word for the unit of the price; raises UsageError when there is no price, or it is no short word."""
    if word is None:
        return None
    if price_per_kwh is None:
        raise UsageError("--currency: it names the unit of --price-per-kwh, which is missing; give both")
    if not (1 <= len(word) <= MAX_WORD and word.isprintable() and not word.isspace()):
        raise UsageError(f"--currency: {word[:40]!r} is no word of 1 to {MAX_WORD} characters, such as EUR")
    return word


Of = Callable[[RunResult, "Report"], Any]


@immutable(kw_only=False)
class Field:
    """One column of the runs."""

    of: Of | str  # its cell of a run, None for what is missing; or where the run has it, as `energy.joules_per_token`
    title: str = ""  # heading on the page, where the name would not do
    unit: str = ""  # below that heading
    wide: str = ""  # in markdown, where the words of its heading in PEOPLE stand below those of its neighbour
    is_text: bool = False  # whether it is no number even where all cells are digits: a model may be called 175
    form: Callable[[Any], str] = plain  # how a cell is written on a terminal and in markdown
    people: Of | None = None  # the cell there, where it is not that of the data

    def cell(self, entry: RunResult, report: "Report") -> Any:
        """Return the cell of a run."""
        if not isinstance(self.of, str):
            return self.of(entry, report)
        found: Any = entry
        for name in self.of.split("."):
            found = None if found is None else getattr(found, name)
        return found

    def shown(self, entry: RunResult, report: "Report") -> Any:
        """Return the cell of a run for people."""
        return (self.people or self.cell)(entry, report)


def _time(rate: str) -> Of:
    return lambda e, r: time_to_report_s(r.tokens, getattr(e, rate))


def _steady_rate(entry: RunResult, _: "Report") -> str | None:
    return digits_of(entry.steady, entry.ci95)[0] if entry.steady else None


def _steady_time(entry: RunResult, report: "Report") -> str | None:
    time_s = time_to_report_s(report.tokens, entry.steady)
    return digits_of(time_s, entry.time_ci95_s(report.tokens))[0] if time_s else None


def _time_interval(entry: RunResult, report: "Report") -> str | None:
    time_s = time_to_report_s(report.tokens, entry.steady)
    return "-".join(digits_of(time_s, entry.time_ci95_s(report.tokens))[1]) or None if time_s else None


def _end(pair: tuple[float, float] | None, index: int) -> float | None:
    return pair[index] if pair else None


def _window(entry: RunResult, _: "Report") -> str | None:
    found = entry.throughput.window if entry.throughput else None
    return f"{found.first_iteration}-{found.last_iteration}" if found else None


def _cost(entry: RunResult, report: "Report") -> float | None:
    return entry.energy.cost(report.tokens, report.price_per_kwh) if entry.energy else None


def _cost_words(entry: RunResult, report: "Report") -> str:
    """Return the cost of the training's energy with its unit, empty where it is not known."""
    cost = _cost(entry, report)
    return "" if cost is None else f"cost {small(cost)} {report.currency or ''}".rstrip()


def _kwh(entry: RunResult, report: "Report") -> float | None:
    return entry.energy.kwh(report.tokens) if entry.energy else None


def _ranks(entry: RunResult, _: "Report") -> int | str | None:
    return f"{entry.num_gpus} CPU" if entry.num_gpus and entry.accelerator == "cpu" else entry.num_gpus


ALIKE = 0.005  # share of the steady time by which the sustained one has to differ to be a cell of the table


def sustained_s(entry: RunResult, report: "Report") -> float | None:
    """Return the sustained time, None where it is within ALIKE of the steady one: the sentences below the table have it."""
    is_alike = entry.steady and entry.sustained and abs(entry.steady / entry.sustained - 1) <= ALIKE
    return None if is_alike else time_to_report_s(report.tokens, entry.sustained)


FIELDS: dict[str, Field] = {
    "source": Field("source", "run", is_text=True),
    "model": Field("model", is_text=True),
    "outcome": Field("outcome.value", is_text=True),
    "num_gpus": Field("num_gpus", "GPUs", people=_ranks),
    "accelerator": Field("accelerator", is_text=True),
    "global_batch_size": Field("global_batch_size", "global batch", "samples"),
    "sequence_length": Field("sequence_length", "sequence", "tokens"),
    "supplied": Field(
        lambda e, _: "; ".join(each.cell for each in e.supplied) or None, "supplied by hand", is_text=True
    ),
    "num_records": Field("num_records", "logged intervals"),
    "quality": Field(lambda e, _: e.quality.value if e.quality else None, is_text=True),
    "tokens_per_second_reference": Field("reference", "rate, reference", "tokens/s", "reference tokens/s"),
    "time_to_report_reference_s": Field(_time("reference"), "time, reference", "s"),
    "tokens_per_second_steady": Field("steady", "rate, steady", "tokens/s", "steady tokens/s", people=_steady_rate),
    "tokens_per_second_ci95_low": Field(lambda e, _: _end(e.ci95, 0), "95 % interval from", "tokens/s"),
    "tokens_per_second_ci95_high": Field(lambda e, _: _end(e.ci95, 1), "to", "tokens/s"),
    "time_to_report_steady_s": Field(_time("steady"), "time, steady", "s", people=_steady_time),
    "time_to_report_ci95_low_s": Field(lambda e, r: _end(e.time_ci95_s(r.tokens), 0), "95 % interval from", "s"),
    "time_to_report_ci95_high_s": Field(lambda e, r: _end(e.time_ci95_s(r.tokens), 1), "to", "s"),
    "tokens_per_second_sustained": Field("sustained", "rate, sustained", "tokens/s"),
    "time_to_report_sustained_s": Field(_time("sustained"), "time, sustained", "s", people=sustained_s),
    "tokens_per_second_per_gpu": Field("tokens_per_second_per_gpu", "rate per GPU", "tokens/s"),
    "seconds_per_iteration_mean": Field("throughput.seconds_per_iteration.mean", "mean iteration", "s"),
    "joules_per_token": Field("energy.joules_per_token", "energy per token", "J", form=small),
    "energy_kwh": Field(_kwh, "energy", "kWh", "energy kWh", form=small),
    "mean_power_w_per_gpu": Field("energy.mean_power_w_per_gpu", "mean power per GPU", "W"),
    "cost": Field(_cost, form=small),
    "window_first_iteration": Field("throughput.window.first_iteration", "steady window from", "iteration"),
    "window_last_iteration": Field("throughput.window.last_iteration", "to", "iteration"),
    "dialect": Field("dialect", is_text=True),
    "rules": Field("rules.result", is_text=True),
    "reasons": Field(lambda e, _: "; ".join(e.reason_texts) or None, is_text=True),
    "model_tflops_per_gpu": Field("efficiency.model_tflops_per_gpu", "model FLOP/s per GPU", "TFLOP/s", form=tflops),
    "model_tflops_full_attention_per_gpu": Field(
        "efficiency.model_tflops_full_attention_per_gpu", "the same, full attention", "TFLOP/s"
    ),
    "hardware_tflops_per_gpu": Field("efficiency.hardware_tflops_per_gpu", "hardware FLOP/s per GPU", "TFLOP/s"),
    "legacy_tflops_per_gpu": Field("efficiency.legacy_tflops_per_gpu", "legacy count, x 4/3, per GPU", "TFLOP/s"),
    "mfu": Field("efficiency.mfu", "MFU", "share of the peak", form=lambda share: f"{100 * share:.1f}"),
    "hfu": Field("efficiency.hfu", "HFU", "share of the peak"),
    "mfu_full_attention": Field("efficiency.mfu_full_attention", "MFU, full attention", "share of the peak"),
}
"""Columns of the CSV and the data frame, and of the tables for people; docs/report.md says what each means."""
LIMIT_FIELDS: dict[str, Field] = {
    "limit": Field("verdict.word", is_text=True),
    "limit_s": Field(lambda _, r: r.limit_s, "limit", "s"),
    "limit_margin": Field("verdict.margin"),
    "limit_worst_margin": Field("verdict.worst_margin"),
}
PEOPLE_FIELDS: dict[str, Field] = {
    "ci95": Field(_time_interval),
    "window": Field(_window),
    "bar": Field(lambda _, __: None, "95 % interval", "s; left is faster", is_text=True),
}
"""Columns that data do not have: two of the terminal and markdown, one of the page, which draws it."""
ALL_FIELDS = FIELDS | LIMIT_FIELDS | PEOPLE_FIELDS
PEOPLE = {
    "source": "source", "model": "model", "outcome": "outcome", "limit": "limit", "rules": "rules", "quality": "quality",
    "time_to_report_reference_s": "reference\ntime s", "tokens_per_second_reference": "\ntokens/s",
    "time_to_report_steady_s": "steady\ntime s", "ci95": "95 %\ninterval s", "tokens_per_second_steady": "\ntokens/s", "window": "\nwindow",
    "time_to_report_sustained_s": "sustained\ntime s", "num_gpus": "GPUs", "global_batch_size": "batch", "dialect": "dialect",
    "joules_per_token": "energy\nJ/token", "energy_kwh": "\nkWh", "cost": "\ncost", "model_tflops_per_gpu": "TFLOP/s\nper GPU", "mfu": "MFU\n%",
}  # fmt: skip
"""Columns of a terminal and of markdown, what is decided on first, with their headings: a line break splits one over two lines."""


def title_of(column: str) -> tuple[str, str]:
    """Return the heading and the unit of a column on a page."""
    field = ALL_FIELDS[column]
    return field.title or column.replace("_", " "), field.unit


@immutable
class Report:
    """Everything that the writers need."""

    entries: Sequence[RunResult]  # the runs in the order in which they were named
    tokens: int
    limit_s: float | None = None  # limit of the steady time in seconds, None without `--limit`
    baseline_gpus: int | None = None  # GPUs of the baseline of scaling curves, None for the smallest size
    allow_measured: bool = False  # whether logs that are MEASURED are pooled as repeats, too
    price_per_kwh: float | None = None  # price of a kWh, None without `--price-per-kwh`
    currency: str | None = None  # word for the unit of the price
    passed_over: Sequence[PassedOver] = ()  # for each folder that was looked through, the files that are no logs

    def __post_init__(self) -> None:
        """Compute each run's verdict on the limit once."""
        limit_s = self.limit_s
        verdicts = (None if limit_s is None else verdict_of(entry, self.tokens, limit_s) for entry in self.entries)
        judged = [replace(entry, verdict=verdict) for entry, verdict in zip(self.entries, verdicts, strict=True)]
        object.__setattr__(self, "entries", judged)

    @cached_property
    def repeats(self) -> list[Pool]:
        """The configurations that were run more than once."""
        return repeats(self.entries, allow_measured=self.allow_measured)

    def is_repeated(self, entry: RunResult) -> bool:
        """Say whether the run is one of several of its configuration."""
        return any(run.source == entry.source for found in self.repeats for run in found.runs)

    @property
    def fields(self) -> dict[str, Field]:
        """The columns; the verdict on the limit is there only when a limit was given."""
        return FIELDS if self.limit_s is None else FIELDS | LIMIT_FIELDS

    def answer(self, entry: RunResult) -> Answer:
        """Return the answer for one of its runs."""
        return answer_of(entry, self.tokens, _cost_words(entry, self))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each run, a value per column; missing is None."""
        fields = self.fields
        return [{name: field.cell(entry, self) for name, field in fields.items()} for entry in self.entries]

    def to_json(self) -> dict[str, Any]:
        """Return the record of nlp-bench/report/1; keys about a limit, repeats and files passed over are there only where there are such."""
        runs = [entry.to_json(self.tokens) for entry in self.entries]
        record: dict[str, Any] = {"schema": "nlp-bench/report/1", "tokens": self.tokens}
        if self.limit_s is not None:
            record["limit_s"] = self.limit_s
        if self.price_per_kwh is not None:
            record |= {"price_per_kwh": self.price_per_kwh, "currency": self.currency}
            for run, entry in zip(runs, self.entries, strict=True):
                if entry.energy:
                    run["energy"]["cost"] = _cost(entry, self)
        record["runs"] = runs
        if self.repeats:
            record["repeats"] = [pool_json(found, self.tokens, self.limit_s) for found in self.repeats]
        if self.passed_over:
            record["passed_over"] = [passed.to_json() for passed in self.passed_over]
        return record


# Cells for people: few columns, two decimals, an interval in one cell.

BRIEF = (
    "source", "outcome", "limit", "rules", "quality", "time_to_report_reference_s", "time_to_report_steady_s", "ci95"
)  # fmt: skip
"""Columns for a terminal where there are many runs, before the reason."""
MAX_ALIKE = 3  # runs with the same note that are named one by one, at most
MAX_LISTED = 12  # with more runs, each has its reason in its row, and a note on many is printed once, with their number
MAX_WHYS = 10  # causes for which there is no number that are listed, at most
_ALWAYS = ("source", "outcome", "time_to_report_reference_s", "tokens_per_second_reference")
_BY_NAME = {
    "global_batch_size": ("global_batch_size",),
    "num_gpus": ("num_gpus", "model_tflops_per_gpu", "mfu"),
    "gpu": ("mfu",),
    "precision": ("mfu",),
}
"""Supplied value to the cells that it changes, besides those of the rate."""


def readable(report: Report, *, style: Style = TEXT) -> list[Column]:
    """Return the columns that are worth showing; a cell that rests on a value that the log does not show ends in a star."""
    names = tuple(PEOPLE)
    if is_many(report) and style is TEXT:
        names = BRIEF
    elif all(entry.model is not None for entry in report.entries):  # runs of ours: the dialect says nothing new
        names = tuple(name for name in names if name != "dialect")
    stars = [starred(entry) for entry in report.entries]
    columns = {name: _column(name, report, stars, style) for name in names if name in report.fields | PEOPLE_FIELDS}
    found = [column for name, column in columns.items() if name in _ALWAYS or any(column.shown)]
    if style is not TEXT and is_many(report):
        after = max(index for index, column in enumerate(found) if column.name in BRIEF) + 1
        whys = [_said(entry) for entry in report.entries]
        found.insert(after, Column(heading="reason", cells=whys, is_text=True))
    return found if style is not TEXT else _fitting(found)


FIRST = (
    "source", "outcome", "limit", "rules", "quality", "time_to_report_reference_s", "time_to_report_steady_s", "ci95",
    "tokens_per_second_steady", "num_gpus", "global_batch_size", "mfu", "model_tflops_per_gpu", "model",
)  # fmt: skip
"""Columns of a terminal by weight; the others follow in their order."""


def _fitting(columns: list[Column]) -> list[Column]:
    """Return the columns that fit in WIDTH, the most important ones first considered."""
    weight = {name: index for index, name in enumerate(FIRST)}
    kept: list[Column] = []
    for column in sorted(columns, key=lambda one: weight.get(one.name, len(weight))):
        if sum(map(widest, [*kept, column])) + 2 * len(kept) <= WIDTH or column.name in BRIEF:
            kept.append(column)
    return [column for column in columns if column in kept]


def _column(name: str, report: Report, stars: list[set[str]], style: Style) -> Column:
    field = ALL_FIELDS[name]
    values = [field.shown(entry, report) for entry in report.entries]
    cells = ["" if value is None else str(value) if isinstance(value, str) else field.form(value) for value in values]
    marks = ["*" if cell and name in found else "" for cell, found in zip(cells, stars, strict=True)]
    width = max(map(len, marks), default=0)  # the digits of the others stay below each other
    cells = [cell and cell + mark.ljust(width) for cell, mark in zip(cells, marks, strict=True)]
    heading = "" if style is TEXT else field.wide
    return Column(name=name, heading=heading or PEOPLE[name], cells=cells, is_text=field.is_text)


def _said(entry: RunResult) -> str:
    return "; ".join((*entry.reason_texts, *entry.remarks))


def is_many(report: Report) -> bool:
    """Say whether there are more runs than are listed with all columns."""
    return len(report.entries) > MAX_LISTED


def starred(entry: RunResult) -> set[str]:
    """Return the columns that rest on what a person supplied."""
    names = {name for each in entry.supplied for name in _BY_NAME.get(each.name, ())}
    if any(each.changes_rate for each in entry.supplied):
        names |= {f"time_to_report_{kind}_s" for kind in ("steady", "reference", "sustained")}
        names |= {"tokens_per_second_steady", "model_tflops_per_gpu", "mfu", "joules_per_token", "energy_kwh", "cost"}
    return names


def pooled(report: Report) -> list[str]:
    """Return what several runs say together: a line for each configuration that was run more than once, and winners."""
    lines = repeat_lines(report.repeats, report.tokens, report.limit_s)
    if len(report.entries) > 1:
        from nlp_bench.analysis.sweep import winner_notes  # noqa: PLC0415  # one run has no rival

        lines += winner_notes(report.entries, allow_measured=report.allow_measured)
    return lines


def notes(report: Report) -> list[str]:
    """Return one line per thing to know of runs, below those of `pooled`; a note on several is there once, with the first. Of more than MAX_LISTED runs each has its reason in its row."""
    lines = list(_tally(report) if is_many(report) else _notes_of_each(report))
    if not report.allow_measured and (apart := apart_line(report.entries)):
        lines.append(apart)
    lines += without_cost(report)
    return lines + [passed.sentence() for passed in report.passed_over]


def without_cost(report: Report) -> list[str]:
    """Return why there is no cost although a price was given."""
    if report.price_per_kwh is None:
        return []
    why = "no cost: no meter was read during the run, and the log states no energy"
    lines = [f"{e.source}: {why}" for e in report.entries if e.has_number and e.energy is None]  # else a remark says it
    many = f"{len(lines) - 1} more runs have no cost for the same reason"
    return lines if len(lines) <= MAX_ALIKE else [lines[0], many]


def _notes_of_each(report: Report) -> Iterator[str]:
    sources: dict[str, list[str]] = {}
    for entry in report.entries:
        if what := _said(entry):
            sources.setdefault(what, []).append(entry.source)
    for what, names in sources.items():
        alike = [f"{names[0]} and {len(names) - 1} more"] if len(names) > MAX_ALIKE else names
        yield from (f"{name}: {what}" for name in alike)


def _tally(report: Report) -> Iterator[str]:
    """Yield the counts per outcome, then the causes for which runs have no number, the most frequent first."""
    entries = report.entries
    numbered = sum(entry.has_number for entry in entries)
    ended = Counter(entry.outcome.value for entry in entries).most_common()
    counts = ", ".join(f"{count:,} {word}" for word, count in ended)
    yield f"{len(entries):,} runs: {counts}; {numbered:,} have a number, {len(entries) - numbered:,} have none."
    firsts = (entry.reason_texts[0] for entry in entries if entry.reason_texts and not entry.has_number)
    whys = Counter(firsts).most_common()
    told = [(why, count) for why, count in whys[:MAX_WHYS] if count > 1]
    yield from (f"no number ({count}): {why}" for why, count in told)
    if len(told) < len(whys):
        yield f"no number ({sum(count for _, count in whys[len(told) :])}): {len(whys) - len(told)} other causes, each in its row"


def legend(report: Report, *, is_brief: bool = False) -> list[str]:
    """Return what the columns mean, in plain sentences; `is_brief` where the table has those of BRIEF alone."""
    lines = [
        f"time s: seconds for a training on {report.tokens:,} tokens = tokens / (tokens per second).",
        "reference: the published formula, batch x sequence / mean of every logged time: hand this in.",
        "steady: over the window of steady iterations, with its 95 % interval.",
    ]
    if is_brief:
        lines.append("More columns and whole reasons: --explain, --format csv, json or html.")
    else:
        if any(sustained_s(entry, report) for entry in report.entries):
            found = [entry.throughput.sustained for entry in report.entries if entry.throughput]
            but = " but lines that are missing" if any(each and each.num_missing for each in found) else ""
            but += (
                "; of lines without dates, over the sum of their times"
                if any(each and each.clock is Clock.LOGGED for each in found)
                else ""
            )
            lines.append(
                f"sustained: over the wall clock from the first counted iteration to the last, nothing left out{but}."
            )
        known = [entry.efficiency for entry in report.entries]
        if shapes := [each.shaped.shape for each in known if each and each.model_tflops_per_gpu]:
            counted = "; or ".join(dict.fromkeys(shape.counted for shape in shapes if shape))
            lines.append(
                f"TFLOP/s per GPU: model FLOPs, {counted}; MFU: their share of the peak (--explain has all countings)."
            )
    lines += supplied_lines(((entry.source, entry.supplied) for entry in report.entries), MAX_ALIKE)
    if report.limit_s is not None:
        lines.append(
            f"limit: PASS or FAIL when the whole 95 % interval of the steady time is within or above {report.limit_s:g} s."
        )
    boundaries = {e.energy.boundary for e in report.entries if e.energy and e.energy.boundary}
    if boundaries and not is_brief:
        what = boundaries.pop() if len(boundaries) == 1 else "see each run's boundary with --explain"
        price = report.price_per_kwh
        cost = f" cost: kWh x {price:g} {report.currency or ''}".rstrip() + "." if price else ""
        lines.append(f"energy: over the steady window; kWh for {report.tokens:,} tokens. Metered: {what}.{cost}")
    return lines
