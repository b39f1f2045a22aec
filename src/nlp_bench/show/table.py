"""A table of cells as text for a terminal and as markdown: what all reports share."""

import csv
import io
import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from textwrap import wrap
from typing import Any, TypeVar

from nlp_bench.escape import escaped_markdown, inert, inert_cell


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table."""

    heading: str
    """What stands above it; a line break splits it over the two lines of a terminal's heading."""
    cells: tuple[str, ...]
    is_text: bool = False
    """Whether it is aligned to the left."""

    def __post_init__(self) -> None:
        """Take what a terminal would obey or not show out of every cell: it may come from a log or from somebody's record."""
        object.__setattr__(self, "cells", tuple(map(inert, self.cells)))


def columns_of(rows: Sequence[Sequence[tuple[str, str]]], text: Container[str] = ()) -> list[Column]:
    """Return the columns of rows that hold the same headings, each with its cell; those in `text` are aligned to the left."""
    heads = [heading for heading, _ in rows[0]] if rows else []
    cells = zip(*([cell for _, cell in row] for row in rows), strict=True)
    return [Column(heading=head, cells=column, is_text=head in text) for head, column in zip(heads, cells, strict=True)]


def shown(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that have anything in them."""
    return [column for column in columns if any(column.cells)]


def as_text(columns: Sequence[Column], widths: Sequence[int] = ()) -> list[str]:
    """Return the lines of a table for a terminal; with `widths` longer cells are broken between words."""
    heads = [("\n" + column.heading).split("\n")[-2:] for column in columns]
    head = [[one[0] for one in heads], [one[1] for one in heads]]
    head = head if any(head[0]) else head[1:]
    rows = _rows(columns)
    if widths:
        blocks = ([wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)] for row in rows)
        rows = [list(line) for block in blocks for line in zip_longest(*block, fillvalue="")]
    widths = widths or [max(map(len, cells)) for cells in zip(*head, *rows, strict=True)]
    aligned = ["  ".join(map(_aligned, line, widths, columns)).rstrip() for line in (*head, *rows)]
    return [*aligned[: len(head)], "-" * (sum(widths) + 2 * (len(widths) - 1)), *aligned[len(head) :]]


def _rows(columns: Sequence[Column]) -> list[list[str]]:
    return [list(cells) for cells in zip(*(column.cells for column in columns), strict=True)]


def _aligned(cell: str, width: int, column: Column) -> str:
    return cell.ljust(width) if column.is_text else cell.rjust(width)


def as_markdown(columns: Sequence[Column]) -> list[str]:
    """Return the lines of a table in GitHub's markdown, every cell escaped."""
    lines = [[column.heading.replace("\n", " ") for column in columns], *_rows(columns)]
    rows = ["| " + " | ".join(escaped_markdown(cell) for cell in line) + " |" for line in lines]
    rule = "| " + " | ".join("---" if column.is_text else "---:" for column in columns) + " |"
    return [rows[0], rule, *rows[1:]]


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a document of headings, tables and sentences is written."""

    heading: Callable[[str], list[str]]
    """A heading to its lines, the empty one below included."""
    table: Callable[[Sequence[Column]], list[str]]
    sentence: Callable[[str], str]


TEXT = Style(heading=lambda text: [inert(text)], table=as_text, sentence=inert)
MARKDOWN = Style(
    heading=lambda text: [f"### {escaped_markdown(text)}", ""],
    table=as_markdown,
    sentence=lambda text: f"- {escaped_markdown(text)}",
)
STYLES = {"table": TEXT, "markdown": MARKDOWN}
"""By the word of --format: a further one is a row here."""
Found = TypeVar("Found")


def documents(make: Callable[[Found, Style], str]) -> dict[str, Callable[[Found], str]]:
    """Return, by the word of --format, what writes a result in each style."""
    return {name: partial(make, style=style) for name, style in STYLES.items()}  # type: ignore[call-arg]


def json_text(record: object) -> str:
    """Return a record as indented JSON; numbers that JSON does not have raise ValueError."""
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows with full precision; missing is an empty cell."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: inert_cell(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def number(value: float | None, digits: int = 2) -> str:
    """Return a number with `digits` decimals, none for whole numbers; missing is empty."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"


def rate(value: float | None) -> str:
    """Return tokens per second: published whole numbers as they were printed, others with two decimals."""
    if value is None:
        return ""
    return f"{value:.0f}" if value == round(value) else f"{value:.2f}"


def percentage(part: float | None, digits: int = 2) -> str:
    """Return a part of 1 in percent; missing is empty."""
    return "" if part is None else f"{100 * part:.{digits}f} %"


def interval(pair: tuple[float, float] | None, factor: float = 1.0, digits: int | None = None) -> str:
    """Return "low-high" times `factor`; missing is empty."""
    if pair is None:
        return ""
    places = (0 if pair[0] * factor >= 1000 else 1) if digits is None else digits
    return f"{pair[0] * factor:.{places}f}-{pair[1] * factor:.{places}f}"


def duration(seconds: float | None) -> str:
    """Return seconds below a day, else days."""
    if seconds is None:
        return ""
    return f"{seconds:.2f} s" if seconds < 86400 else f"{seconds / 86400:.2f} days"


def tokens_in_words(tokens: int) -> str:
    """Return 20000000 as 20M, 300000000000 as 300B; other counts with all digits."""
    for unit, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if tokens >= unit and tokens % (unit // 10) == 0:
            return f"{tokens / unit:g}{letter}"
    return f"{tokens:,}"
