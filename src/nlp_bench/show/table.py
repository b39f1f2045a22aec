"""A table of cells as text for a terminal and as markdown: what all reports share."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nlp_bench.show.escape import escaped_markdown, inert, inert_cell


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table."""

    heading: str
    """What stands above it; a line break splits it over the two lines of a terminal's heading."""
    cells: tuple[str, ...]
    """Its cells; missing is empty."""
    is_text: bool = False
    """Whether it is aligned to the left."""

    def __post_init__(self) -> None:
        """Take what a terminal would obey or not show out of every cell: it may come from a log or from somebody's record."""
        object.__setattr__(self, "cells", tuple(map(inert, self.cells)))


def shown(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that have anything in them."""
    return [column for column in columns if any(column.cells)]


def as_text(columns: Sequence[Column]) -> list[str]:
    """Return the lines of a table for a terminal."""
    heads = [("\n" + column.heading).split("\n")[-2:] for column in columns]
    lines = [[head[0] for head in heads], [head[1] for head in heads], *_rows(columns)]
    lines = lines if any(lines[0]) else lines[1:]
    widths = [max(map(len, (*head, *column.cells))) for head, column in zip(heads, columns, strict=True)]
    aligned = ["  ".join(map(_aligned, line, widths, columns)).rstrip() for line in lines]
    first = len(lines) - len(columns[0].cells) if columns else 0
    return [*aligned[:first], "-" * (sum(widths) + 2 * (len(widths) - 1)), *aligned[first:]]


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
    """A table to its lines."""
    sentence: Callable[[str], str]
    """A sentence to its line."""


TEXT = Style(heading=lambda text: [inert(text)], table=as_text, sentence=inert)
MARKDOWN = Style(
    heading=lambda text: [f"### {escaped_markdown(text)}", ""],
    table=as_markdown,
    sentence=lambda text: f"- {escaped_markdown(text)}",
)


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
