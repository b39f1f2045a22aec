"""The lines of a log that nobody has described, collected by their form; only numbers are kept."""

import math
import re
from collections.abc import Callable
from itertools import accumulate

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.scan import Line
from nlp_bench.logs.unknown.blocks import DECORATED, Blocks
from nlp_bench.logs.unknown.meaning import Meaning
from nlp_bench.logs.unknown.pairs import MAX_BYTES, MAX_NUMBERS, NUMBER, stamp_of, tidy
from nlp_bench.logs.unknown.rows import Shape, value_of
from nlp_bench.logs.unknown.settings import Settings
from nlp_bench.logs.unknown.shapes import CUT, NOTHING, PAUSED, Column, Plan, key_of, plan_of
from nlp_bench.logs.unknown.tables import MAX_ROWS, rows_below, table_of
from nlp_bench.logs.unknown.words import PAUSES, TALES

MAX_RECORDS = 1 << 20
"""Records that are kept of one log."""
_MAX_PLANS = 4096
_MAX_SHAPES = 128
_MAX_USELESS = 8000
"""Forms of lines without a measure, after which only lines with the words of one are looked at; after twice as many, no new
form is: prose is endless."""
_MAX_LONG = 200
"""Lines with more numbers than a record has, looked at for settings."""
_MAX_NAMES = 2048
"""Bytes of a line of names above a table."""
_GAP = 8
"""Lines between two lines of one record."""
_SPAN = 60
"""Lines of one record."""


_DEVICES = Column(-1, Meaning("devices"), 1.0, "devices")
_CUT_GROUP = re.compile(rb"\d[,_']\d{0,3}$")
_RANK = re.compile(rb"(?i:rank|default)[ =:_-]{0,2}(\d{1,6})\b")
_GOES_ON = re.compile(rb"[\d.,]+(?:[\s%|]|$)")


def _goes_on(following: Callable[[int], list[bytes]]) -> bool:
    """Say whether the next line begins as the second half of a number."""
    return any(_GOES_ON.match(line) for line in following(1))


def _head(plan: Plan, texts: list[bytes], numbers: list[bytes]) -> bytes:
    """Return what stands in front of a record, by which processes are told apart."""
    first = plan.columns[plan.counter].at
    if plan.rank >= 0:
        is_named = any(word in texts[plan.rank].lower() for word in (b"rank", b"proc", b"worker"))
        return (b"rank " if is_named else b"task ") + numbers[plan.rank]
    return b" ".join((*texts[: first + 1], *numbers[:first]))


class _Open:
    """A record that goes on over several lines: its counter stands on the first."""

    def __init__(self, line: Line, stamp: float, label: int) -> None:
        self.line, self.stamp, self.label, self.last = line, stamp, label, line.number
        self.following = line.following
        self.goes_on = False
        self.plans: list[Plan] = []
        self.values: list[float] = []
        self.is_whole = True

    def add(self, plan: Plan, values: list[float], following: Callable[[int], list[bytes]], *, is_whole: bool) -> None:
        """Take the numbers of one more line; what follows it can be seen only now."""
        self.goes_on = plan.is_cut_short and _goes_on(following)
        self.plans.append(plan)
        self.values += values
        self.is_whole &= is_whole

    def is_over(self, number: int) -> bool:
        """Say whether line `number` is too far away to belong to it."""
        return number - self.last > _GAP or number - self.line.number > _SPAN


class Collector:
    """Takes the lines of one log."""

    def __init__(self) -> None:
        self.shapes: dict[str, Shape] = {}
        """Records by their form."""
        self.settings = Settings()
        """What the log says once."""
        self.is_training = False
        """Whether words of a training stand anywhere."""
        self.num_learned = 0
        """Lines of reinforcement learning."""
        self.num_rows = 0
        """Records so far; those beyond MAX_RECORDS are not kept."""
        self.labels: dict[bytes, int] = {}
        """The words in front of records, by which processes are told apart, and the number of each."""
        self._plans: dict[bytes, Plan] = {}
        self._heads: dict[bytes, int] = {}
        self._open: _Open | None = None
        self._blocks = Blocks()
        self._is_paused = False
        self._num_useless = self._num_long = 0

    def take(self, line: Line) -> None:
        """Take apart what is new on the line."""
        found = pieces(line.text)
        for at, piece in enumerate(found, 1):
            # A piece that is cut here may end within a number, and so may the last.
            is_whole = len(piece) <= MAX_BYTES and (at < len(found) or line.is_ended)
            text = piece[:MAX_BYTES]
            # What ends with the log may be the beginning of a longer number, unit or name.
            self._piece(line, text if is_whole else text[: _last_end(text)], is_whole=is_whole)

    def _piece(self, line: Line, text: bytes, *, is_whole: bool) -> None:
        """Take one text of a terminal line."""
        if self._num_useless > _MAX_USELESS and not any(tale in text for tale in TALES):
            return
        stamp, text = stamp_of(text)
        text, devices = tidy(text)
        if devices:
            self.settings.take(_DEVICES, devices, line.number)
        parts = NUMBER.split(text)
        texts, numbers = parts[0::2], parts[1::2]
        if not numbers:
            self._words(line, text, is_whole=is_whole)
            return
        plan = self._plan(texts)
        if self._open:
            self._reach(line.number)
        if not plan.is_record:
            self._told(plan, text, line.number)
        if plan is NOTHING:
            return
        self.num_learned += plan.is_learned
        self._is_paused |= plan.is_pause and not plan.has_measure
        self.is_training |= plan.is_training and not plan.is_foreign
        # The end of a log may cut `16,000` behind its comma.
        if is_whole or not (plan.is_cut_short or _CUT_GROUP.search(text)):
            for column in plan.facts:
                self.settings.take(column, value_of(column, numbers), line.number)
            label = self._label(_head(plan, texts, numbers)) if plan.has_counter else 0
            self._row(_Open(line, stamp, label), plan, numbers, is_whole=is_whole)

    def _told(self, plan: Plan, text: bytes, number: int) -> None:
        """Take a line that is no record: it may begin or end an evaluation."""
        is_result = plan.is_pause or any(column.meaning.kind == "loss" for column in plan.columns)
        if is_result and not plan.has_measure and not text.rstrip().endswith(DECORATED):
            self._blocks.end()
        else:
            self._blocks.heading(text, number, has_numbers=True)

    def _reach(self, number: int) -> None:
        if self._open and self._open.is_over(number):
            self.close()
        elif self._open:
            self._open.last = number

    def _words(self, line: Line, text: bytes, *, is_whole: bool) -> None:
        """Take a line without numbers: it may tell of an evaluation, or stand above a table."""
        self._is_paused |= any(word in text for word in PAUSES)
        self._blocks.heading(text, line.number)
        if not is_whole or len(text) > _MAX_NAMES or text.count(b" ") > _MAX_NAMES // 4:
            return
        table = table_of(text)
        shape = self._shape("table " + key_of(table.columns)) if table else None
        if table is None or shape is None:
            return
        below = line.following(MAX_ROWS)
        ends = list(accumulate((len(row) + 1 for row in below), initial=line.offset + len(line.text) + 1))
        shape.is_training = self.is_training = True
        label = self._label(b"")
        for at, numbers in rows_below(table, below):
            values = [value_of(column, numbers) for column in table.columns]
            shape.add(table.columns, values, math.nan, (ends[at], line.number + 1 + at, label, 0))

    def _plan(self, texts: list[bytes]) -> Plan:
        """Return what lines with these texts say."""
        key = b"0".join(texts)
        known = self._plans.get(key)
        if known is not None:
            return known
        if self._num_useless > 2 * _MAX_USELESS:
            return NOTHING
        if len(texts) > MAX_NUMBERS:
            self._num_long += 1
            if self._num_long > _MAX_LONG:
                return NOTHING
        plan = plan_of([text.decode("utf-8", "replace") for text in texts])
        if not (plan.columns or plan.facts or plan.is_foreign or plan.is_pause):
            self.is_training |= plan.is_training
            plan = NOTHING
        self._num_useless += not plan.has_measure
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def _row(self, begun: "_Open", plan: Plan, numbers: list[bytes], *, is_whole: bool) -> None:
        """Put the numbers of a record to those of its form."""
        # The rate of an evaluation is no line of a record that a line above has begun.
        is_foreign = plan.is_foreign or (plan.is_pause and plan.has_measure and not plan.has_counter)
        if self._open and (plan.has_counter or is_foreign):
            self.close()
        if is_foreign or not plan.columns or len(numbers) > MAX_NUMBERS:
            return
        if self._open is None:
            if not plan.has_counter:
                return
            self._open = begun
        values = [value_of(column, numbers) for column in plan.columns]
        self._open.add(plan, values, begun.following, is_whole=is_whole)
        if plan.has_counter and plan.has_measure:
            self.close()

    def _shape(self, key: str) -> Shape | None:
        """Return the records of the form `key`, None where there are too many forms."""
        if key not in self.shapes and len(self.shapes) >= _MAX_SHAPES:
            return None
        return self.shapes.setdefault(key, Shape())

    def _label(self, head: bytes) -> int:
        """Return the number of the words in front of a record; where there are too many, they are not told apart."""
        known = self._heads.get(head)
        if known is None:
            words = label_of(head)
            for rank in _RANK.finditer(words):
                self.settings.num_ranks = max(self.settings.num_ranks, int(rank[1]) + 1)
            is_full = words not in self.labels and len(self.labels) >= _MAX_PLANS
            known = 0 if is_full else self.labels.setdefault(words, len(self.labels))
            if len(self._heads) < _MAX_PLANS:
                self._heads[head] = known
        return known

    def close(self) -> None:
        """Put the open record to those of its form."""
        record, self._open = self._open, None
        if record is None or not any(plan.has_measure for plan in record.plans):
            return
        key = "|".join(plan.key for plan in record.plans if plan.key)
        # Lines that end in a number may have been cut there by a terminal: they are kept apart.
        if self._blocks.is_evaluation(key, record.values[record.plans[0].counter], record.line.number):
            return
        shape = self._shape("open " + key if record.plans[-1].is_cut_short else key)
        if shape is None:
            return
        marks = PAUSED if self._is_paused and len(shape) else 0
        marks += CUT if record.goes_on else 0
        self._is_paused = False
        num_numbers = sum(plan.num_numbers for plan in record.plans)
        if not record.is_whole and len(shape) and num_numbers != shape.num_numbers:
            return  # the log ends within this line
        self.num_rows += 1
        if self.num_rows > MAX_RECORDS:
            return
        shape.num_numbers = num_numbers
        shape.is_training |= any(plan.is_training for plan in record.plans)
        columns = [column for plan in record.plans for column in plan.columns]
        shape.add(columns, record.values, record.stamp, (record.line.offset, record.line.number, record.label, marks))


def _last_end(text: bytes) -> int:
    """Return where the last word that is surely finished ends."""
    return max(text.rfind(mark) for mark in (b" ", b",", b"|", b";", b"\t", b"}")) + 1
