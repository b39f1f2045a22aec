"""A report as text: table, JSON, CSV of runs or of their lines, markdown or HTML, the same for standard output and for files."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from nlp_bench.measure.rows import MEANING, rows_of
from nlp_bench.report.readable import is_many, legend, notes, readable
from nlp_bench.report.table import Report
from nlp_bench.report.words import MAX_RUNS, words
from nlp_bench.show import grid
from nlp_bench.show.escape import end_of, escaped_markdown, shortened

MAX_SOURCE = 28
MAX_WIDTH, MIN_REASON = 120, 20
"""Characters of a line of many runs, and of the reason at its end where a long path leaves less."""


def table(report: Report) -> str:
    """Return the table for a terminal, at most 120 columns wide for many runs, with what to know about the runs below it."""
    source, *others = readable(report)
    short = tuple(end_of(name, MAX_SOURCE) for name in source.cells)
    if len(set(short)) == len(set(source.cells)):  # else the ends of two paths are alike
        source = replace(source, cells=short)
    lines = grid.as_text([source, *others])
    if is_many(report):
        lines = _with_reasons(report, lines, source)
    spoken = words(report) if len(report.entries) <= MAX_RUNS else []
    below = legend(report, is_brief=is_many(report))
    return _document(lines, notes(report), below, spoken)


def _document(*parts: Sequence[str]) -> str:
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _with_reasons(report: Report, lines: list[str], source: grid.Column) -> list[str]:
    """Return the lines with each run's first reason at the end: where there is no number, in its place."""
    first = len(lines) - len(report.entries)
    after = len(lines[first - 1]) + 2
    instead = max(map(len, source.cells)) + max(len(entry.outcome.value) for entry in report.entries) + 4
    head = [*lines[: first - 2], lines[first - 2].ljust(after) + "reason", "-" * MAX_WIDTH]
    for line, entry in zip(lines[first:], report.entries, strict=True):
        begin = after if entry.has_number else instead
        why = (entry.reason_texts or entry.remarks or ("",))[0]
        head.append(line.ljust(begin) + shortened(why, max(MAX_WIDTH - begin, MIN_REASON)))
    return [line.rstrip() for line in head]


def as_json(report: Report) -> str:
    """Return the record of nlp-bench/report/1 as indented JSON."""
    return grid.json_text(report.to_json())


def as_csv(report: Report) -> str:
    """Return all columns with full precision; missing is an empty cell."""
    return grid.as_csv(report.columns, report.rows())


def records_csv(report: Report) -> str:
    """Return a row for each logged line of each run, the columns of `rows.MEANING`; its entries must hold their samples."""
    rows = (row for entry in report.entries for row in rows_of(entry))
    cells = ({name: getattr(row, name) for name in MEANING} for row in rows)
    return grid.as_csv(tuple(MEANING), ({**row, "in_window": "yes" if row["in_window"] else "no"} for row in cells))


def markdown(report: Report) -> str:
    """Return the readable table in GitHub's markdown, with notes and legend."""
    said = [grid.MARKDOWN.sentence(note) for note in notes(report)]
    below = [escaped_markdown(line) for line in legend(report)]
    return _document(grid.as_markdown(readable(report, style=grid.MARKDOWN)), said, below)


def html(report: Report) -> str:
    """Return the page."""
    from nlp_bench.report.page.page import page  # noqa: PLC0415  # only this format needs it

    return page(report)


FORMATS: dict[str, Callable[[Report], str]] = {
    "table": table,
    "json": as_json,
    "csv": as_csv,
    "records-csv": records_csv,
    "markdown": markdown,
    "html": html,
}
