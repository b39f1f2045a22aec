"""A report as text: table, JSON, CSV of runs or of their lines, markdown or HTML, the same for standard output and for files."""

from collections.abc import Callable

from nlp_bench.measure.rows import MEANING, rows_of
from nlp_bench.report.readable import HEADINGS, TEXT_COLUMNS, heading, legend, notes, readable
from nlp_bench.report.table import Report
from nlp_bench.report.words import MAX_RUNS, words
from nlp_bench.show import grid
from nlp_bench.show.escape import end_of, escaped_markdown

MAX_SOURCE = 30


def table(report: Report) -> str:
    """Return the table for a terminal, about 100 columns wide, with what to know about each run below it."""
    columns, rows = readable(report)
    short = [end_of(row[0], MAX_SOURCE) for row in rows]
    if len(set(short)) == len({row[0] for row in rows}):  # else the ends of two paths are alike
        rows = [[name, *row[1:]] for name, row in zip(short, rows, strict=True)]
    headings = [("\n" + HEADINGS[name]).split("\n")[-2:] for name in columns]
    cells = [[pair[0] for pair in headings], [pair[1] for pair in headings], *rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    lines = [
        "  ".join(_aligned(*triple) for triple in zip(line, widths, columns, strict=True)).rstrip() for line in cells
    ]
    lines.insert(2, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    said = notes(report)
    spoken = words(report) if len(report.entries) <= MAX_RUNS else []
    return (
        "\n".join([*lines, "", *said, *([""] if said else []), *legend(report), *([""] if spoken else []), *spoken])
        + "\n"
    )


def _aligned(cell: str, width: int, column: str) -> str:
    return cell.ljust(width) if column in TEXT_COLUMNS else cell.rjust(width)


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
    columns, rows = readable(report)
    rule = ["---" if name in TEXT_COLUMNS else "---:" for name in columns]
    lines = [[heading(name) for name in columns], rule, *[[escaped_markdown(cell) for cell in row] for row in rows]]
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines] + markdown_notes(report)) + "\n"


def markdown_notes(report: Report) -> list[str]:
    """Return notes and legend as markdown lines, to stand below a table."""
    said = [f"- {escaped_markdown(note)}" for note in notes(report)]
    return ["", *said, *([""] if said else []), *legend(report)]


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
