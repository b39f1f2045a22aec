"""A report as text for standard output: table, JSON, CSV, markdown or HTML, with the standard library alone."""

import csv
import io
import json
from collections.abc import Callable

from nlp_bench.report.readable import HEADINGS, TEXT_COLUMNS, heading, legend, notes, readable
from nlp_bench.report.table import Report

MAX_SOURCE = 30
_MARKDOWN_SPECIAL = "\\`*_[]<>|#~"


def table(report: Report) -> str:
    """Return the table for a terminal, about 100 columns wide, with what to know about each run below it."""
    columns, rows = readable(report)
    short = [_shortened(row[0]) for row in rows]
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
    return "\n".join([*lines, "", *said, *([""] if said else []), *legend(report)]) + "\n"


def _aligned(cell: str, width: int, column: str) -> str:
    return cell.ljust(width) if column in TEXT_COLUMNS else cell.rjust(width)


def _shortened(source: str) -> str:
    # The end of a path tells runs apart, the beginning is the same for all.
    return source if len(source) <= MAX_SOURCE else "..." + source[3 - MAX_SOURCE :]


def as_json(report: Report) -> str:
    """Return the record of nlp-bench/report/1 as indented JSON."""
    return json.dumps(report.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(report: Report) -> str:
    """Return all columns with full precision; missing is an empty cell."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, report.columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(report.rows())
    return stream.getvalue()


def escaped_markdown(text: str) -> str:
    """Return `text` so that no markdown reader takes any of it for markup: it may come from a log or a file name."""
    return "".join(f"\\{character}" if character in _MARKDOWN_SPECIAL else character for character in text)


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
    """Return the readable table as one HTML page."""
    from html import escape  # noqa: PLC0415  # only this format needs it

    columns, rows = readable(report)
    head = "".join(f"<th>{escape(heading(name))}</th>" for name in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return html_page(report, f"<table>\n<tr>{head}</tr>\n{body}\n</table>")


def html_page(report: Report, content: str) -> str:
    """Return a page around `content`, which is HTML already, with notes and legend below."""
    from html import escape  # noqa: PLC0415  # only this format needs it

    said = "\n".join(f"<li>{escape(note)}</li>" for note in notes(report))
    meaning = "\n".join(f"<p>{escape(line)}</p>" for line in legend(report))
    style = (
        "body{font-family:sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ccc}"
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>nlp-bench report</title><style>{style}</style></head>\n'
        f"<body>\n<h1>nlp-bench report</h1>\n{content}\n<ul>\n{said}\n</ul>\n{meaning}\n</body></html>\n"
    )


FORMATS: dict[str, Callable[[Report], str]] = {
    "table": table,
    "json": as_json,
    "csv": as_csv,
    "markdown": markdown,
    "html": html,
}
