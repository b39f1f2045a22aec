"""A bid sheet as text, markdown, HTML or JSON."""

import textwrap
from collections.abc import Callable
from pathlib import Path

from nlp_bench.errors import UsageError
from nlp_bench.plan.bid.bid import Bid
from nlp_bench.plan.bid.page import page
from nlp_bench.plan.bid.sheet import commitment, sections, signatures, title
from nlp_bench.show.escape import escaped_markdown
from nlp_bench.show.grid import Column, as_markdown, json_text
from nlp_bench.show.page import Section

WIDTH = 110
"""Letters of a line on a terminal."""


def text(bid: Bid) -> str:
    """Return the sheet for a terminal."""
    lines = [title(bid), "=" * len(title(bid)), "", *_wrapped(commitment(bid), "COMMITMENT  ")]
    for section in sections(bid):
        lines += ["", section.title, "-" * len(section.title), *_rows(section)]
        for sentence in section.words:
            lines += _wrapped(sentence, "- ")
        lines += section.text.splitlines()
    lines += [""] + [f"{who}: {'_' * 34}  date: {'_' * 12}\n" for who in signatures()]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _wrapped(sentence: str, begin: str) -> list[str]:
    return textwrap.wrap(sentence, WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin))


def _rows(section: Section) -> list[str]:
    if section.columns:  # a table of long words is a list on a terminal
        return [
            line
            for row in section.rows
            for line in _wrapped(
                "; ".join(f"{name}: {cell}" for name, cell in zip(section.columns, row, strict=True)), "- "
            )
        ]
    wide = max((len(str(row[0])) for row in section.rows), default=0)
    return [line for name, value in section.rows for line in _wrapped(str(value), f"{name!s:<{wide}}  ")]


def markdown(bid: Bid) -> str:
    """Return the sheet in markdown."""
    lines = [f"# {escaped_markdown(title(bid))}", "", f"**{escaped_markdown(commitment(bid))}**"]
    for section in sections(bid):
        lines += ["", f"## {escaped_markdown(section.title)}", ""]
        lines += [f"- {escaped_markdown(sentence)}" for sentence in section.words]
        lines += as_markdown(_columns(section)) if section.rows else []
        lines += ["```", section.text, "```"] if section.text else []
    lines += ["", *as_markdown([Column(heading=who, cells=("name, date: ",), is_text=True) for who in signatures()])]
    return "\n".join(lines) + "\n"


def _columns(section: Section) -> list[Column]:
    names = section.columns or ("", "")
    cells = [tuple(str(row[place]) for row in section.rows) for place in range(len(names))]
    return [Column(heading=name, cells=cell, is_text=True) for name, cell in zip(names, cells, strict=True)]


def _json(bid: Bid) -> str:
    return json_text(bid.record())


FORMATS: dict[str, Callable[[Bid], str]] = {
    "table": text,
    "markdown": markdown,
    "html": page,
    "json": _json,
}
"""By the word of --format."""
ENDINGS = {".txt": "table", ".md": "markdown", ".html": "html", ".json": "json"}
"""By the ending of --output."""


def sheet(bid: Bid, form: str = "table") -> str:
    """Return the sheet in a format; raises UsageError for a word that is none of FORMATS."""
    if form not in FORMATS:
        raise UsageError(f"--format: {form!r} is no format of a bid sheet; the formats are {', '.join(FORMATS)}")
    return FORMATS[form](bid)


def form_of(path: Path) -> str:
    """Return the format that a file's ending asks for; raises UsageError for another ending."""
    if path.suffix not in ENDINGS:
        raise UsageError(
            f"--output: {path} ends in none of {', '.join(ENDINGS)}, by which a bid sheet's format is known"
        )
    return ENDINGS[path.suffix]
