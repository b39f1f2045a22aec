"""How the speed of one configuration developed: its level, runs that leave it, and where it changed for good.

A control chart with individual values (Shewhart 1931; Montgomery, Introduction to Statistical Quality Control, chapter 6): a run
deviates when it lies beyond the mean of the level so far by more than a further run may, at 0.27 % (the classical three standard
deviations), by Student's t because a level is short at first. Two in a row on one side are a new level.
"""

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from nlp_bench.history.row import Row
from nlp_bench.measure.estimate import student_t
from nlp_bench.measure.repeats import percentage

ALPHA = 0.0027
MIN_RUNS = 3
"""So many runs make a level that a further one can be held against."""
_ENOUGH = 200
"""From this number of runs on Student's t is near enough to its limit."""


class Kind(Enum):
    """What a flag says about a run."""

    DROP = "drop"
    RISE = "rise"
    NEW_LEVEL = "new level"


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A run that is not like those before it."""

    row: Row
    """The run."""
    kind: Kind
    """One run by itself (or the latest), or the first of a new level."""
    change: float
    """Its rate / the level's - 1."""
    num_before: int
    """Runs of the level that it left."""

    def sentence(self) -> str:
        """Return it in words."""
        where = "below" if self.change < 0 else "above"
        words = f"run {self.row.id} ({self.row.ended}): {percentage(abs(self.change))} {where} the level of the {self.num_before} runs before it"
        more = {Kind.NEW_LEVEL: "; the runs after it stayed there: a new level", Kind.DROP: "", Kind.RISE: ""}
        return words + more[self.kind]


@dataclass(frozen=True, kw_only=True)
class Level:
    """Neighbouring runs of about one speed."""

    rows: tuple[Row, ...]
    """Its runs in the order of time, without the single ones that left it."""
    mean: float
    """Tokens per second: the inverse of the mean time per token."""
    cv: float | None
    """Sample standard deviation of the time per token / mean; None for one run."""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """One configuration over time."""

    rows: tuple[Row, ...]
    """Its valid runs in the order of time, at least one."""
    levels: tuple[Level, ...]
    """One after the other."""
    flags: tuple[Flag, ...]
    """In the order of time."""
    num_failed: int
    """Runs without a number."""


class _Running:
    """Mean and deviation of a level while it grows (Welford 1962, doi:10.1080/00401706.1962.10490022)."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.mean, self.squares, self.within = 0.0, 0.0, 0.0

    def add(self, row: Row) -> None:
        self.rows.append(row)
        value = _seconds(row)
        change = value - self.mean
        self.mean += change / len(self.rows)
        self.squares += change * (value - self.mean)
        self.within += (row.standard_error or 0.0) ** 2

    def is_left_by(self, row: Row) -> bool:
        number = len(self.rows)
        if number < MIN_RUNS:
            return False
        # Runs whose digits are rounded to one value scatter at least as each does within.
        variance = max(self.squares / (number - 1), self.within / number)
        bound = _factor(min(number, _ENOUGH)) * math.sqrt(variance * (1 + 1 / number))
        return abs(_seconds(row) - self.mean) > max(bound, 1e-9 * self.mean)

    def level(self) -> Level:
        number = len(self.rows)
        cv = math.sqrt(self.squares / (number - 1)) / self.mean if number > 1 else None
        return Level(rows=tuple(self.rows), mean=1 / self.mean, cv=cv)


@functools.cache
def _factor(number: int) -> float:
    return student_t(1 - ALPHA / 2, number - 1)


def _seconds(row: Row) -> float:
    return 1 / (row.tokens_per_second_steady or math.nan)


def trends(rows: Iterable[Row]) -> list[Trend]:
    """Return one trend per configuration that has a number, the one with the latest run last; `rows` are in the order of time."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.identity, []).append(row)
    found = [trend for group in groups.values() for trend in _trend(group)]
    return sorted(found, key=lambda trend: trend.rows[-1].ended_s)


def _trend(group: list[Row]) -> Iterator[Trend]:
    rows = [row for row in group if row.tokens_per_second_steady]
    if not rows:
        return
    level, waiting, levels, flags = _Running(), None, [], list[Flag]()
    for row in rows:
        if not level.is_left_by(row):
            level.add(row)
            waiting = None
            continue
        change = (row.tokens_per_second_steady or 0.0) * level.mean - 1
        flag = Flag(row=row, kind=Kind.DROP if change < 0 else Kind.RISE, change=change, num_before=len(level.rows))
        if waiting is None or (waiting.change < 0) != (change < 0):
            flags.append(flag)
            waiting = flag
            continue
        flags[-1] = Flag(row=waiting.row, kind=Kind.NEW_LEVEL, change=waiting.change, num_before=waiting.num_before)
        levels.append(level.level())
        level = _Running()
        level.add(waiting.row)
        level.add(row)
        waiting = None
    yield Trend(
        rows=tuple(rows), levels=(*levels, level.level()), flags=tuple(flags), num_failed=len(group) - len(rows)
    )
