"""What the columns of one form say about each other: the counter, the processes, the clock on the wall, the size of a step."""

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.unknown.meaning import Meaning
from nlp_bench.logs.unknown.rows import Shape
from nlp_bench.logs.unknown.settings import Settings
from nlp_bench.logs.unknown.shapes import Column

Values: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Pair: TypeAlias = tuple[Column, Values]
NEAR = 0.07
"""Two quantities agree within this: rates are rounded, smoothed, or leave a part of the step out."""
_ORDER = {"step": 0, "it": 1, "batch": 2, "epoch": 4}
_DAY_S = 86400
_UNIX_S = 1e9  # a time above this counts from 1970
_COARSE_S = 4.0  # whole seconds tell such a time to a quarter


class Evidence:
    """The columns of one form, with what the log says in front of them."""

    def __init__(self, shape: Shape, settings: Settings) -> None:
        """Take the rows of `shape`; `prepare` comes before all other questions."""
        self.is_training = shape.is_training
        self.names = shape.columns
        self.values, self.stamps, self.places = shape.values, shape.stamps, shape.places
        self.settings = settings.until(int(self.places[:, 1].max(initial=0)))
        self.counter: Column | None = None
        self.steps: Values = np.empty(0)
        self.wall_s = math.nan
        """Seconds of an iteration by the time stamps of the lines, NaN where they cannot tell."""
        self.is_many = False
        """Whether several processes print the same steps."""
        self.own: set[str] = set()
        """Names of the columns in which each process has its own value."""

    def columns(self, *kinds: str) -> list[Pair]:
        """Return the columns of these kinds in the order of the line."""
        return [(c, v) for c, v in zip(self.names, self.values, strict=True) if c.meaning.kind in kinds]

    def prepare(self) -> bool:
        """Find the counter, one process, and the clock on the wall; False where no counter counts."""
        for column, values in sorted(self.columns("counter", "anonymous"), key=_rank):
            if 2 * len(np.unique(self.places[:, 2])) > len(values) < 2 * len(np.unique(values)):
                self.places[:, 2] = self.places[0, 2]  # what differs on each line names no process
            if rises(self._of_process(values)) and (column.meaning.per != "batch" or self.is_training):
                self.counter, self.steps = column, values
                self._choose_process()
                self.wall_s = self._wall()
                return True
        return False

    @property
    def is_parallel(self) -> bool:
        """Say whether more than one device may have worked: a rate without a place may be one of each."""
        is_stated = any(middle(values) > 1 for _, values in self.columns("devices"))
        return self.settings.is_parallel or self.is_many or is_stated

    @property
    def is_single(self) -> bool:
        """Say whether there is one record only, however often it was printed."""
        return len(np.unique(self.steps)) == 1

    # --- processes

    def _of_process(self, values: Values) -> Values:
        """Return the values of the process that prints most."""
        labels, counts = np.unique(self.places[:, 2], return_counts=True)
        chosen: Values = values[self.places[:, 2] == labels[np.argmax(counts)]]
        return chosen

    def _choose_process(self) -> None:
        """Keep the rows of one process where several print the same steps; their values are compared first."""
        labels = self.places[:, 2]
        order = np.lexsort((labels, self.steps))
        same = (np.diff(self.steps[order]) == 0) & (np.diff(labels[order]) != 0)
        if len(np.unique(self.steps[order][1:][same])) * 2 < len(np.unique(self.steps)):
            return  # a restart repeats a few steps, another process most of them
        self.is_many = bool(same.any())
        for column, values in zip(self.names, self.values, strict=True):
            differs = np.diff(values[order])[same] != 0
            # What never changes cannot tell whether it is shared.
            if differs.mean() > 0.3 or not spread(values) > 0:
                self.own.add(column.shown)
        found, counts = np.unique(labels, return_counts=True)
        kept = labels == found[np.argmax(counts)]
        if 2 * len(np.unique(self.steps[kept])) >= len(np.unique(self.steps)):
            self._keep(kept)

    def _keep(self, rows: Mask) -> None:
        self.values = [values[rows] for values in self.values]
        self.stamps, self.places, self.steps = self.stamps[rows], self.places[rows], self.steps[rows]

    # --- the clock on the wall

    def _wall(self) -> float:
        for _, values in self.columns("stamp"):
            usual = middle(values)
            if np.isnan(self.stamps).all() and usual > _UNIX_S:
                self.stamps = values / (1000.0 if usual > 100 * _UNIX_S else 1.0)
        stamps = self.stamps
        if np.isnan(stamps).all():
            clocks = [v for c, v in self.columns("clock", "time") if c.meaning.has_unit and self.is_clock(v)]
            stamps = clocks[0] if clocks else stamps
        known = np.isfinite(stamps) & np.isfinite(self.steps)
        return _seconds_between(stamps[known], self.steps[known])

    def is_clock(self, values: Values) -> bool:
        """Say whether a time is counted on from record to record, evenly but for a few pauses or resets."""
        steps = np.diff(self.steps)
        gains = np.diff(values)[steps > 0] / steps[steps > 0]
        if len(gains) < 3 or not middle(values) < _UNIX_S:
            return False
        usual = np.median(gains)
        return bool(usual > 0 and np.mean((gains > 0.3 * usual) & (gains < 3 * usual)) > 0.75)

    def is_of_step(self, values: Values) -> bool:
        """Say whether a bare time is none of a clock that runs on, or of the day."""
        known = values[np.isfinite(values)]
        if not len(known) or np.median(known) > _UNIX_S / 100:
            return False
        return not (len(known) > 3 and np.mean(np.diff(known) > 0) > 0.75 and np.ptp(known) > 0.5 * np.median(known))

    def is_since_start(self, values: Values) -> bool:
        """Say whether times are means since the start: they creep, and what they are the means of is much more even."""
        known = np.isfinite(values) & (self.steps > 0)
        means, steps = values[known], self.steps[known]
        gains = np.diff(means)
        if len(means) < 4 or not (np.all(gains < 0) or np.all(gains > 0)) or np.any(np.diff(steps) <= 0):
            return False
        single = np.diff(means * steps) / np.diff(steps)
        return bool(np.all(single > 0) and np.std(single) / np.mean(single) < 0.5 * np.std(means) / np.mean(means))

    @property
    def usual_step(self) -> float:
        """The most common step of the counter."""
        rising = np.diff(self.steps[np.isfinite(self.steps)])
        values, counts = np.unique(rising[rising > 0], return_counts=True)
        return float(values[np.argmax(counts)]) if len(values) else 1.0

    # --- sizes

    def share(self) -> float:
        """Return the tokens of an iteration of one device or model replica, NaN where the settings do not say them."""
        settings = self.settings
        parts = (settings.one("micro_batch"), settings.sequence, settings.one("accumulation") or 1.0)
        is_split = settings.has("model_parallel") or settings.has("global_batch")
        return math.nan if is_split else math.prod(part or math.nan for part in parts)

    def batch(self) -> Values | None:
        """Return the samples of an iteration of the whole machine, None where nothing says them."""
        stated = next((v for c, v in self.columns("global_batch") if not c.is_rounded), None)
        if stated is None and self.settings.batch:
            stated = np.full(len(self.steps), self.settings.batch)
        return stated

    def seen_per_step(self, kind: str) -> tuple[Values, float] | None:
        """Return a column of tokens or samples since the start, and what one iteration adds to it."""
        for column, values in self.columns(kind):
            if column.is_rounded or not rises(values) or self.is_single:
                continue
            gains, steps = np.diff(values), np.diff(self.steps)
            usable = (steps > 0) & (gains > 0)
            if usable.sum() >= max(1, len(steps) // 2):
                return values, float(np.median(gains[usable] / steps[usable]))
        return None

    def counts_parts(self, meaning: Meaning) -> bool:
        """Say whether an iteration of a time may be a part of the step that the counter counts."""
        batch, seen = self.batch(), self.seen_per_step("seen_samples")
        if meaning.per == "step" or self.counter is None:
            return False
        if batch is not None and seen and near(seen[1], middle(batch), 0.001):
            return False
        if (self.settings.one("accumulation") or 1) > 1 and self.counter.meaning.per != "step":
            return True
        outer = np.ptp(self.steps)
        inner = [v for c, v in self.columns("counter", "anonymous") if c is not self.counter]
        # A counter that was rounded (`3.1e+4`) may count anything.
        return any(np.isnan(v).all() or (outer > 0 and spread(v) > 1.5 * outer) for v in inner)


def _rank(pair: Pair) -> int:
    return _ORDER.get(pair[0].meaning.per, 3)


def _seconds_between(stamps: Values, steps: Values) -> float:
    """Return the seconds per iteration between lines written at `stamps`, NaN where they are too few or too coarse."""
    between, iterations = np.diff(stamps), np.diff(steps)
    between = np.where(between < 1000 - _DAY_S, between + _DAY_S, between)
    usable = (iterations > 0) & (between >= 0)
    between, iterations = between[usable], iterations[usable]
    is_coarse = bool(np.all(stamps == np.round(stamps)))
    if len(between) < 2 or between.sum() <= (_COARSE_S if is_coarse else 0):
        return math.nan
    mean, usual = float(between.sum() / iterations.sum()), float(np.median(between / iterations))
    # A pause between two lines lifts the mean; whole seconds make single differences useless.
    is_useless = usual <= 0 or (is_coarse and np.median(between) < _COARSE_S)
    return mean if is_useless else min(mean, usual)


def rises(values: Values) -> bool:
    """Say whether a counter counts: whole numbers that rise, but for restarts, and mostly by the same step."""
    known = values[np.isfinite(values)]
    if not len(known) or not np.all((known == np.round(known)) & (known >= 0)):
        return False
    steps = np.diff(known)
    rising = steps[steps > 0]
    if not steps.any():
        return True
    _, counts = np.unique(rising, return_counts=True)
    is_falling = not len(rising) or (steps < 0).sum() * 4 > len(known)
    return not is_falling and bool(len(rising) < 4 or counts.max() >= 0.3 * len(rising))


def middle(values: Values) -> float:
    """Return the median of what is finite and above 0, NaN where nothing is."""
    known = values[np.isfinite(values) & (values > 0)]
    return float(np.median(known)) if len(known) else math.nan


def spread(values: Values) -> float:
    """Return the difference of the largest and the smallest finite value, NaN where there is none."""
    known = values[np.isfinite(values)]
    return float(np.ptp(known)) if len(known) else math.nan


def near(value: float, target: float, tolerance: float = NEAR) -> bool:
    """Say whether `value` is `target` within a fraction of it; NaN is near to nothing."""
    return abs(value - target) <= tolerance * abs(target)


def whole(value: float) -> int:
    """Return the whole number next to `value`, 0 where it is not finite."""
    return round(value) if math.isfinite(value) else 0
