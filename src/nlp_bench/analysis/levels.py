"""Levels of the speed of one configuration over time: runs that leave a level, and where it changed for good.

Single runs: a control chart with individual values (Shewhart 1931; Montgomery, Introduction to Statistical Quality Control, chapter 6). A
run deviates when it lies beyond the mean of the level so far by more than a further run may, at 0.27 % (the classical three standard
deviations), by Student's t because a level is short at first. MIN_LEVEL of them in a row on one side are a new level.
Small changes that stay: after each run the split of the level so far that parts it best is tested by Student's t (the change-point
model with unknown parameters: Hawkins, Qiu and Kang 2003, doi:10.1080/00224065.2003.11980233, a CUSUM that needs no known level), on
times that are clipped to CLIP robust standard deviations around their median, so that tails are no change (Huber 1964), with an error that
allows for autocorrelation.
Changes that grow (a creep): the slope of the same times over the number of the run is tested by Student's t; the new level begins where a
line that is flat at first turns. Where a step fits better it is left to the other two tests.
Error rates and power of them, next to EWMA and CUSUM charts: `tests/compare/calibration.py`, docs/compare.md.
"""

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.analysis.row import Row
from nlp_bench.immutable import immutable
from nlp_bench.measure.estimate import student_t
from nlp_bench.measure.series import scatter_around
from nlp_bench.show.table import percentage

ALPHA = 0.0027
MIN_RUNS = 3  # runs of a level from which on a further one is tested against it
MIN_LEVEL = 5  # runs that make a new level: machines of two speeds have some in a row at one of them
SPLIT_ALPHA = 2e-4  # of each split, and of each slope: a false level in 3 of 100 series of 60 runs
MIN_DRIFT = 6  # runs whose slope is tested
CLIP = 2.0
_LONG = 200  # runs from which Student's t is near its limit, and a change further back would have been seen


class Kind(Enum):
    """What a flag says about a run."""

    DROP = "drop"
    RISE = "rise"
    NEW_LEVEL = "new level"


@immutable
class Flag:
    """A run that is not like those before it."""

    row: Row
    kind: Kind  # one run by itself (or the latest), or the first of a new level
    change: float  # its rate, of a new level the level's, / the rate of the level before - 1
    num_before: int  # runs of the level that it left

    @classmethod
    def of(cls, level: "Level", before: "Level", row: Row) -> "Flag":
        """Return the flag of the first row of a level."""
        change = level.mean / before.mean - 1
        return cls(row=row, kind=Kind.NEW_LEVEL, change=change, num_before=len(before.rows))

    def sentence(self) -> str:
        """Return it in words."""
        where = f"{percentage(abs(self.change))} {'below' if self.change < 0 else 'above'} the level of the {self.num_before} runs before it"
        what = "a new level begins, " if self.kind is Kind.NEW_LEVEL else ""
        return f"run {self.row.id} ({self.row.ended}): {what}{where}"


class Level:
    """Neighbouring runs of about one speed: mean and deviation while it grows (Welford 1962, doi:10.1080/00401706.1962.10490022)."""

    def __init__(self) -> None:
        self.rows: list[Row] = []  # in the order of time, without the single ones that left it
        self.seconds, self.squares, self.within = 0.0, 0.0, 0.0

    @property
    def mean(self) -> float:
        """Tokens per second: the inverse of the mean time per token."""
        return 1 / self.seconds

    @property
    def cv(self) -> float | None:
        """Sample standard deviation of the time per token / mean; None for one run."""
        number = len(self.rows)
        return math.sqrt(self.squares / (number - 1)) / self.seconds if number > 1 else None

    def leaves(self, row: Row) -> float | None:
        """Return the rate of `row` / that of the level - 1 where it is beyond what a further run may be; None where it is not."""
        value, number = _seconds(row), len(self.rows)
        if number < MIN_RUNS:
            return None
        # Runs whose digits are rounded to one value scatter at least as each does within.
        variance = max(self.squares / (number - 1), self.within / number)
        factor = student_t(1 - ALPHA / 2, min(number, _LONG) - 1)
        bound = factor * math.sqrt(variance * (1 + 1 / number))
        is_beyond = abs(value - self.seconds) > max(bound, 1e-9 * self.seconds)
        return self.seconds / value - 1 if is_beyond else None

    def is_like(self, other: "Level") -> bool:
        """Return whether Student's t, with the scatter of both, does not tell the two means apart."""
        numbers = len(self.rows), len(other.rows)
        degrees = sum(numbers) - 2
        if degrees < 1:
            return True
        variance = (self.squares + other.squares) / degrees
        error = math.sqrt(variance * (1 / numbers[0] + 1 / numbers[1]))
        return abs(self.seconds - other.seconds) <= student_t(1 - ALPHA / 2, degrees) * error

    def take(self, row: Row) -> Flag | None:
        """Add `row`, or return how it leaves the level."""
        value, change = _seconds(row), self.leaves(row)
        if change is not None:
            kind = Kind.DROP if change < 0 else Kind.RISE
            return Flag(row=row, kind=kind, change=change, num_before=len(self.rows))
        self.rows.append(row)
        step = value - self.seconds
        self.seconds += step / len(self.rows)
        self.squares += step * (value - self.seconds)
        self.within += (row.standard_error or 0.0) ** 2
        return None


def _seconds(row: Row) -> float:
    return 1 / (row.tokens_per_second_steady or math.nan)


def parted(rows: Sequence[Row]) -> tuple[list[Level], list[Flag]]:
    """Return the levels of runs with numbers, in the order of time, and the runs that are not like those before them."""
    levels, flags = list[Level](), list[Flag]()
    rest = rows
    while rest:
        change = _change(rest)
        level = Level()
        left = [flag for row in rest[:change] if (flag := level.take(row))]
        if levels:
            flags.append(Flag.of(level, levels[-1], rest[0]))
        levels.append(level)
        flags += left
        rest = rest[change:]
    return levels, flags


def _change(rows: Sequence[Row]) -> int:
    """Return the index of the first run of the next level, the number of `rows` where all are of one."""
    level, kinds = Level(), list[Kind | None]()
    seconds = np.array([_seconds(row) for row in rows])
    for count, row in enumerate(rows, start=1):
        flag = level.take(row)
        kinds.append(flag.kind if flag else None)
        if flag and kinds[-MIN_LEVEL:] == [flag.kind] * MIN_LEVEL:
            return count - MIN_LEVEL
        start = max(0, count - _LONG)
        split = _split(seconds[start:count]) or _drift(seconds[start:count])
        if split:
            return start + split
    return len(rows)


def _clipped(seconds: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return times without tails, as differences from their median, and their robust standard deviation."""
    number, middle = len(seconds), np.median(seconds)
    # The correction for few values is that of the normal distribution (Croux and Rousseeuw 1992).
    robust = 1.4826 * float(np.median(np.abs(seconds - middle))) * number / (number - 0.8)
    return np.clip(seconds - middle, -CLIP * robust, CLIP * robust), robust


def _split(seconds: NDArray[np.float64]) -> int | None:
    """Return where `seconds` change to another level, None where they do not or are too few to tell."""
    number = len(seconds)
    if number < 2 * MIN_LEVEL:
        return None
    clipped, robust = _clipped(seconds)
    left = np.arange(MIN_LEVEL, number - MIN_LEVEL + 1)
    sums = np.cumsum(clipped)
    between = (sums[left - 1] - left * sums[-1] / number) ** 2 * number / (left * (number - left))
    best = int(np.argmax(between))
    at = int(left[best])
    scatter = scatter_around(np.concatenate([part - part.mean() for part in (clipped[:at], clipped[at:])]), 2)
    within = scatter.variance * number / scatter.num_effective
    # Where most times are the same to the last digit they are rounded, and say nothing about small changes.
    is_other = robust > 0 and float(between[best]) > student_t(1 - SPLIT_ALPHA / 2, number - 2) ** 2 * within
    if not is_other:
        return None
    # Where it is: the least absolute deviations from the medians of both parts, on the times as they are.
    nearer = np.abs(seconds - np.median(seconds[:at])) - np.abs(seconds - np.median(seconds[at:]))
    return MIN_RUNS + int(np.argmin(np.cumsum(nearer)[MIN_RUNS - 1 : -1]))


def _drift(seconds: NDArray[np.float64]) -> int | None:
    """Return where `seconds` begin to grow or to shrink steadily, None where they do not or are too few to tell."""
    number = len(seconds)
    if number < MIN_DRIFT:
        return None
    clipped, robust = _clipped(seconds)
    at = np.arange(number) - (number - 1) / 2
    squares = float(at @ at)
    slope = float(at @ clipped) / squares
    rest = clipped - clipped.mean() - slope * at
    error = math.sqrt(float(rest @ rest) / (number - 2) / squares)
    if not (robust > 0 and abs(slope) > student_t(1 - SPLIT_ALPHA / 2, number - 2) * error):
        return None
    firsts = range(MIN_RUNS, number - 1)
    since = np.maximum(0, np.arange(number)[None, :] - np.array(firsts)[:, None] + 1)  # a row per first run
    ramps = [_misfit(seconds, one) for one in since]
    steps = [_misfit(seconds, one > 0) for one in since]
    # A step is left to the tests for one, which place it better.
    return firsts[int(np.argmin(ramps))] if min(ramps) < min(steps) else None


def _misfit(seconds: NDArray[np.float64], shape: NDArray[Any]) -> float:
    """Return how far `seconds` are, in sum, from a constant and a multiple of `shape`, by least squares."""
    model = np.column_stack((np.ones(len(seconds)), shape))
    best = np.linalg.lstsq(model, seconds, rcond=None)[0]
    return float(np.abs(seconds - model @ best).sum())
