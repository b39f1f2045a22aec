"""What one dialect has found in one log so far; a parser tells it, the reader asks it at the end."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from nlp_bench.logs.attempts import Flagged, refusal_of, split_attempts, with_losses
from nlp_bench.logs.quantity import OPTIONS, RATES
from nlp_bench.logs.record import COLUMN, NO_RECORDS, EndMark, Event, Fact, Log, Records, Refusal, stored
from nlp_bench.logs.scan import label_of
from nlp_bench.logs.stamp import stamp_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from nlp_bench.logs.dialect import Dialect
    from nlp_bench.logs.scan import Line, Rows

_MANY = 4096
NO_FACTS: Mapping[str, Fact] = MappingProxyType({})
FAILED = "the parser of this dialect failed"
SMALLEST, LARGEST = 1e-9, 1e18  # no time, rate or count of a training is outside; what is was never meant as one
_RATES = frozenset(RATES)
_ANY_VALUE = {"lm_loss", "grad_norm"}


def _is_possible(name: str, value: float) -> bool:
    if name in RATES:
        return SMALLEST <= value <= LARGEST
    return name in _ANY_VALUE or abs(value) <= LARGEST


class Findings:
    """Records, facts and refusals of one dialect, in the order of the file."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.name = dialect, dialect.name
        self.num_records = self.num_torn = self.num_impossible = 0
        self.remarks: dict[str, None] = {}
        self.settings: dict[str, Fact] = {}
        self.events: list[Event] = []
        self.ends: list[EndMark] = []
        self._refusal: Refusal | None = None
        self._parts: list[Records] = []
        self._rows: list[dict[str, float]] = []
        self._places: list[tuple[int, int, int, bool]] = []
        self._labels: dict[bytes, int] = {}
        self._starts: list[tuple[int, dict[str, Fact]]] = [(0, {})]
        self._told: set[str] = set()
        self.is_counted = False  # whether the log numbers its iterations
        self._last_offset = -1
        self.last_rates: frozenset[str] = frozenset()  # which times and rates the last record has
        self.flagged: list[Flagged] = []
        """Lines of records without a time that can be read, whether another line gives it or not."""
        self.torn_lines: set[int] = set()  # numbers of lines that hold torn records, the first ones of many
        self.impossible_lines: set[int] = set()
        """Numbers of lines with a time or rate that cannot be one, the first ones of many."""

    def record(self, line: Line, values: Mapping[str, float], *, label: bytes = b"", is_whole: bool = True) -> None:
        """Take one record: quantities of `record.ROW` in their units.

        A time, rate or count that cannot be one (0, below 0, not finite) is left out; a torn record without any is only
        counted.
        """
        row = {name: value for name, value in values.items() if _is_possible(name, value)}
        impossible = [name for name in values.keys() - row.keys() if name in RATES]
        for _ in impossible:
            self._impossible(line.number)
        if impossible or not is_whole:
            self.flagged.append(Flagged(line.offset, line.number, row.get("iteration", math.nan)))
        self.num_torn += not is_whole
        if not is_whole and len(self.torn_lines) < _MANY:
            self.torn_lines.add(line.number)
        if not is_whole and row.keys().isdisjoint(RATES):
            return  # a cut line without its time says nothing that could be used
        if "iteration" in row:
            self.is_counted = True
        elif self.is_counted and not is_whole:
            return  # which of the numbered records this was is torn off
        self.num_records += 1
        # A program that does not count is counted for, from the second on: nothing says that its first is here.
        row.setdefault("iteration", float(self.num_records + self.dialect.counts_from))
        # Of several records on one line only the first was written at its time.
        if "stamp_s" not in row and line.offset != self._last_offset and (stamp := stamp_s(line.text)) is not None:
            row["stamp_s"] = stamp
        self._last_offset = line.offset
        known = self._labels.get(label)
        if known is None:
            known = self._labels.setdefault(label, label_of(label))
        if len(self._rows) >= _MANY:
            self._flush()
        self.last_rates = _RATES & row.keys()
        self._rows.append(row)
        self._places.append((line.offset, line.number, known, is_whole))

    def rows(self, rows: Rows) -> None:
        """Take clean records of the fast road: columns of ROW in order, as far as the grammar has them."""
        if not len(rows.values):
            return
        self._flush()
        columns = {
            name: np.ascontiguousarray(rows.values[:, i]) for name, i in COLUMN.items() if i < rows.values.shape[1]
        }
        columns = {name: column for name, column in columns.items() if not np.isnan(column).all()}
        for column in (columns[name] for name in RATES if name in columns):
            impossible = (column < SMALLEST) | (column > LARGEST)
            for index in np.flatnonzero(impossible).tolist():
                number = int(rows.numbers[index])
                self._impossible(number)
                self.flagged.append(
                    Flagged(int(rows.offsets[index]), number, float(rows.values[index, COLUMN["iteration"]]))
                )
            column[impossible] = np.nan
        self.num_records += len(rows.values)
        self.is_counted = True
        whole = np.ones(len(rows.values), dtype=np.bool_)
        self._parts.append(Records(columns, rows.offsets, rows.numbers, whole, rows.labels))

    def _impossible(self, number: int) -> None:
        self.num_impossible += 1
        if len(self.impossible_lines) < _MANY:
            self.impossible_lines.add(number)

    def fact(self, name: str, value: float | str, line: Line) -> None:
        """Take what the log says once; the first word on a thing stands until the program starts anew."""
        if name in self._told or (not isinstance(value, str) and not 0 < value <= LARGEST):
            return
        self._told.add(name)
        self._starts[-1][1][name] = Fact(value, line.number)

    def setting(self, name: str, value: float | str | None, line: Line) -> None:
        """Take a setting of the program; the last word counts, and None is no word."""
        if value is not None:
            self.settings[name] = Fact(value, line.number)

    def known(self, name: str) -> float | None:
        """Return the number that the log has stated for `name` since the program started, None if none."""
        fact = self._starts[-1][1].get(name)
        return fact.value if fact and not isinstance(fact.value, str) else None

    def start(self, line: Line) -> None:
        """Take a new start of the program; every rank may say so. One that came to no record leaves what nobody says anew."""
        self._told.clear()
        if self.num_records:
            self._starts.append((line.offset, {}))

    def refuse(self, reason: str, *missing: str) -> None:
        """Say why this log can give no number, and the facts that a person could add; the first reason stands."""
        self._refusal = self._refusal or Refusal(reason, missing)

    def fail(self, where: str, error: Exception) -> None:
        """Take that the parser could not bear `where`: what stood there is lost, and the reader of the number is told."""
        self.num_torn += 1
        self.remark(f"{FAILED} at {where} ({type(error).__name__}: {error}); please report this log")

    def overlook(self, line: Line, *, is_record: bool = False) -> None:
        """Take that a line has the words of a record and was read as none, or as one without what the others have."""
        iteration = self._rows[-1]["iteration"] if is_record and self._rows else math.nan
        self.flagged.append(Flagged(line.offset, line.number, iteration))

    def remark(self, text: str) -> None:
        """Say what a reader of the number should know."""
        self.remarks.setdefault(text)

    def rename(self, name: str) -> None:
        """Take the name of another program that prints the same lines; it is chosen as the dialect it began as."""
        self.name = name

    def column(self, name: str) -> NDArray[np.float64]:
        """Return the values of one quantity in all records so far, NaN where a record does not have it."""
        self._flush()
        return np.concatenate([part.column(name) for part in self._parts or [NO_RECORDS]])

    @property
    def is_silent(self) -> bool:
        """Say whether the dialect has found nothing that speaks for it."""
        return not self.num_records and self._refusal is None and not self.num_torn

    @property
    def has_refused(self) -> bool:
        """Say whether the dialect knows the log and knows that it has no number."""
        return self._refusal is not None

    def _flush(self) -> None:
        if not self._rows:
            return
        names = {name: None for row in self._rows for name in row}
        columns = {name: np.array([stored(name, row.get(name)) for row in self._rows], np.float64) for name in names}
        places = np.array([place[:3] for place in self._places], dtype=np.int64)
        whole = np.array([place[3] for place in self._places], dtype=np.bool_)
        self._parts.append(Records(columns, places[:, 0], places[:, 1], whole, places[:, 2]))
        self._rows, self._places = [], []

    def first_facts(self) -> dict[str, Fact]:
        """Return the first word on each fact."""
        return {name: fact for _, facts in reversed(self._starts) for name, fact in facts.items()}

    def result(self, *, num_bytes: int, damage: str | None, common: Mapping[str, Fact] = NO_FACTS) -> Log:
        """Return all of it as one log: attempts apart, echoes of other processes left out.

        `common` holds facts that are no part of the dialect; what the dialect says itself comes first.
        """
        self._flush()
        if not self.dialect.believes_settings:
            common = {name: fact for name, fact in common.items() if name not in OPTIONS}
        attempts, num_echoes = split_attempts(Records.in_file_order(self._parts or [NO_RECORDS]), self._starts)
        attempts = with_losses(attempts, self.flagged, is_counted=self.is_counted)
        refusal = self._refusal or refusal_of(attempts)
        return Log(
            dialect=self.name if attempts or refusal else None,
            attempts=tuple(replace(attempt, facts={**common, **attempt.facts}) for attempt in attempts),
            num_bytes=num_bytes,
            counts_from=self.dialect.counts_from,
            refusal=refusal,
            remarks=tuple(self.remarks),
            num_torn=self.num_torn,
            num_echoes=num_echoes,
            num_impossible=self.num_impossible,
            torn_lines=tuple(sorted(self.torn_lines)),
            impossible_lines=tuple(sorted(self.impossible_lines)),
            damage=damage,
        )
