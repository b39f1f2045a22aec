"""By which lines two logs are known to be of one run: copied, cut, changed in the last digits, or parted between two lines.

A trace holds some lines of a run: its first and last ones, and between them those whose numbers a fixed hash puts first, so that the
traces of a log and of a piece of it have lines in common.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.quantity import RATES
from nlp_bench.logs.record import LOSS_NAN, Column, Records
from nlp_bench.measure import Fields, Json
from nlp_bench.measure.series import finite, median, steps_of, winsorised

TIMES = (*RATES, "clock_s", "stamp_s")  # fields of which a record has at least one, the best first
_CLOCKS = ("stamp_s", "clock_s")
_ENDS, _BETWEEN = 16, 64  # lines kept at each end, and between
_HASH = 0x9E3779B1  # 2^32 / golden ratio: neighbouring numbers are spread evenly (Knuth 6.4)
_EQUAL_SHARE, _LEAST_BITS = 0.9, 15.0
"""Share of the lines that are equal in a copy, and what their values are worth at least: six that differ, fewer than one chance in 30,000."""
_LEAST_LINES, _LEAST_VALUES, _ALIKE, _VERY_ALIKE, _SAME_SIGN = 16, 8, 0.995, 0.999, 0.8
"""Lines and different steps from which a correlation counts; those of ranks and of times that no two runs have, unless data make their steps
more than 20 times as uneven as the machine does; and the share of steps of one sign without which there is none."""
_TOGETHER_S, _RANKS_ALIKE = 1.0, 0.3
"""Seconds between the lines of two processes of one run, and the correlation of their times at least: each has the jitter of its own clock."""
_GAP_LINES, _GAP_TIMES, _GAP_S, _LOSS_STEP = 2, 1.5, 10.0, 0.5
"""Between two parts of one log: lines from one to the other, factor on their time and seconds on top (no program starts anew so quickly),
share by which the loss may differ."""


class Kin(Enum):
    """Why two logs are of one run, in words that follow the name of one of them."""

    NUMBERS = "the same numbers to the last digit as another run: a copy, counted once"
    BEGINNING = "the same first records to the last digit as another run: a copy, counted once"
    LINES = "the same times of the same iterations as another run: a copy or a part of it, counted once"
    NOISE = "line by line as slow and as fast as another run: a copy with other digits, or the same uneven work; counted once (a seed of its own makes it another)"
    RANKS = "the same iterations with the same losses at the same times of day as another run: another process of one run, counted once"
    PARTS = "goes on where another log ends, or ends where it begins: one run, counted once; give its parts as one log (cat PART1 PART2)"


class End(NamedTuple):
    """The first or the last line of a run."""

    iteration: int
    loss: float | None
    stamp_s: float | None
    clock_s: float | None


@immutable
class Trace:
    """Some lines of a run."""

    quantity: str  # of TIMES; of clocks the seconds since the line before
    lines: Mapping[int, float]  # iteration to its time
    first: End
    last: End
    step: int  # iterations from line to line
    period_s: float | None  # seconds per iteration, None where the log has rates alone

    @property
    def is_coarse(self) -> bool:
        """Whether its times are of a clock of whole seconds: two even runs of one speed begin alike."""
        moments = (self.first.clock_s, self.last.clock_s)
        return self.quantity == "clock_s" and all(moment is not None and moment.is_integer() for moment in moments)

    def to_json(self) -> Json:
        """Return it as an object."""
        return {**vars(self), "lines": list(self.lines.items())}

    @classmethod
    def from_json(cls, given: Fields) -> "Trace":
        """Return what `to_json` has made an object of."""
        ends = {name: End(*given[name]) for name in ("first", "last")}
        return cls(**{**given, **ends, "lines": dict(given["lines"])})


def trace_of(records: Records) -> Trace | None:
    """Return the trace of a run, None where its lines have no numbers or no times."""
    numbers = records.column("iteration")
    if len(records) < 2 or not np.all(steps_of(numbers) > 0):
        return None
    found = {name: _seconds(name, records.column(name), numbers) for name in TIMES if name in records.columns}
    quantity = next((name for name, values in found.items() if np.isfinite(values).mean() > 0.5), None)
    if quantity is None:
        return None
    steps, losses = steps_of(numbers), records.columns.get("lm_loss", np.full(len(records), np.nan))
    hashes = (numbers.astype(np.uint64) * np.uint64(_HASH)) & np.uint64(0xFFFFFFFF)
    every = range(len(hashes))
    between = np.argpartition(hashes, _BETWEEN)[:_BETWEEN].tolist() if len(hashes) > _BETWEEN else every
    chosen = sorted({*every[:_ENDS], *every[-_ENDS:], *between})
    times = next(
        (found[name] for name in ("elapsed_s", *_CLOCKS) if name in found and np.isfinite(found[name]).any()), None
    )
    columns = [losses, *map(records.column, _CLOCKS)]

    def end(at: int) -> End:
        return End(int(numbers[at]), *(_given(each[at]) for each in columns))

    return Trace(
        quantity=quantity,
        lines={int(numbers[at]): float(found[quantity][at]) for at in chosen if math.isfinite(found[quantity][at])},
        first=end(0),
        last=end(-1),
        step=int(median(steps)),
        period_s=None if times is None else median(finite(times)),
    )


def _seconds(name: str, values: Column, numbers: Column) -> Column:
    """Return `values`; of a clock the seconds per iteration since the line before."""
    if name not in _CLOCKS:
        return values
    return np.concatenate([[np.nan], steps_of(values) / steps_of(numbers)])


def _given(value: float) -> float | None:
    return float(value) if math.isfinite(value) and value != LOSS_NAN else None


def kin_of(one: Trace | None, two: Trace | None) -> Kin | None:
    """Return why two logs are of one run, None where nothing shows it."""
    if one is None or two is None:
        return None
    if one.quantity == two.quantity:
        common = sorted(one.lines.keys() & two.lines.keys())
        times = [[each.lines[iteration] for iteration in common] for each in (one, two)]
        if _are_equal(*times):
            return Kin.LINES
        if _are_alike(*times):
            return Kin.NOISE
        if _are_ranks(one, two) and len(common) >= _LEAST_VALUES and _correlation(*map(np.diff, times)) >= _RANKS_ALIKE:
            return Kin.RANKS
    return Kin.PARTS if _goes_on(one, two) or _goes_on(two, one) else None


def _are_equal(one: Sequence[float], two: Sequence[float]) -> bool:
    """Return whether the times are the same, and so various that this is no chance."""
    same = [a for a, b in zip(one, two, strict=True) if a == b]
    if len(same) < _EQUAL_SHARE * len(one):
        return False
    counts = Counter(same)
    return sum(math.log2(len(same) / counts[value]) for value in same) >= _LEAST_BITS


def _are_alike(one: Sequence[float], two: Sequence[float]) -> bool:
    """Return whether the times rise and fall together line by line, as those of two runs do not.

    By the correlation of the steps from line to line, clipped and by ranks (Spearman): a stall that both have counts little, and a common
    drift not at all.
    """
    if len(one) < _LEAST_LINES:
        return False
    # Nearly all pairs of runs end here; numpy takes longer for so few values.
    same = sum((a < b) == (c < d) for a, b, c, d in zip(one, one[1:], two, two[1:], strict=False))
    if same / (len(one) - 1) < _SAME_SIGN:
        return False
    steps = [np.diff(one), np.diff(two)]
    if min(len(np.unique(each)) for each in steps) < _LEAST_VALUES:
        return False
    return _correlation(*map(winsorised, steps)) >= _VERY_ALIKE and _correlation(*map(_ranks, steps)) >= _ALIKE


def _are_ranks(one: Trace, two: Trace) -> bool:
    """Return whether both begin and end at the same iterations with the same losses, at the same times of day."""
    for a, b in ((one.first, two.first), (one.last, two.last)):
        if a.iteration != b.iteration or a.loss is None or a.loss != b.loss:
            return False
        if a.stamp_s is None or b.stamp_s is None or abs(b.stamp_s - a.stamp_s) > _TOGETHER_S:
            return False
    return True


def _correlation(one: Column, two: Column) -> float:
    one, two = one - one.mean(), two - two.mean()
    squares = float(one @ one) * float(two @ two)
    return float(one @ two) / math.sqrt(squares) if squares > 0 else 0.0


def _ranks(values: Column) -> Column:
    """Return the ranks of `values`; equal ones share theirs."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[where]
    return np.asarray(ranks, dtype=np.float64)


def _goes_on(one: Trace, two: Trace) -> bool:
    """Return whether `two` begins where `one` ends: its next iterations, about the same loss, no time for another start of the program."""
    gap = two.first.iteration - one.last.iteration
    if not 0 < gap <= _GAP_LINES * two.step:
        return False
    before, after = one.last.loss, two.first.loss
    if before is not None and after is not None and abs(after - before) > _LOSS_STEP * max(abs(before), abs(after)):
        return False
    for begin, end in zip(one.last[2:], two.first[2:], strict=True):
        if begin is not None and end is not None:
            return 0 <= end - begin <= _GAP_TIMES * gap * (two.period_s or 0.0) + _GAP_S
    return True
