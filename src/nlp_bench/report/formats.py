"""A report as text, one function for each format, and as a data frame; and the two reports derived from it: scaling curves and sweep rankings.

Data frames have the columns and values of the CSV with the right types, for notebooks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from nlp_bench.escape import end_of, inert, shortened
from nlp_bench.immutable import immutable
from nlp_bench.measure.result import refuse_against_log
from nlp_bench.measure.rows import MEANING, Record, rows_of
from nlp_bench.packages import lacking
from nlp_bench.report.answer import WIDTH, answer_lines, wrapped
from nlp_bench.report.report import Report, is_many, legend, notes, pooled, readable, without_cost
from nlp_bench.show.table import TEXT, Column, Style, as_csv, as_document, as_text, documents

if TYPE_CHECKING:
    from nlp_bench.show.chart import Chart, HeatMap

MAX_SOURCE = 28
MIN_REASON = 20  # characters of a run's reason in a table of many, at least
MAX_NOTES, NOTE_LINES = 8, 2  # notes below a table, and lines of each; --explain has all of them


def table(report: Report) -> str:
    """Return what a terminal shows: the answer of one run, or a table of several with what to know about them."""
    if len(report.entries) == 1:
        (entry,) = report.entries
        below = [*without_cost(report), *(passed.sentence() for passed in report.passed_over)]
        return as_document(answer_lines(report.answer(entry)), [line for note in below for line in _cut(inert(note))])
    source, *others = readable(report)
    short = [end_of(name, MAX_SOURCE) for name in source.shown]
    if len(set(short)) == len(set(source.shown)):  # else the ends of two paths are alike
        source = replace(source, cells=short)
    lines = as_text([source, *others])
    if is_many(report):
        lines = _with_reasons(report, lines, source)
    said = notes(report)
    shown = [line for note in pooled(report) for line in wrapped(inert(note), WIDTH, "  ")]
    shown += [line for note in said[:MAX_NOTES] for line in _cut(inert(note))]
    if len(said) > MAX_NOTES:
        shown.append(f"{len(said) - MAX_NOTES} more notes: --explain")
    meaning = [line for text in legend(report, is_brief=True) for line in wrapped(inert(text), WIDTH)]
    return as_document(lines, shown, meaning)


def _cut(note: str) -> list[str]:
    lines = wrapped(note, WIDTH, "  ")
    return lines if len(lines) <= NOTE_LINES else [lines[0], shortened(f"{lines[1]} {lines[2]}", WIDTH)]


def _with_reasons(report: Report, lines: list[str], source: Column) -> list[str]:
    """Return the lines with each run's first reason at the end: where there is no number, in its place."""
    first = len(lines) - len(report.entries)
    after = len(lines[first - 1]) + 2
    instead = max(map(len, source.shown)) + max(len(entry.outcome.value) for entry in report.entries) + 4
    head = [*lines[: first - 2], lines[first - 2].ljust(after) + "reason", "-" * WIDTH]
    for line, entry in zip(map(str.rstrip, lines[first:]), report.entries, strict=True):
        # A verdict of limit or rules may stand behind the outcome.
        begin = max(after if entry.has_number else instead, len(line) + 2)
        why = (*entry.reason_texts, *entry.remarks, "")[0]
        head.append(line.ljust(begin) + shortened(why, max(WIDTH - begin, MIN_REASON)))
    return [line.rstrip() for line in head]


def _document(report: Report, style: Style) -> str:
    """Return the readable table, notes and legend; a terminal has a table of its own."""
    if style is TEXT:
        return table(report)
    said, below = [*pooled(report), *notes(report)], map(style.text, legend(report))
    return as_document(style.table(readable(report, style=style)), map(style.sentence, said), below)


def records_csv(report: Report) -> str:
    """Return a row for each logged line of each run, the columns of `rows.MEANING`; its entries must hold their samples."""
    rows = ({name: getattr(row, name) for name in MEANING} for entry in report.entries for row in rows_of(entry))
    return as_csv(MEANING, ({**row, "in_window": "yes" if row["in_window"] else "no"} for row in rows))


def html(report: Report) -> str:
    """Return the page."""
    from nlp_bench.report.page import page  # noqa: PLC0415  # only this format needs it

    return page(report)


FORMATS: dict[str, Callable[[Report], str]] = {
    **documents(_document, lambda report: report.to_json()),
    "csv": lambda report: as_csv(report.fields, report.rows()),
    "records-csv": records_csv,
    "html": html,
}


@immutable
class View:
    """A derived report: scaling curves or sweep rankings."""

    name: str
    text: Callable[[str], str]  # by the word of --format
    plots: "Callable[[], Sequence[Chart | HeatMap]]"


def view_of(report: Report, name: str) -> View:
    """Return the curves (scaling) or the rankings (sweep). Raises UsageError where an option contradicts a log, and where no run has the GPUs of the baseline."""
    from nlp_bench.analysis import scaling, sweep  # noqa: PLC0415  # only --scaling and --sweep need them

    refuse_against_log(report.entries)
    forms: Mapping[str, Callable[[Any], str]]
    if name == "scaling":
        gpus, forms = report.baseline_gpus, scaling.FORMATS
        curves = scaling.scaling_of(report.entries, report.tokens, gpus, allow_measured=report.allow_measured)
        return View(name=name, text=lambda form: forms[form](curves), plots=lambda: scaling.scaling_charts(curves))
    forms = sweep.FORMATS
    ranks = sweep.sweep_of(report.entries, report.tokens, allow_measured=report.allow_measured)
    return View(name=name, text=lambda form: forms[form](ranks), plots=lambda: sweep.sweep_charts(ranks))


if TYPE_CHECKING:
    import pandas as pd

_DTYPES = {"str": "string", "str | None": "string", "bool": "bool", "int": "int64", "int | None": "Int64"}
"""Of the columns of logged lines, by their annotation; the others are float64, with NaN where they are missing, as plots want them."""


def frame(report: Report) -> "pd.DataFrame":
    """Return one row per run; counts are Int64, other numbers Float64, texts string, and what is missing is pandas.NA."""
    texts = {name: "string" for name, field in report.fields.items() if field.is_text}
    return typed_frame(report.fields, report.rows(), texts)


def records_frame(records: Sequence[Record]) -> "pd.DataFrame":
    """Return one row per logged line."""
    types = {field.name: str(getattr(field.type, "__name__", field.type)) for field in fields(Record)}
    rows = [{name: getattr(record, name) for name in MEANING} for record in records]
    return typed_frame(MEANING, rows, {name: _DTYPES.get(types[name], "float64") for name in MEANING})


def typed_frame(
    names: Iterable[str], rows: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str] | None = None
) -> "pd.DataFrame":
    """Return `rows` with one type per column, that of `dtypes` or of its values (Float64 where there are none). Raises NlpBenchError without pandas."""
    try:
        import pandas as pd  # noqa: PLC0415  # heavy
    except ImportError as error:
        raise (lacking(error, "a data frame") or error) from error
    columns = {name: [row[name] for row in rows] for name in names}
    series = {
        name: pd.Series(values, dtype=(dtypes or {}).get(name) or _dtype(values)) for name, values in columns.items()
    }
    made: pd.DataFrame = pd.DataFrame(series)
    return made


def _dtype(values: list[Any]) -> str:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return "boolean"
    if known and all(isinstance(value, int) for value in known):
        return "Int64"
    return "Float64" if all(isinstance(value, int | float) for value in known) else "string"
