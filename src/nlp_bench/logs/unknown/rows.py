"""Records of one form as columns of numbers; the lines themselves are not kept."""

import math
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.unknown.shapes import Column, column_key

COUNTS = frozenset(
    {"counter", "anonymous", "total", "seen_tokens", "seen_samples", "global_batch", "sequence", "devices"}
)
"""Kinds whose numbers are whole; one with an exponent was rounded."""
MISSING = -1.7976931348623157e308
"""Stands for no loss, where NaN is a value that a log may print."""


class Shape:
    """All records with the same measures in the same order; the other numbers may be missing from some."""

    def __init__(self) -> None:
        self.columns: list[Column] = []
        """What each number of a row is."""
        self.is_training = False
        """Whether words of a training stood on its lines."""
        self.num_numbers = 0
        """Numbers of the last whole record."""
        self._at: dict[str, int] = {}
        # Rows one behind the other: how many numbers, which columns, their values.
        self._values = array("d")
        self._which = array("h")
        self._sizes = array("h")
        self._stamps = array("d")
        self._places = array("q")

    def __len__(self) -> int:
        return len(self._sizes)

    def add(
        self, columns: Sequence[Column], values: list[float], stamp: float, place: tuple[int, int, int, int]
    ) -> None:
        """Take one row: its place is its offset, its line number, the number of its label, and its marks."""
        self._which.extend([self._column(column) for column in columns])
        self._values.extend(values)
        self._sizes.append(len(values))
        self._stamps.append(stamp)
        self._places.extend(place)

    def _column(self, column: Column) -> int:
        key = column_key(column)
        at = self._at.get(key)
        if at is None:
            at = self._at.setdefault(key, len(self.columns))
            self.columns.append(column)
        elif column.is_rounded and not self.columns[at].is_rounded:
            self.columns[at] = self.columns[at]._replace(is_rounded=True)
        return at

    @property
    def values(self) -> list[NDArray[np.float64]]:
        """Each column's values, NaN (for a loss MISSING) where a row does not have it."""
        table = np.full((len(self), max(len(self.columns), 1)), np.nan)
        for at, column in enumerate(self.columns):
            if column.meaning.kind == "loss":
                table[:, at] = MISSING
        rows = np.repeat(np.arange(len(self)), np.array(self._sizes, np.int64))
        table[rows, np.array(self._which, np.int64)] = np.array(self._values, np.float64)
        return [np.ascontiguousarray(table[:, at]) for at in range(len(self.columns))]

    @property
    def stamps(self) -> NDArray[np.float64]:
        """When each row was written, in seconds; NaN where its line does not say."""
        return np.array(self._stamps, np.float64)

    @property
    def places(self) -> NDArray[np.int64]:
        """Offset, line number, label and marks of each row."""
        return np.array(self._places, np.int64).reshape(len(self), 4)


def value_of(column: Column, numbers: list[bytes]) -> float:
    """Return the value of `column` on a line with `numbers`; NaN where it is none."""
    if column.clock:
        parts = [float(numbers[at].replace(b",", b"")) for at in column.clock]
        return float(sum(part * 60**power for power, part in enumerate(reversed(parts))))
    text = numbers[column.at]
    if column.meaning.kind in COUNTS and (b"e" in text or b"E" in text):
        return math.nan
    return float(text.replace(b",", b"") if b"," in text else text) * column.factor
