"""What a dialect is, the parser of its lines, and what it has found in one log so far."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.attempts import Unreadable, refusal_of, split_attempts, with_losses
from nlp_bench.logs.clean import pieces, stamp_s
from nlp_bench.logs.quantity import LARGEST, OPTIONS, RATES, SMALLEST
from nlp_bench.logs.record import MAY_BE_NAN, NO_RECORDS, EndMark, Event, Fact, Log, Records, Refusal, stored
from nlp_bench.logs.scan import label_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sized

    from numpy.typing import NDArray

    from nlp_bench.logs.scan import Grammar, Line

_MANY = 4096
MAX_CHANGES = 256  # of one setting in one log
FAILED = "the parser of this dialect failed"
REINFORCED = (
    "reinforcement learning: a step generates and trains with sequences of any length (no --sequence-length "
    "describes it): not a training throughput"
)
PAIRS = "a preference training (DPO): a pair of answers is counted as one sequence"
_RATES = frozenset(RATES)
_NOT_FINITE = re.compile(
    rb"(?<![\w/.-])(?:(?:train|training|lm|step|total|avg|mean)[_/ ])?[Ll]oss(?: value)?['\"]?\s{0,4}[:=]?\s{0,9}['\"(]?[-+]?(?:nan|NaN|NAN|inf|Inf)(?![A-Za-z])"
)
"""A loss of a training that is no number."""
_SIZES = frozenset({*OPTIONS, "tokens"})  # what the number is computed with
_number_of = lru_cache(maxsize=4096)(label_of)
SAME = 1e-3  # share by which two statements of a size may differ: some are computed from rounded numbers


class Parser:
    """Reads the lines of one log for one dialect. Each log has an instance of its own, which may keep state; this base class reads nothing."""

    reads_each_line: bool = False
    """Whether each line of a record gives a record at once: then a line with the same words and no record is one whose numbers cannot
    be read, and its iteration may be lost. Other parsers buffer lines or thin them out."""

    def take(self, line: Line, findings: Findings) -> None:
        """Report what `line` states to `findings`: records, facts, a new start; lines of other programs are skipped."""
        for text in pieces(line.text):
            self.text(text, line, findings)

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read one text of a line as `clean.pieces` splits it."""

    def finish(self, findings: Findings) -> None:
        """Report to `findings` what is known only at the end of the log."""


@immutable
class Dialect:
    """One format in which programs log their training."""

    name: str  # name in reports: lower case, words joined by hyphens
    title: str = "any program"  # programs that write it
    source: str = "none"  # repository and file of its format string
    example: str = ""  # a line of it, made from the format string; tests read it, `--dialects` shows it
    trap: str = ""  # what is easily misread
    needles: tuple[bytes, ...] = ()
    """Every line that the parser needs holds at least one of these; none for a program whose lines another dialect's parser reads."""
    parser: Callable[[], Parser] = Parser  # makes the parser of one log
    yields_to: tuple[str, ...] = ()
    """Dialects that take precedence when both have records: names, or "*" for every other one that does not itself yield to this one by name."""
    believes_settings: bool = False
    """Whether values of a printed configuration (`seq_length: 8192`), or Lightning's number of processes, are those that ran."""
    tokens_vary: bool = False
    """Whether an iteration has as many tokens as its texts, rather than all of them alike: rates are then averaged as over equal times."""
    counts_from: int = 1  # number of the first iteration of a training
    grammar: Callable[[], Grammar] | None = None
    """The strict form of a clean record, for the scanner; the parser must give the same record for such lines."""


def _possible(values: Mapping[str, float], text: bytes) -> dict[str, float]:
    """Return the quantities that can be, and a loss that is no number also where none is read of the line."""
    row = {
        name: value
        for name, value in values.items()
        if name in MAY_BE_NAN or (SMALLEST if name in RATES else -LARGEST) <= value <= LARGEST
    }
    if "lm_loss" not in row and _has_no_loss(text):
        row["lm_loss"] = math.nan
    return row


@lru_cache(maxsize=1)  # a line may hold thousands of records, behind carriage returns
def _has_no_loss(text: bytes) -> bool:
    return _NOT_FINITE.search(text) is not None


class Findings:
    """Records, facts and refusals of one dialect, in the order of the file."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.name = dialect, dialect.name
        self.num_records = 0
        self.remarks: dict[str, None] = {}
        self.doubts: dict[str, None] = {}
        self.settings: dict[str, Fact] = {}
        self.changes: dict[str, list[Fact]] = {}  # each value of a setting that is another than the one before
        self.events: list[Event] = []
        self.ends: list[EndMark] = []
        self._has_failed = False
        self.refusal: Refusal | None = None
        self._parts = [NO_RECORDS]
        self._rows: list[dict[str, float]] = []
        self._places: list[tuple[int, int, int, bool]] = []
        self._starts: list[tuple[int, dict[str, Fact]]] = [(0, {})]
        self._start_lines: list[int] = []
        self._stated: set[str] = set()
        self.is_counted = False  # whether the log numbers its iterations
        self._last_offset = -1
        self.last_rates: frozenset[str] = frozenset()  # which times and rates the last record has
        self.unreadable: list[Unreadable] = []
        """Lines of records that cannot be read whole, whether another line gives their time or not."""

    def record(self, line: Line, values: Mapping[str, float], *, label: bytes = b"", is_whole: bool = True) -> None:
        """Add one record: quantities of `record.ROW` in their units.

        An impossible time, rate or count (0, below 0, not finite) is left out; a torn record without a time or rate is only
        counted.
        """
        row = _possible(values, line.text)
        if not is_whole or not _RATES.isdisjoint(values.keys() - row.keys()):
            self.unreadable.append(Unreadable(line.offset, line.number, row.get("iteration", math.nan)))
        if not is_whole and row.keys().isdisjoint(RATES):
            return  # a cut line without a time is of no use
        if "iteration" in row:
            self.is_counted = True
        elif self.is_counted and not is_whole:
            return  # its number is torn off
        self.num_records += 1
        # Without a number its place in the log counts, from the second on: the first one may not be in the log.
        row.setdefault("iteration", float(self.num_records + self.dialect.counts_from))
        # The time stamp of a line is that of its first record only.
        if "stamp_s" not in row and line.offset != self._last_offset and (stamp := stamp_s(line.text)) is not None:
            row["stamp_s"] = stamp
        self._last_offset = line.offset
        if len(self._rows) >= _MANY:
            self._flush()
        self.last_rates = _RATES & row.keys()
        self._rows.append(row)
        self._places.append((line.offset, line.number, _number_of(label), is_whole))

    def rows(self, rows: Records) -> None:
        """Add clean records of the scanner."""
        if not len(rows):
            return
        self._flush()
        for column in (rows.columns[name] for name in RATES if name in rows.columns):
            impossible = (column < SMALLEST) | (column > LARGEST)
            for index in np.flatnonzero(impossible).tolist():
                place = int(rows.offsets[index]), int(rows.numbers[index])
                self.unreadable.append(Unreadable(*place, float(rows.columns["iteration"][index])))
            column[impossible] = np.nan
        self.num_records += len(rows)
        self.is_counted = True
        self._parts.append(rows)

    def fact(self, name: str, value: float | str, line: Line) -> None:
        """Set a fact that the log states once. Until the program starts anew, of two different sizes neither counts, else the first does."""
        if not isinstance(value, str) and not 0 < value <= LARGEST:
            return
        if name in self._stated:
            known = self.known(name) if name in _SIZES else None
            if known and not isinstance(value, str) and not math.isclose(known, value, rel_tol=SAME):
                own = self._starts[-1][1]
                own[name] = own[name]._replace(other=Fact(value, line.number))
            return
        self._stated.add(name)
        self._starts[-1][1][name] = Fact(value, line.number)

    def setting(self, name: str, value: float | str | None, line: Line) -> None:
        """Set a setting of the program; the last value counts, None is ignored, and what changes ever again is none."""
        if value is None or len(self.changes.get(name, ())) >= MAX_CHANGES:
            return
        known, fact = self.settings.get(name), Fact(value, line.number)
        if known is None or known.value != value:
            self.changes.setdefault(name, []).append(fact)
        self.settings[name] = fact

    def known(self, name: str) -> float | None:
        """Return the number that the log has stated for `name` since the program started, None if none."""
        facts = self._starts[-1][1]
        return facts[name].number if name in facts else None

    def start(self, line: Line) -> None:
        """Begin a new start of the program; every rank may log it. Facts of a start without a record are kept unless set again."""
        self._stated.clear()
        if self.num_records:
            self._starts.append((line.offset, {}))
            self._start_lines.append(line.number)

    def refuse(self, reason: str, *missing: str) -> None:
        """Refuse the log, with the facts that the command line could add; the first reason is kept."""
        self.refusal = self.refusal or Refusal(reason, missing)

    def fail(self, where: str, error: Exception) -> None:
        """Record that the parser raised `error` at `where`: what it read there is lost, and a remark says so."""
        if not self._has_failed:
            self.remark(f"{FAILED} at {where} ({type(error).__name__}: {error}); please report this log")
        self._has_failed = True

    def overlook(self, line: Line, *, is_record: bool = False) -> None:
        """Keep a line with the names of a record that gave none, or one without the times and rates of the others."""
        iteration = self._rows[-1]["iteration"] if is_record and self._rows else math.nan
        self.unreadable.append(Unreadable(line.offset, line.number, iteration))

    def remark(self, text: str) -> None:
        """Add a sentence on the number for its reader, once."""
        self.remarks.setdefault(text)

    def doubt(self, text: str) -> None:
        """Add a sentence on the number by which it proves nothing, once."""
        self.doubts.setdefault(text)

    def state(self) -> tuple[object, ...]:
        """Return numbers, at least one of which rises with whatever is reported."""
        sizes: tuple[Sized, ...] = (
            *(self.remarks, self.doubts, self.settings, self.events, self.ends, self.unreadable),
            *(self._starts, self._stated, *self.changes.values()),
        )
        num_contradicted = sum(fact.other is not None for fact in self._starts[-1][1].values())
        return self.num_records, tuple(map(len, sizes)), num_contradicted, self.name, self.refusal

    def rename(self, name: str) -> None:
        """Report the log under the name of another program that prints the same lines; precedence stays by the dialect."""
        self.name = name

    def column(self, name: str) -> NDArray[np.float64]:
        """Return the values of one quantity in all records so far, NaN where a record does not have it."""
        self._flush()
        return np.concatenate([part.column(name) for part in self._parts])

    def has_begun(self, line: Line) -> bool:
        """Say whether a record stands above this line; the scanner gives the clean ones of a block before its other lines."""
        self._flush()
        return any((part.offsets[:1] < line.offset).any() for part in self._parts)

    @property
    def lines(self) -> tuple[int, int]:
        """The first and the last line with a record, 0 where there is none."""
        self._flush()
        numbers = np.concatenate([part.numbers for part in self._parts])
        return (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)

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
        """Return the first value of each fact."""
        return {name: fact for _, facts in reversed(self._starts) for name, fact in facts.items()}

    def result(self, *, num_bytes: int, damage: str | None, common: Mapping[str, Fact]) -> Log:
        """Return the log, split into attempts and without the echoes of other processes.

        `common` holds facts found outside the dialect; the dialect's own take precedence.
        """
        self._flush()
        if not self.dialect.believes_settings:
            common = {name: fact for name, fact in common.items() if name not in OPTIONS}
        attempts, num_echoes = split_attempts(Records.in_file_order(self._parts), self._starts)
        attempts = with_losses(attempts, self.unreadable, is_counted=self.is_counted)
        # A size that is first stated behind the training is that of an evaluation, say.
        last = max((int(attempt.records.numbers.max()) for attempt in attempts), default=0)
        common = {name: fact for name, fact in common.items() if name not in _SIZES or fact.line_number <= last}
        if self.dialect.tokens_vary and attempts:
            common = {**common, "tokens_vary": Fact(1.0, int(attempts[0].records.numbers[0]))}
        refusal = self.refusal or refusal_of(attempts)
        return Log(
            dialect=self.name if attempts or refusal else None,
            attempts=tuple(replace(attempt, facts={**common, **attempt.facts}) for attempt in attempts),
            num_bytes=num_bytes,
            counts_from=self.dialect.counts_from,
            refusal=refusal,
            starts=tuple(self._start_lines),
            remarks=tuple(self.remarks),
            doubts=tuple(self.doubts),
            num_unreadable=len(self.unreadable),
            num_echoes=num_echoes,
            damage=damage,
        )
