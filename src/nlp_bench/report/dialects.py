"""The dialects that logs are read in, as a table for people and as data."""

import json
import shutil
from collections.abc import Callable

from nlp_bench.escape import one_line
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.show.table import Column, as_text

SCHEMA = "nlp-bench/dialects/1"
MAX_EXAMPLE = 160
_MIN_WIDTH, _MAX_WIDTH = 80, 160
HEADINGS = ("dialect", "programs", "a line of it", "trap")


def dialect_rows() -> list[tuple[str, str, str, str]]:
    """Return name, programs, shortened example and trap of every dialect, by name."""
    dialects = sorted(all_dialects(), key=lambda dialect: dialect.name)
    return [(d.name, one_line(d.title), shortened(d.example), one_line(d.trap)) for d in dialects]


def shortened(example: str) -> str:
    """Return the beginning of an example in one line, cut between words."""
    text = " ".join(one_line(example).split())
    if len(text) <= MAX_EXAMPLE:
        return text
    return text[: MAX_EXAMPLE - 4].rpartition(" ")[0] + " ..."


def _text() -> str:
    rows = dialect_rows()
    columns = [
        Column(heading=heading, cells=cells, is_text=True)
        for heading, cells in zip(HEADINGS, zip(*rows, strict=True), strict=True)
    ]
    total = min(max(shutil.get_terminal_size((120, 24)).columns, _MIN_WIDTH), _MAX_WIDTH)
    first = max(map(len, ("dialect", *columns[0].cells)))
    rest = total - first - 6  # two blanks between columns
    widths = (first, rest * 2 // 9, rest * 4 // 9, rest - rest * 2 // 9 - rest * 4 // 9)
    return "\n".join(as_text(columns, widths)) + f"\n\n{len(rows)} dialects\n"


def _json() -> str:
    record = {
        "schema": SCHEMA,
        "dialects": [_record(dialect) for dialect in sorted(all_dialects(), key=lambda d: d.name)],
    }
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"


def _record(dialect: Dialect) -> dict[str, str]:
    return {
        "name": dialect.name,
        "programs": dialect.title,
        "example": dialect.example,
        "trap": dialect.trap,
        "source": dialect.source,
    }


def _markdown() -> str:
    from nlp_bench.escape import escaped_markdown  # noqa: PLC0415  # only this form needs it

    lines = ["| dialect | programs | a line of it | trap |", "|---|---|---|---|"]
    for name, title, example, trap in dialect_rows():
        cells = (f"`{name}`", escaped_markdown(title), _code(example), escaped_markdown(trap))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    # Two backticks allow one inside; a bar ends the cell even in code.
    escaped = text.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in text else f"`{escaped}`"


DIALECT_FORMATS: dict[str, Callable[[], str]] = {"table": _text, "json": _json, "markdown": _markdown}
"""Form to the function that gives all dialects in it."""
