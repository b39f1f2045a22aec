"""Tables in logs that nobody has described: a line of names, and lines of numbers below it."""

import re
from dataclasses import dataclass

from nlp_bench.logs.clean import pieces
from nlp_bench.logs.unknown import words as w
from nlp_bench.logs.unknown.meaning import meaning, words_of
from nlp_bench.logs.unknown.pairs import NUMBER
from nlp_bench.logs.unknown.shapes import MEASURES, Column

MAX_ROWS = 1 << 15
"""Rows that are read below one line of names; they must stand in the part of the log that is in memory."""
_BLANKS = re.compile(rb"\s{2,}|\t")
_MEASURED = re.compile(rb"[-+]?\d[\d.,]{0,32} ?[A-Za-z/%]{0,16}|nan|n/a|-")
_RULE = re.compile(rb"[-=+|: ]+")


@dataclass(frozen=True)
class Table:
    """The line of names."""

    separator: bytes
    """What stands between two cells, b" " for any number of blanks."""
    columns: tuple[Column, ...]
    """The cells that may belong to a record; `at` is the number of the cell."""
    num_cells: int
    """Cells of a row."""

    def numbers(self, text: bytes) -> list[bytes] | None:
        """Return the cells of a row, None where it is none of this table."""
        cells = _cells(text, self.separator, is_names=False)
        if len(cells) != self.num_cells:
            return None
        known = [column for column in self.columns if NUMBER.fullmatch(cells[column.at])]
        kinds = {column.meaning.kind for column in known}
        if "counter" not in kinds or not kinds & MEASURES:
            return None
        for column in self.columns:
            if column not in known:  # `0.5 s`: a unit of its own
                if not _MEASURED.fullmatch(cells[column.at]):
                    return None
                cells[column.at] = b"nan"
        return cells


def table_of(text: bytes) -> Table | None:
    """Return the table that begins with the names in `text`, None where they name no training."""
    separator = next((sign for sign in (b"|", b",", b";", b"\t") if sign in text), b" ")
    cells = [cell.decode("utf-8", "replace") for cell in _cells(text, separator, is_names=True)]
    if not 3 <= len(cells) <= 64:
        return None
    found = {word.text for cell in cells for word in words_of(cell)}
    if found & (w.REINFORCED | w.PICTURES) or not found & w.EVIDENCE:
        return None
    meant = [(at, cell, meaning(cell.rpartition(" - ")[2], "")) for at, cell in enumerate(cells)]
    columns = tuple(
        Column(at, what, what.factor, cell)
        for at, cell, what in meant
        if what and what.kind in MEASURES | {"counter", "loss", "seen_tokens", "step_tokens"}
    )
    kinds = {column.meaning.kind for column in columns}
    return Table(separator, columns, len(cells)) if "counter" in kinds and kinds & MEASURES else None


def rows_below(table: Table, lines: list[bytes]) -> list[tuple[int, list[bytes]]]:
    """Return the rows at the front of `lines`, each with the number of its line; a rule between them is passed over."""
    rows: list[tuple[int, list[bytes]]] = []
    for at, line in enumerate(lines):
        text = next(iter(pieces(line)), b"").strip()
        numbers = table.numbers(text)
        if numbers is not None:
            rows.append((at, numbers))
        elif not _RULE.fullmatch(text):
            break
    return rows


def _cells(text: bytes, separator: bytes, *, is_names: bool) -> list[bytes]:
    text = text.strip()
    if separator == b" ":
        return _BLANKS.split(text) if is_names else text.split()
    if separator == b"|":
        text = text.strip(b"|")
    return [cell.strip(b' \t"') for cell in text.split(separator)]
