"""The dialects that logs are read in, as a table for people and as data."""

import shutil
from collections.abc import Callable

from nlp_bench.escape import one_line
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.show.table import Column, as_document, as_markdown, as_records, as_text, json_text

SCHEMA = "nlp-bench/dialects/1"
MAX_EXAMPLE = 160
_MIN_WIDTH, _MAX_WIDTH = 80, 160


def excerpt(example: str) -> str:
    """Return the beginning of an example in one line, cut between words."""
    text = " ".join(one_line(example).split())
    if len(text) <= MAX_EXAMPLE:
        return text
    return text[: MAX_EXAMPLE - 4].rpartition(" ")[0] + " ..."


def _columns() -> list[Column]:
    """Return all dialects by name; the last column is for data."""
    found = sorted(all_dialects(), key=lambda dialect: dialect.name)
    return [
        Column(name="name", heading="dialect", cells=[d.name for d in found], is_text=True),
        Column(name="programs", heading="programs", cells=[d.title for d in found], is_text=True, form=one_line),
        Column(name="example", heading="a line of it", cells=[d.example for d in found], is_text=True, form=excerpt),
        Column(name="trap", heading="trap", cells=[d.trap for d in found], is_text=True, form=one_line),
        Column(name="source", cells=[d.source for d in found]),
    ]


def _text() -> str:
    *columns, _ = _columns()
    total = min(max(shutil.get_terminal_size((120, 24)).columns, _MIN_WIDTH), _MAX_WIDTH)
    first = max(map(len, ("dialect", *columns[0].shown)))
    rest = total - first - 6  # two blanks between columns
    widths = (first, rest * 2 // 9, rest * 4 // 9, rest - rest * 2 // 9 - rest * 4 // 9)
    return as_document(as_text(columns, widths), [f"{len(columns[0].cells)} dialects"])


DIALECT_FORMATS: dict[str, Callable[[], str]] = {
    "table": _text,
    "json": lambda: json_text({"schema": SCHEMA, "dialects": as_records(_columns())}),
    "markdown": lambda: as_document(as_markdown(_columns()[:-1], code={"dialect", "a line of it"})),
}
"""Format to the function that renders all dialects in it."""
