"""Reads one log in one pass with every dialect whose needles occur in it, and chooses the dialect by what they found."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from nlp_bench.errors import NlpBenchError
from nlp_bench.logs.attempts import Lookalikes
from nlp_bench.logs.common import EVENTS, MACHINE, SETTINGS
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.logs.end_marks import ENDINGS
from nlp_bench.logs.pattern import pattern_dialect
from nlp_bench.logs.record import LOAD, NO_RECORDS, Log
from nlp_bench.logs.scan import MAX_SHAPES, Line, Scanner, Shapes, Until
from nlp_bench.logs.source import Block, Source, open_log
from nlp_bench.logs.table import Text, event_log, is_event_file

UNKNOWN = "unknown"  # dialect of programs that no other one knows
HEAD_OF_A_TABLE = 1 << 16
OURS = "megatron-lm"  # dialect of the logs of this project's own trainer
SURE = 8
"""Records after which a dialect that yields to no other is settled: the rest of the log is searched for its needles only."""

MANY_LINES, SHORT_BYTES = 4096, 400
"""Lines that are cached, up to this length, with digits masked: the lines of one program mostly differ in digits alone."""
_DIGITS = b"0123456789"
_VALUES = b"0123456789abcdef. "  # bytes that differ between the lines of one shape
MANY_IDLE, MANY_REPEATED, MANY_STEADY, MANY_BUSY = 4, 4, 32, 8
"""Lines of one shape that changed nothing for any parser, after which no more of them are read; how many more where one did; lines
after which a record is no reason to read more; lines that all changed something, after which one of as many is compared."""
MAX_PARTS, MAX_LAST = 64, 2  # of a dict and of a list, whose last ones change
_SHAPE = bytes.maketrans(_DIGITS, b"0" * 10)
_COMMON = (MACHINE, SETTINGS, EVENTS, ENDINGS)  # dialects without records, for a log of any program
_NUM_SURE = 4
"""Candidates that are left then: the dialect, SETTINGS (a later start may have others), EVENTS and ENDINGS."""

OTHER_PROGRAM = 3  # training lines from which another program in the log is mentioned

Progress = Callable[[Source], None]


def read_log(
    path: str, *, only: str | None = None, pattern: tuple[str, ...] = (), progress: Progress | None = None
) -> Log:
    """Read the log at `path` (plain, gzip, xz, zstd or bzip2; `-` is standard input) as a stream.

    `only` is the name of the one dialect to try; `pattern` are regular expressions that describe its lines instead (`pattern_dialect`);
    `progress` is called about once per 4 MiB. Raises UsageError when the log cannot be opened; never for its content.
    """
    reading, table = _Reading(_first_search(only, pattern)), None
    with open_log(path) as source:
        for block in source.blocks():
            data = memoryview(block.data)[block.begin : block.end]
            if table is None:
                if is_event_file(data) and Path(path).is_file():
                    return event_log(path)
                table = Text(b"" if only or pattern else bytes(data[:HEAD_OF_A_TABLE]))
            reading.take(block)
            table.take(data, is_wanted=not reading.is_known)
            if progress:
                progress(source)
        log = reading.result(source.num_bytes, source.damage)
        # No program writes a table, so that any dialect but the guess of the unknown one knows better.
        if table and log.dialect in {None, UNKNOWN} and (read := table.log(source.damage)):
            log = read if read.dialect else replace(log, table=read.table)
        return log if log.attempts or log.damage else replace(log, damage=source.form)


class _Candidate:
    """A dialect with its parser and its findings so far."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.findings = Findings(dialect)
        self.is_last_resort = "*" in dialect.yields_to
        self._lookalikes = Lookalikes()
        self._rates: frozenset[str] = frozenset()

    @cached_property
    def parser(self) -> Parser:
        return self.dialect.parser()

    def take(self, line: Line) -> None:
        """Let the parser read a line. A line on which it raises is left out, with a remark, so that the others are read."""
        findings = self.findings
        num_records, num_unreadable = findings.num_records, len(findings.unreadable)
        try:
            self.parser.take(line, findings)
        except Exception as error:  # noqa: BLE001  # a damaged line may cause any
            findings.fail(f"line {line.number}", error)
            findings.overlook(line)
            return
        if not self.parser.reads_each_line:
            return
        if findings.num_records > num_records and findings.last_rates >= self._rates:
            self._rates = findings.last_rates
            self.learn(line.text)
        elif len(findings.unreadable) == num_unreadable and self._lookalikes.has(line.text):
            findings.overlook(line, is_record=findings.num_records > num_records)

    def state(self) -> tuple[object, ...]:
        """Return what changes when a line means something to the parser; two that are equal are mostly the same."""
        return self.findings.state(), _state(vars(self.parser))

    def learn(self, text: bytes) -> None:
        """Remember what a line with a record looks like."""
        self._lookalikes.learn(text)

    def finish(self) -> None:
        if "parser" not in vars(self) and not self.findings.num_records:
            return
        try:
            self.parser.finish(self.findings)
        except Exception as error:  # noqa: BLE001  # likewise
            self.findings.fail("the end of the log", error)


@dataclass
class _Kind:
    """The lines of some shapes that differ in numbers and blanks only: how many of the last ones changed nothing."""

    index: int
    num_idle: int = 0
    num_busy: int = 0  # lines since the last idle one
    until: Until = Until.END

    def learn(self, shapes: Shapes, changed: Until | None) -> None:
        """Count a line; `changed` says how long a change by it lasts, None where it changed nothing."""
        if changed is None:
            self.num_idle, self.num_busy = self.num_idle + 1, 0
            if self.num_idle >= MANY_IDLE:  # one is enough where they were closed before
                is_steady = self.until is Until.RECORD and self.num_idle >= MANY_STEADY
                shapes.close(self.index, Until.CHANGE if is_steady else self.until)
        else:
            self.num_idle, self.num_busy = -MANY_REPEATED, self.num_busy + 1
            self.until = changed if self.until in {Until.END, changed} else Until.RECORD


def _state(value: object, depth: int = 6) -> object:
    """Return a value to compare, of objects that are changed in place by their parts; of lists these are the last ones."""
    if isinstance(value, (int, float, bytes, str, type(None))):
        return value
    if isinstance(value, Line):  # of which a later one is no other state
        return Line
    if isinstance(value, (tuple, frozenset)):
        return value
    if isinstance(value, (list, deque, set, dict)):
        parts = islice(value.values(), MAX_PARTS) if isinstance(value, dict) else ()
        if isinstance(value, (list, deque)):
            parts = islice(reversed(value), MAX_LAST)
        return len(value), [_state(part, depth - 1) for part in parts] if depth else 0
    can_change = hasattr(value, "__dict__") and type(value).__setattr__ is object.__setattr__
    return id(value), _state(vars(value), depth - 1) if depth and can_change else 0


class _Search:
    """The needles of some dialects; making its tables takes longer than reading a short log, so instances are cached."""

    def __init__(self, dialects: tuple[Dialect, ...]) -> None:
        self.dialects = dialects
        self.fast = next((index for index, dialect in enumerate(dialects) if dialect.grammar), None)
        """Index of the dialect whose clean records the scanner reads."""
        wanting: dict[bytes, list[int]] = {}
        for index, dialect in enumerate(dialects):
            for needle in dialect.needles:
                wanting.setdefault(needle, []).append(index)
        self._numbered = {needle: wanting.pop(needle) for needle in tuple(wanting) if set(needle) & set(_DIGITS)}
        # The scanner needs no needle that contains a shorter one.
        tree: dict[bytes, list[tuple[bytes, list[int]]]] = {}
        for needle in sorted(wanting, key=len):
            for short in [short for short in tree if short in needle] or [needle]:
                tree.setdefault(short, []).append((needle, wanting[needle]))
        self._tree = list(tree.items())
        self._known: dict[bytes, tuple[tuple[int, ...], list[tuple[bytes, list[int]]]]] = {}
        grammar = None if self.fast is None else dialects[self.fast].grammar
        self.scanner = Scanner((*tree, *self._numbered), grammar() if grammar else None)

    def wanting(self, text: bytes) -> tuple[int, ...]:
        """Return the indices, in order, of the dialects with a needle in `text`."""
        shape = text.translate(_SHAPE)
        known = self._known.get(shape)
        if known is None:
            found = {
                i for short, group in self._tree if short in text for n, found in group if n in text for i in found
            }
            numbered = [(n, found) for n, found in self._numbered.items() if n.translate(_SHAPE) in shape]
            known = tuple(sorted(found)), numbered
            if len(self._known) < MANY_LINES and len(text) < SHORT_BYTES:
                self._known[shape] = known
        wanting, numbered = known
        if numbered and (more := [found for needle, found in numbered if needle in text]):
            return tuple(sorted({*wanting}.union(*more)))
        return wanting


_search = cache(_Search)


@cache
def _first_search(only: str | None, pattern: tuple[str, ...]) -> _Search:
    """Return the search for every dialect, or for the one called `only` or described by `pattern`, and for _COMMON."""
    if pattern:
        return _Search((pattern_dialect(pattern), *_COMMON))
    dialects = [dialect for dialect in all_dialects() if only in {None, dialect.name}]
    if not dialects:  # an interrupted copy of the package; without it a whole log would read as an empty one
        raise NlpBenchError(
            f"the dialect {only or ''} is missing in this nlp-bench: install it again, or finish copying the checkout"
        )
    return _Search((*dialects, *_COMMON))


class _Reading:
    """The candidates of one log, each made on the first line with its needles, and the search for these."""

    def __init__(self, search: _Search) -> None:
        self.is_known = False
        self._shapes = Shapes()
        self._kinds: dict[int, _Kind] = {}  # by a hash of the text without numbers and blanks
        self._rows = NO_RECORDS  # of the part of the log that is being read
        self._last_change = -1  # byte offset of the last record or other change before these
        self._waiting: list[tuple[_Candidate, Line]] = []
        self._search = search
        self._common = tuple(map(_Candidate, _COMMON))
        self._machine, self._settings, self._events, self._ends = self._common
        num_dialects = len(self._search.dialects) - len(self._common)
        self._made: list[_Candidate | None] = [*([None] * num_dialects), *self._common]

    def take(self, block: Block) -> None:
        """Read a block, with the last resorts only after the others and only while those have no record."""
        for rows, lines in self._search.scanner.scan(block, self._shapes):
            if self._search.fast is not None and len(rows):
                candidate = self._candidate(self._search.fast)
                candidate.findings.rows(rows)
                candidate.learn(_first_line(block, int(rows.offsets[0])))
                self._shapes.reopen(Until.RECORD)
            self._last_change = max([self._last_change, *self._rows.offsets[-1:].tolist()])
            self._rows = rows
            for line in lines:
                self._take(line)
            self._settle()
        self.is_known = self.is_known or any(
            (c.findings.num_records or c.findings.refusal) and not c.is_last_resort for c in self.candidates
        )
        for candidate, line in () if self.is_known else self._waiting:
            candidate.take(line)
        self._waiting.clear()

    def _settle(self) -> None:
        """Drop the other candidates once a dialect that yields to no other has SURE records."""
        for candidate in self.candidates if len(self._made) > _NUM_SURE else ():
            if candidate.findings.num_records >= SURE and not candidate.dialect.yields_to:
                self._search = _search((candidate.dialect, SETTINGS, EVENTS, ENDINGS))
                self._made = [candidate, self._settings, self._events, self._ends]
                return

    @property
    def candidates(self) -> list[_Candidate]:
        return [candidate for candidate in self._made if candidate]

    def _candidate(self, index: int) -> _Candidate:
        candidate = self._made[index]
        if candidate is None:
            candidate = self._made[index] = _Candidate(self._search.dialects[index])
        return candidate

    def _take_parts(self, line: Line) -> None:
        """Take a line that a progress bar overwrites again and again as so many lines."""
        for text in line.text.split(b"\r"):
            kind = self._kinds.get(hash(text.translate(None, _VALUES)))
            if text and not (kind and self._shapes.is_closed(kind.index)):
                self._take(line._replace(text=text, shape=0))

    def _take(self, line: Line) -> None:
        """Hand a line to every candidate with a needle in it, unless the last lines of its shape changed nothing."""
        if b"\r" in line.text[:-1]:
            self._take_parts(line)
            return
        shape = hash(line.text.translate(None, _VALUES))
        kind = self._kinds.get(shape)
        if kind and self._shapes.is_closed(kind.index):
            self._shapes.add(line.shape, kind.index)
            return
        is_compared = bool(shape) and not (kind and kind.num_busy >= MANY_BUSY and line.number % MANY_BUSY)
        wanting = self._search.wanting(line.text)
        candidates = [self._made[index] or self._candidate(index) for index in wanting]
        if not self.is_known and any(candidate.is_last_resort for candidate in candidates):
            self._waiting += [(candidate, line) for candidate in candidates if candidate.is_last_resort]
            is_compared = False
        candidates = [candidate for candidate in candidates if not candidate.is_last_resort]
        before = [candidate.state() for candidate in candidates] if is_compared else []
        for candidate in candidates:
            candidate.take(line)
            if candidate is self._events:
                self._drop_repeated_event()
        after = [candidate.state() for candidate in candidates] if is_compared else []
        changed = {c for c, *states in zip(candidates, before, after, strict=False) if states[0] != states[1]}
        lasting = changed <= {self._settings, self._machine}
        if not is_compared or changed - {self._events}:
            self._shapes.reopen(Until.CHANGE)
        if not (is_compared and lasting) and changed != {self._events}:
            self._last_change = line.offset
        if is_compared and (kind or len(self._kinds) < MAX_SHAPES):
            kind = kind or self._kinds.setdefault(shape, _Kind(len(self._kinds)))
            kind.learn(self._shapes, (Until.CHANGE if lasting else Until.RECORD) if changed else None)

    def _drop_repeated_event(self) -> None:
        """Leave out an event that follows one of its kind without a record between: it marks the same interval."""
        events = self._events.findings.events
        if len(events) > 1 and events[-1].kind == events[-2].kind:
            row = int(np.searchsorted(self._rows.offsets, events[-2].offset))
            is_row_between = row < len(self._rows) and self._rows.offsets[row] < events[-1].offset
            if not is_row_between and self._last_change < events[-2].offset:
                events.pop()

    def result(self, num_bytes: int, damage: str | None) -> Log:
        candidates = [candidate for candidate in self.candidates if candidate not in self._common]
        for candidate in sorted((*candidates, *self._common), key=lambda each: each.is_last_resort):
            candidate.finish()
        found = [f for each in candidates if (f := each.findings).num_records or f.refusal or f.unreadable]
        telling = [f.dialect for f in found if f.num_records or f.refusal]
        preferred = [f for f in found if not _yields(f.dialect, telling)] or found
        said, ends = tuple(self._settings.findings.remarks), tuple(self._ends.findings.ends)
        if not preferred:
            return Log(dialect=None, attempts=(), num_bytes=num_bytes, damage=damage, remarks=said, ends=ends)
        best = max(preferred, key=lambda f: (f.num_records > 0, bool(f.refusal), f.num_records))
        log = best.result(num_bytes=num_bytes, damage=damage, common=self._machine.findings.first_facts())
        return replace(
            log,
            remarks=(*log.remarks, *said, *_other_programs(best, preferred)),
            settings=self._settings.findings.settings,
            changes=self._settings.findings.changes,
            events=tuple(event for event in self._events.findings.events if event.kind != LOAD),
            loads=tuple(event for event in self._events.findings.events if event.kind == LOAD),
            ends=ends,
        )


def _first_line(block: Block, offset: int) -> bytes:
    """Return the line of a block at an offset in the log."""
    begin = block.begin + offset - block.offset
    return bytes(block.data[begin : block.data.find(b"\n", begin, block.end)])


def _other_programs(best: Findings, found: list[Findings]) -> list[str]:
    """Return a remark on each program all of whose lines stand before or behind those of the best: another training."""
    said, (first, last) = [], best.lines
    for other in found if last else ():
        begin, end = other.lines
        if (
            other.num_records >= OTHER_PROGRAM
            and (begin > last or end < first)
            and not _yields(best.dialect, [other.dialect])
        ):
            said.append(
                f"the log also has {other.num_records} training lines of {other.name} (lines {begin} to {end}): they are not in this number; "
                "give them in a file of their own"
            )
    return said


def _yields(dialect: Dialect, others: list[Dialect]) -> bool:
    """Say whether any of `others` takes precedence over `dialect`; "*" does not mean those that yield to `dialect` by name."""
    to = dialect.yields_to
    return any(
        other.name in to or ("*" in to and dialect.name not in other.yields_to)
        for other in others
        if other.name != dialect.name
    )
