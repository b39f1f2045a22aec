"""The one table: columns of values, written as text for a terminal, markdown, CSV, JSON records and, by section.html, HTML.

Numbers for people are rounded, grouped and named by the functions below; what is missing is empty.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from textwrap import wrap
from typing import Any, TypeVar

from nlp_bench.escape import escaped_markdown, inert, inert_cell
from nlp_bench.immutable import immutable

MAX_LABEL = 40  # letters of a name in a plot


def plain(value: object) -> str:
    """Return a cell: two decimals, four digits below 1; texts and whole numbers as they are."""
    if not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.4g}"


def number(value: float | None, digits: int = 2) -> str:
    """Return a number with `digits` decimals, none for whole numbers."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"


def rate(value: float | None) -> str:
    """Return tokens per second: published whole numbers as they were printed, others with two decimals."""
    if value is None:
        return ""
    return f"{value:.0f}" if value == round(value) else f"{value:.2f}"


def small(value: float | None) -> str:
    """Return what is often far below 1, such as energy per token: two decimals from 10 on, four digits below."""
    return "" if value is None else f"{value:.2f}" if value >= 10 else f"{value:.4g}"


def tflops(value: float | None) -> str:
    """Return a rate of work: one decimal from 10 on, three digits below."""
    return "" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def with_spaces(value: int) -> str:
    """Return a whole number with a space between groups of three digits."""
    return f"{value:,}".replace(",", " ")


def significant(value: float, digits: int, half_width: float | None = None) -> str:
    """Return a number with `digits` significant digits, of `half_width` where it is given.

    36361.6 with 2 digits of 1750 is 36400; with 5 of its own it is 36362.
    """
    decimals = digits - 1 - math.floor(math.log10(half_width or value))
    rounded = round(value, decimals)
    return f"{rounded:.{max(decimals, 0)}f}"


def spaced(text: str) -> str:
    """Return a number with a space between groups of three digits of its whole part."""
    whole, point, rest = text.partition(".")
    return f"{with_spaces(int(whole))}{point}{rest}"


def exact(value: float) -> str:
    """Return the digits that a pocket calculator needs to come to the printed rate."""
    return f"{value:.0f}" if value == round(value) else f"{value:.9g}"


def percentage(part: float | None, digits: int = 2) -> str:
    """Return a part of 1 as a percentage."""
    return "" if part is None else f"{100 * part:.{digits}f} %"


def interval(pair: tuple[float, float] | None, factor: float = 1.0, digits: int | None = None) -> str:
    """Return "low-high" times `factor`; without `digits` one decimal below 1000, none above."""
    if pair is None:
        return ""
    places = (0 if pair[0] * factor >= 1000 else 1) if digits is None else digits
    return f"{pair[0] * factor:.{places}f}-{pair[1] * factor:.{places}f}"


def seconds(value: float | None) -> str:
    """Return a time in a sentence."""
    return "" if value is None else f"{value:,.1f} s" if value >= 10 else f"{value:.3g} s"


def duration(value_s: float | None) -> str:
    """Return seconds below a day, else days."""
    if value_s is None:
        return ""
    return f"{value_s:.2f} s" if value_s < 86400 else f"{value_s / 86400:.2f} days"


def tokens_in_words(tokens: int) -> str:
    """Return 20000000 as 20M, 300000000000 as 300B; other counts with all digits."""
    for unit, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if tokens >= unit and tokens % (unit // 10) == 0:
            return f"{tokens / unit:g}{letter}"
    return f"{tokens:,}"


def label(value: float) -> str:
    """Return a value of an axis in few characters: 36,000, 120k, 1.2M, 0.05, 3e-07."""
    size = abs(value)
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if factor <= size < 1e15:
            return f"{value / factor:.4g}{unit}"
    if 1e5 <= size < 1e6:
        return f"{value / 1e3:.4g}k"
    if 1e4 <= size < 1e5:
        return f"{value:,.0f}"
    return f"{value:.5g}" if size >= 1e-3 else f"{value:.3g}"


@immutable
class Column:
    """One column of a table."""

    heading: str = ""  # what stands above it; a line break splits it over the two lines of a terminal's heading
    cells: Sequence[Any]  # numbers, texts, None for what is missing
    is_text: bool = False  # whether it is aligned to the left
    form: Callable[[Any], str] = plain  # how people read a cell; data have the value itself
    name: str = ""  # in CSV, JSON and data frames, where it is not the heading

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The cells as texts, without what a terminal would obey or not show: they may come from a log or from somebody's record."""
        return tuple(inert("" if cell is None else self.form(cell)) for cell in self.cells)

    @property
    def line(self) -> str:
        """The heading in one line."""
        return self.heading.replace("\n", " ").strip()


Table = Sequence[Column]


def table_of(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[Column]:
    """Return the table of `rows`; columns without numbers, or with texts too, are aligned to the left."""
    columns = list(zip(*rows, strict=True)) or [()] * len(headings)
    return [
        Column(heading=heading, cells=cells, is_text=not _is_numeric(cells))
        for heading, cells in zip(headings, columns, strict=True)
    ]


def columns_of(rows: Sequence[Sequence[tuple[str, Any]]], text: Container[str] = ()) -> list[Column]:
    """Return the columns of rows that hold the same headings, each with its cell; those in `text` are aligned to the left."""
    heads = [heading for heading, _ in rows[0]] if rows else []
    cells = zip(*([cell for _, cell in row] for row in rows), strict=True)
    return [Column(heading=head, cells=column, is_text=head in text) for head, column in zip(heads, cells, strict=True)]


def facts(rows: Iterable[tuple[str, object]]) -> list[Column]:
    """Return a table of names and values, which needs no headings."""
    return table_of(("", ""), rows)


def _is_numeric(cells: Sequence[object]) -> bool:
    return any(map(is_number, cells)) and all(cell is None or is_number(cell) for cell in cells)


def is_number(value: object) -> bool:
    """Say whether a value is one that is aligned to the right."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def widest(column: Column) -> int:
    """Return the width of a column on a terminal."""
    return max(map(len, (*column.heading.split("\n"), *column.shown)), default=0)


def shown(columns: Table) -> list[Column]:
    """Return the columns that have anything in them."""
    return [column for column in columns if any(column.shown)]


def first_rows(columns: Table, most: int) -> list[Column]:
    """Return the table with at most so many rows."""
    return [replace(column, cells=column.cells[:most]) for column in columns]


def as_text(
    columns: Table, widths: Sequence[int] = (), *, least: Sequence[int] = (), has_rule: bool = True
) -> list[str]:
    """Return the lines of a table for a terminal; with `widths` longer cells are broken between words, `least` is what columns have at least."""
    heads = [("\n" + column.heading).split("\n")[-2:] for column in columns]
    head = [[one[0] for one in heads], [one[1] for one in heads]]
    head = head if any(head[0]) else head[1:]
    rows = [list(cells) for cells in zip(*(column.shown for column in columns), strict=True)]
    if widths:
        blocks = ([wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)] for row in rows)
        rows = [list(line) for block in blocks for line in zip_longest(*block, fillvalue="")]
    widths = widths or [max(map(len, cells)) for cells in zip(*head, *rows, strict=True)]
    widths = [max(pair) for pair in zip_longest(widths, least, fillvalue=0)]
    forms = [f"{{:{'<' if column.is_text else '>'}{width}}}" for column, width in zip(columns, widths, strict=True)]
    aligned = ["  ".join(forms).format(*line).rstrip() for line in (*head, *rows)]
    rule = ["-" * (sum(widths) + 2 * (len(widths) - 1))] if has_rule else []
    return [*aligned[: len(head)], *rule, *aligned[len(head) :]]


def as_markdown(columns: Table, *, code: Container[str] = ()) -> list[str]:
    """Return the lines of a table in GitHub's markdown, every cell escaped; the columns that are named in `code` are set as code."""
    cells = [map(_as_code if column.heading in code else escaped_markdown, column.shown) for column in columns]
    rows = [map(escaped_markdown, (column.line for column in columns)), *zip(*cells, strict=True)]
    head, *lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [head, "| " + " | ".join("---" if column.is_text else "---:" for column in columns) + " |", *lines]


def _as_code(text: str) -> str:
    escaped = text.replace("|", "\\|")  # a bar ends the cell even in code
    return f"`` {escaped} ``" if "`" in text else f"`{escaped}`"


def fact(name: str, text: str, width: int = 9) -> str:
    """Return a line that begins with what it is about."""
    return f"  {name:<{width}} {text}"


@immutable
class Style:
    """How a document of headings, tables and sentences is written."""

    heading: Callable[[str], list[str]]  # a heading to its lines, the empty one below included
    table: Callable[[Table], list[str]]
    sentence: Callable[[str], str]
    text: Callable[[str], str]  # a line below all of it, escaped


TEXT = Style(heading=lambda text: [inert(text)], table=as_text, sentence=inert, text=inert)
MARKDOWN = Style(
    heading=lambda text: [f"### {escaped_markdown(text)}", ""],
    table=as_markdown,
    sentence=lambda text: f"- {escaped_markdown(text)}",
    text=escaped_markdown,
)


def as_document(*parts: Iterable[str]) -> str:
    """Return parts, each with its lines, with an empty line between two; those without a line are left out."""
    return "\n\n".join("\n".join(lines) for lines in map(list, parts) if lines) + "\n"


def as_records(columns: Table) -> list[dict[str, Any]]:
    """Return the rows as data, by the names of the columns."""
    names = [column.name or column.line for column in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*(column.cells for column in columns), strict=True)]


def json_text(record: object) -> str:
    """Return a record as indented JSON; numbers that JSON does not have raise ValueError."""
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


FORMS = ("table", "json", "csv", "records-csv", "markdown", "html")  # the words of --format of `report`
Found = TypeVar("Found")


def documents(
    make: Callable[[Found, Style], str], record: Callable[[Found], object]
) -> dict[str, Callable[[Found], str]]:
    """Return, by the word of --format, what writes a result for people in each style, and its record as JSON."""
    return {
        "table": lambda found: make(found, TEXT),
        "markdown": lambda found: make(found, MARKDOWN),
        "json": lambda found: json_text(record(found)),
    }


def as_csv(names: Iterable[str], rows: Iterable[Mapping[str, Any]], *, exact: Iterable[str] = ()) -> str:
    """Return rows with full precision, missing as empty, lists with "; " between their parts; cells are inert for a spreadsheet, but those of `exact`, by which rows are joined."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = {name: "; ".join(cell) if isinstance(cell, list) else cell for name, cell in row.items()}
        writer.writerow({name: cell if name in exact else inert_cell(cell) for name, cell in cells.items()})
    return stream.getvalue()
