"""The steady window: which logged intervals count, and why the others do not.

docs/number.md, "The steady window", is the rule, on seconds per token of each logged interval; the methods of `_Selection` apply it in its
order, and the constants are its numbers. 1.4826 makes the median absolute deviation that of a normal distribution.

Below it how steady the window is: stalls, drift, two modes, a slowdown at the end, and how long a run would have to be. None of these
changes the number; each is reported with it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.immutable import immutable
from nlp_bench.logs.record import Attempt, Column, Event, Log
from nlp_bench.measure.estimate import Estimate, Pair, student_cdf
from nlp_bench.measure.series import (
    MIN_STEP,
    MIN_VALUES,
    Indices,
    Where,
    as_slice,
    half_unit,
    levels,
    median,
    scatter_around,
    scatter_of,
    typical_of,
    winsorised,
)
from nlp_bench.measure.sizes import NO_SPANS, Spans
from nlp_bench.reason import Reason, texts

FIRST_TWICE = frozenset({"megatron-lm", "megatron-bridge"})
"""Programs that print iteration 1 alone without setting their clock back: their second line holds it again (NVIDIA/Megatron-LM
megatron/training/training.py, `should_reset = not is_first_iteration`)."""


@immutable
class LogConventions:
    """How the program numbers and prints its iterations, and the events between them: what the records do not hold."""

    log_interval: int | None = None  # iterations per line, None where nobody says it
    counts_from: int = 1  # number of the first iteration of this start
    has_first_twice: bool = False  # whether a first iteration that is printed alone is in the second line again
    events: Sequence[Event] = ()  # evaluations and checkpoints, in the order of the log


def conventions_of(log: Log, attempt: Attempt) -> LogConventions:
    """Return what the log tells of its program; after a checkpoint that our trainer says it loaded, counting goes on from there."""
    counts_from = log.counts_from
    loaded, first = log.settings.get("loaded_iterations"), attempt.records[0] if attempt.records else None
    if loaded and first and len(log.attempts) == 1 and isinstance(loaded.value, int):
        goes_on = loaded.line_number < first.line_number and loaded.value < first.iteration
        counts_from = loaded.value + 1 if goes_on else counts_from
    return LogConventions(
        log_interval=attempt.count("log_interval"),
        counts_from=counts_from,
        has_first_twice=log.dialect in FIRST_TWICE,
        events=log.events,
    )


RELATIVE_TOLERANCE = 0.03
SPREAD_FACTOR = 3 * 1.4826
IMPLAUSIBLE_FACTOR = 4.0
SETTLING_FACTOR = 3.0
LATE_FACTOR = 1.25
MIN_BETWEEN = 8  # intervals from which one between two levels can be told from noise
WORDS = ("evaluation", "checkpoint")  # reasons that rest on the words of the log
MARKS = (*WORDS, "profiler")  # the same and the one that our own trainer gives, whose lines are sealed
MAX_MARKED = 0.1  # share of the run's time that words may excuse
STAYS = 2 / 3  # share of the intervals of a slower level that are slower than three quarters of the steady one
COMES_BACK = 0.5
"""Share of the step to another level at an end that a level inside the window has to have, for the machine to come back from such."""
MAX_SLOW_START, MAX_SLOW_END = 0.25, 1 / 3  # shares of the intervals


@immutable(kw_only=False)
class Excluded:
    """Neighbouring intervals that do not count, for one reason."""

    first_iteration: int
    last_iteration: int
    why: str  # one of REASONS


@immutable(kw_only=False)
class SetAside:
    """All intervals that were left out for one reason and took longer; without the first interval of the log."""

    share: float  # of the intervals of the log
    num_tokens: float
    seconds: float


REASONS = ("warm-up", "slow end", "fast start", "implausibly fast", "evaluation", "checkpoint", "profiler")
"""Why an interval does not count."""


@immutable
class Window:
    """The steady window of one attempt."""

    spans: Spans  # the intervals that count, at least one; none where the samples were not kept
    first_iteration: int
    last_iteration: int
    num_records: int
    iterations_per_record: int  # iterations that the last of them stands for
    num_tokens: float
    seconds: float
    excluded: tuple[Excluded, ...]
    limit_seconds_per_token: float  # above this an interval at either end was too slow
    tail: Spans = NO_SPANS  # what was left out after the window for its speed; none where no samples were kept
    set_aside: Mapping[str, SetAside] = field(default_factory=dict)  # what was left out and took longer, by its reason
    refused_mark: str | None = None  # kind of event whose words would have excused too much; None: none

    def why(self, iterations: Column) -> NDArray[np.object_]:
        """Return for the last iteration of each interval why it is left out, an empty text where nothing says so."""
        if not self.excluded:
            return np.full(len(iterations), "", dtype=object)
        excluded = sorted(self.excluded, key=lambda e: e.first_iteration)
        reasons = np.array([*(e.why for e in excluded), ""], dtype=object)
        index = np.searchsorted([e.first_iteration for e in excluded], iterations, side="right") - 1
        ends = np.array([e.last_iteration for e in excluded])
        return np.asarray(reasons[np.where((index >= 0) & (iterations <= ends[index]), index, len(excluded))])

    def to_json(self) -> dict[str, object]:
        """Return the `window` object of nlp-bench/report/1."""
        return {
            "first_iteration": self.first_iteration,
            "last_iteration": self.last_iteration,
            "num_records": self.num_records,
            "excluded": [{"iterations": [e.first_iteration, e.last_iteration], "why": e.why} for e in self.excluded],
        }


def span_of(stretch: Any) -> str:
    """Return the iterations of a stretch that has a first and a last one: 7 or 7-9."""
    first, last = stretch.first_iteration, stretch.last_iteration
    return f"{first}" if first == last else f"{first}-{last}"


def find_window(spans: Spans, conventions: LogConventions) -> Window:
    """Apply the rule to `spans`, which is not empty and in the order of the iterations."""
    chosen = _Selection(spans)
    chosen.leave_out_first(conventions)
    chosen.leave_out_marked(conventions.events)
    chosen.leave_out_implausible()
    chosen.leave_out_other_levels()
    limit = chosen.leave_out_slow_start()
    chosen.leave_out_transitions()
    return chosen.result(limit)


class _Selection:
    """The intervals with the reason why each does not count."""

    def __init__(self, spans: Spans) -> None:
        self.spans, self.all_costs = spans, spans.seconds_per_token
        self.why = np.zeros(len(spans), dtype=np.int8)  # place in REASONS, from 1; 0 where it counts
        self.begins_slow = False  # whether the first interval is slower than usual
        self.refused_mark: str | None = None

    @cached_property
    def left(self) -> Indices:
        """The indices of what still counts."""
        return np.flatnonzero(self.why == 0)

    @cached_property
    def costs(self) -> Column:
        """What still counts, in seconds per token."""
        return self.all_costs[as_slice(self.left)]

    @cached_property
    def typical(self) -> Pair:
        """Its median and its median absolute deviation."""
        return typical_of(self.costs)

    def limit(self) -> float:
        """Return the time per token above which an interval is slow."""
        typical, spread = self.typical
        return typical + max(RELATIVE_TOLERANCE * typical, SPREAD_FACTOR * spread)

    def ends_slow(self) -> bool:
        """Say whether the last interval is left out for its speed."""
        return bool(self.why[-1] == REASONS.index("slow end") + 1)

    def leave_out(self, where: Where, why: str) -> None:
        """Let the intervals of a mask, of indices or of a slice count no longer."""
        if len(self.why[where]):
            self.why[where] = REASONS.index(why) + 1
            for name in ("left", "costs", "typical"):
                vars(self).pop(name, None)

    def left_out(self, why: str) -> Indices:
        """Return the indices of what does not count for a reason."""
        return np.flatnonzero(self.why == REASONS.index(why) + 1)

    def leave_out_first(self, conventions: LogConventions) -> None:
        """Leave out the first iteration and what falls steeply after it; at least half of the log is kept, or its last interval."""
        spans, costs = self.spans, self.all_costs
        start = int(spans.first_iterations[0] <= conventions.counts_from and len(spans) > 1)
        if start and conventions.has_first_twice and len(spans) > 2:
            # The second line may hold the first iteration again, where its sum is at least as long.
            number, seconds = spans.num_iterations, spans.seconds
            start += int(number[0] == 1 and seconds[1] / number[1] * (number[1] + 1) >= seconds[0])
        latest = max(start, min(len(costs) // 2 + 1, len(costs) - 1))
        while start < latest and costs[start] > SETTLING_FACTOR * costs[start + 1]:
            start += 1
        self.leave_out(slice(start), "warm-up")
        self.begins_slow = bool(costs[0] > self.limit())

    def leave_out_marked(self, events: Sequence[Event]) -> None:
        """Leave out the slow intervals that hold an evaluation or a checkpoint, and all that were profiled."""
        offsets = self.spans.records.offsets
        where = np.searchsorted(offsets, [event.offset for event in events])
        # What stands before the first record belongs to the start-up, what stands after the last one to no interval.
        inside = [(int(i), event.kind) for i, event in zip(where, events, strict=True) if 0 < i < len(offsets)]
        limit = self.limit() if inside else 0.0
        # In the order of the log: of two kinds in one interval the first is told.
        for kind in dict.fromkeys(kind for _, kind in inside):
            marked = np.unique([index for index, other in inside if other == kind])
            if 2 * len(marked) > len(offsets):
                continue
            # Our own trainer's word needs no doubt.
            counts_out = (self.all_costs[marked] > limit) | (kind == "profiler")
            marked = marked[(self.why[marked] == 0) & counts_out]
            if kind in WORDS and self._excused(marked) > MAX_MARKED:
                self.refused_mark = kind
            else:
                self.leave_out(marked, kind)

    def _excused(self, marked: Indices) -> float:
        """Return the time that `marked` and all intervals excused before take above the typical one, as a share of the run's."""
        excused = np.concatenate([marked, *map(self.left_out, WORDS)])
        excess = (self.all_costs[excused] - self.typical[0]) @ self.spans.num_tokens[excused]
        return float(excess / self.spans.seconds[np.union1d(self.left, excused)].sum())

    def leave_out_implausible(self) -> None:
        costs, typical = self.costs, self.typical[0]
        fast = costs * IMPLAUSIBLE_FACTOR <= typical
        if 0 < 2 * np.count_nonzero(fast) < len(costs):
            late = np.concatenate([[False], costs > LATE_FACTOR * typical, [False]])
            self.leave_out(self.left[fast & ~late[:-2] & ~late[2:]], "implausibly fast")

    def leave_out_other_levels(self) -> None:
        left, costs = self.left, self.costs
        segments = levels(costs, self.typical)
        if len(segments) < 2:
            return
        means = [median(costs[begin:end]) for begin, end in segments]
        first, last = _steady_segments(segments, means)
        level, number = means[first], len(costs)
        begin, end = segments[first][0], segments[last][1]
        before, inside, after = means[:first], means[first : last + 1], means[last + 1 :]

        def comes_back(other: list[float]) -> bool:
            # Whether the levels between the steady ones go as far as COMES_BACK of the way to those at an end.
            way = max(other) - level if max(other) > level else min(other) - level
            return any((mean - level) / way > COMES_BACK for mean in inside)

        def stays_slower(others: Column) -> bool:
            # Whether most of them, and not their sum alone, are slower than the steady level: a few stalls are no level.
            return bool(np.mean(others > np.quantile(costs[begin:end], 0.75)) >= STAYS)

        if before and not comes_back(before):
            if max(before) < level:
                self.leave_out(left[:begin], "fast start")
            elif begin <= MAX_SLOW_START * number and stays_slower(costs[:begin]):
                self.leave_out(left[:begin], "warm-up")
        if after and number - end <= MAX_SLOW_END * number and stays_slower(costs[end:]) and not comes_back(after):
            self.leave_out(left[end:], "slow end")

    def leave_out_slow_start(self) -> float:
        """Return the limit in seconds per token."""
        left, limit = self.left, self.limit()
        slow = int(np.argmin(self.costs > limit))
        if self.begins_slow and slow <= max(1, MAX_SLOW_START * len(left)):
            self.leave_out(left[:slow], "warm-up")
        return limit

    def leave_out_transitions(self) -> None:
        """Leave out what lies between warm-up and window, and between window and slow end, and is a little of both."""
        left, costs = self.left, self.costs
        if len(left) < MIN_BETWEEN:
            return
        front = self.all_costs[: left[0]] - self.typical[0]
        if len(front) > 1 and front[0] > 0 and front[-1] < front[0] / 2:
            self.leave_out(left[: min(-(-len(front) // 2), len(left) // 4)], "warm-up")
        if self.ends_slow() and costs[-1] > np.quantile(costs, 0.75):
            self.leave_out(left[-1:], "slow end")

    def result(self, limit: float) -> Window:
        spans, tail = self.spans[as_slice(self.left)], self.left_out("slow end")
        set_aside = {}
        for why in ("warm-up", *MARKS, "slow end"):
            where = self.left_out(why)
            if len(where := where[where > 0]):  # the first interval warms up, whatever it takes
                part = self.spans[where]
                share = len(where) / len(self.spans)
                set_aside[why] = SetAside(share, float(part.num_tokens.sum()), float(part.seconds.sum()))
        return Window(
            spans=spans,
            first_iteration=int(spans.first_iterations[0]),
            last_iteration=int(spans.records.column("iteration")[-1]),
            num_records=len(spans),
            iterations_per_record=int(spans.num_iterations[-1]),
            num_tokens=float(spans.num_tokens.sum()),
            seconds=float(spans.seconds.sum()),
            excluded=self._excluded(),
            limit_seconds_per_token=limit,
            tail=self.spans[tail] if len(tail) else NO_SPANS,
            set_aside=set_aside,
            refused_mark=self.refused_mark,
        )

    def _excluded(self) -> tuple[Excluded, ...]:
        """Return neighbours that were left out for the same reason as one, in the order of the iterations."""
        out = np.flatnonzero(self.why)
        if not len(out):
            return ()
        spans, why = self.spans[out], self.why[out]
        firsts, lasts = spans.first_iterations, spans.records.column("iteration")
        is_new = (why[1:] != why[:-1]) | (firsts[1:] != lasts[:-1] + 1)
        begins = np.concatenate([[0], np.flatnonzero(is_new) + 1])
        ends = np.append(begins[1:], len(out)) - 1
        reasons = (REASONS[place - 1] for place in why[begins].tolist())
        return tuple(map(Excluded, firsts[begins].astype(int).tolist(), lasts[ends].astype(int).tolist(), reasons))


def _steady_segments(segments: list[tuple[int, int]], means: list[float]) -> tuple[int, int]:
    """Return the first and the last segment of the level that holds most intervals; of two that hold as many, the slower one."""
    best = (0, 0)
    best_size = (0, 0.0)
    for mean in means:
        alike = [i for i, other in enumerate(means) if abs(other - mean) <= MIN_STEP * mean]
        size = (sum(segments[i][1] - segments[i][0] for i in alike), mean)
        if size > best_size:
            best, best_size = (alike[0], alike[-1]), size
    return best


STALL_FACTOR = 1.5  # an interval that takes so many times the median is a stall
MAX_STALLS = 5  # as many are named
MANY_CLIPPED = 0.2  # share of the intervals from which what is far from the median is a mode, not stalls
MIN_TREND, MIN_TREND_RECORDS, TREND_P = 0.01, 16, 0.001
"""Change from one end of the window to the other that is worth telling, records to see it, and chance to see it in noise."""
MIN_MODES, MODES_D, MODES_APART, MODES_SHARE = 20, 4.5, 0.03, 0.1
"""Records to see two modes; Ashman's D that they must exceed (a uniform distribution cut in two has 3.5, a normal one 2.7);
how far they are apart, and the least share of records in one."""
ONE_UNIT = 1.5  # units of the last digit of the times: what is no further apart may be rounded
MAX_WARM_UP, MIN_WARM_UP_RECORDS = 0.1, 8
"""Share of the intervals, the first one not counted, above which warm-up is doubted, and records of a window that can doubt it."""
TARGET = 0.01  # half width of the interval that `num_more` is for, as a share of the rate
MAX_MORE = 10_000_000


@immutable
class Stall:
    """One interval within the window that took far longer than the others; it counts."""

    first_iteration: int
    last_iteration: int
    factor: float  # its time / the median time


@immutable
class Steadiness:
    """What to know about the window."""

    autocorrelation: float | None  # of neighbouring intervals, 0 to 0.9; None where they are too few to see it
    num_effective: float  # independent intervals that the window is worth
    num_stalls: int  # intervals above STALL_FACTOR times the median; `Uncertainty.num_stalls` counts smaller ones too
    stalls: tuple[Stall, ...]  # the first MAX_STALLS of them
    stall_share: float  # time of the stalls above the median, as a share of the window's time
    drift: float | None  # change of the time per token over the window, as a share; None: none to see
    modes: Pair | None  # times of two modes as shares of the mean, shortest first; None for one
    slowdown: float | None  # how much slower the run ends, as a share (0.08 = 8 %); None where it does not
    long_warm_up: float | None  # share left out as warm-up, without the first interval; None where it is small
    refused_mark: str | None
    """Kind of event (evaluation, checkpoint) whose words would have excused more than MAX_MARKED of the run's time, so that its
    intervals count; None where there is none."""

    @property
    def ending(self) -> float | None:
        """Time at the end of the run / time in the window, by a slow end or by drift; None where that is not above 1."""
        slower = max(self.slowdown or 0.0, (self.drift or 0.0) / 2)
        return 1 + slower if slower > 0 else None

    def warnings(self) -> Iterator[Reason]:
        """Yield one sentence for each thing that casts doubt on the number itself."""
        if self.slowdown is not None:
            text = f"the run is {100 * self.slowdown:.1f} % slower after the window and does not recover: "
            yield Reason("slow-end", text + "the sustained rate may be lower (throttling?); a longer run tells")
        if self.long_warm_up is not None:
            text = f"{100 * self.long_warm_up:.1f} % of the intervals are left out as warm-up: "
            yield Reason("long-warm-up", text + "the machine may be as slow again; a longer run tells")
        if self.refused_mark is not None:
            text = f"lines speak of a {self.refused_mark} in so many slow intervals that leaving them out would excuse more than "
            yield Reason("refused-mark", f"{text}{100 * MAX_MARKED:.0f} % of the run's time: these intervals count")
        if self.drift is not None:
            text = f"drift: the run gets {100 * abs(self.drift):.1f} % {'slower' if self.drift > 0 else 'faster'} "
            yield Reason("drift", text + "from one end of the window to the other")
        if self.modes is not None:
            low, high = self.modes
            text = f"two modes: intervals take either {100 * (1 - low):.1f} % less or {100 * (high - 1):.1f} % more than the mean"
            yield Reason("two-modes", f"{text}; the machine changes between two states, or the batch or the work does")

    def words(self) -> list[str]:
        """Return the warnings, and what else a reader of the number should know."""
        said, number = texts(self.warnings()), self.num_stalls
        if not number:
            return said
        where = ", ".join(f"{span_of(stall)} ({stall.factor:.1f} x)" for stall in self.stalls)
        more = " and more" if number > len(self.stalls) else ""
        share = f"{100 * self.stall_share:.1f} % of its time and"
        if number == 1:
            plural = "s" if self.stalls[0].first_iteration < self.stalls[0].last_iteration else ""
            return [*said, f"1 stall inside the window costs {share} counts: iteration{plural} {where}{more}"]
        return [*said, f"{number} stalls inside the window cost {share} count: iterations {where}{more}"]


def steadiness_of(window: Window) -> Steadiness:
    """Return how steady `window` is."""
    spans = window.spans
    costs = spans.seconds_per_token
    usual, number = typical_of(costs), len(costs)
    typical, calm = usual[0], winsorised(costs, usual)
    scatter = scatter_of(costs) if number > 1 else None
    stalled = np.flatnonzero(costs > STALL_FACTOR * typical) if number > 2 else np.empty(0, np.intp)
    firsts, lasts = spans.first_iterations, spans.records.column("iteration")
    excess = (costs[stalled] - typical) @ spans.num_tokens[stalled]
    modes = _modes(costs if np.mean(calm != costs) > MANY_CLIPPED else calm)
    # By a clock of whole seconds one and the same time is 20 s now and 21 s then.
    if modes and (modes[1] - modes[0]) * spans.seconds.mean() <= 2 * ONE_UNIT * half_unit(spans.seconds, of_all=True):
        modes = None
    warm_up = window.set_aside["warm-up"].share if "warm-up" in window.set_aside else 0.0
    is_long = window.num_records >= MIN_WARM_UP_RECORDS and warm_up > MAX_WARM_UP
    return Steadiness(
        autocorrelation=scatter.autocorrelation if scatter and number >= MIN_VALUES else None,
        num_effective=scatter.num_effective if scatter else float(number),
        num_stalls=len(stalled),
        stalls=tuple(
            Stall(first_iteration=int(firsts[i]), last_iteration=int(lasts[i]), factor=float(costs[i]) / typical)
            for i in stalled[:MAX_STALLS]
        ),
        stall_share=float(excess / spans.seconds.sum()),
        drift=_drift(calm),
        modes=modes,
        slowdown=_slowdown(window),
        long_warm_up=warm_up if is_long else None,
        refused_mark=window.refused_mark,
    )


def num_more(estimate: Estimate, number: int) -> int | None:
    """Return how many more values than `number` give an interval of +-TARGET, to 1 %, if they scatter as those did; None where that is not known, or above MAX_MORE."""
    found = estimate.uncertainty
    if found is None or estimate.degrees < 1:
        return None
    if estimate.relative_half_width() <= TARGET:
        return 0
    low, high = 1.0, (MAX_MORE + number) / number  # how many times as long the log is
    if sum(found.sides(high)) > 2 * TARGET:
        return None
    while high > 1.01 * low and (high - low) * number > 1:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if sum(found.sides(middle)) > 2 * TARGET else (low, middle)
    return max(math.ceil((high - 1) * number), 1)


def _drift(costs: Column) -> float | None:
    """Return the change along a straight line (least squares, errors for autocorrelation) if it is one and worth telling."""
    number = len(costs)
    if number < MIN_TREND_RECORDS:
        return None
    place = np.arange(number) - (number - 1) / 2
    squares = float(place @ place)
    slope, mean = float(place @ costs) / squares, costs.mean()
    change = slope * (number - 1) / float(mean)
    if abs(change) < MIN_TREND:
        return None
    scatter = scatter_around(costs - mean - slope * place, 2)
    error = math.sqrt(scatter.variance * number / scatter.num_effective / squares)
    if error <= 0:
        return None
    chance = 2 * (1 - student_cdf(abs(slope) / error, max(scatter.num_effective - 2, 1.0)))
    return change if chance < TREND_P else None


def _modes(costs: Column) -> Pair | None:
    """Return the two modes by the cut that leaves the least variance (Otsu 1979) and Ashman's D (Ashman, Bird, Zepf 1994)."""
    number = len(costs)
    # Means that far apart, each of at least that share, have a variance of their own that the whole is no less than.
    least_deviation = MODES_APART * math.sqrt(MODES_SHARE * (1 - MODES_SHARE))
    if number < MIN_MODES or costs.std() < 0.999 * least_deviation * costs.mean():
        return None
    values = np.sort(costs)
    least = max(2, math.ceil(MODES_SHARE * number))
    cut = np.arange(least, number - least + 1, dtype=np.float64)
    rest, sums = number - cut, np.cumsum(values)
    below = sums[least - 1 : number - least]
    low, high = below / cut, (sums[-1] - below) / rest
    best = int(cut[int(np.argmax(cut * rest * (high - low) ** 2))])
    one, two = values[:best], values[best:]
    apart, within = float(two.mean() - one.mean()), math.sqrt((float(one.var()) + float(two.var())) / 2)
    mean = float(values.mean())
    if apart < MODES_APART * mean or apart <= MODES_D * within:
        return None
    return float(one.mean()) / mean, float(two.mean()) / mean


def _slowdown(window: Window) -> float | None:
    """Return how much slower than the window the last level of a slow end is."""
    # One interval is no speed: a program writes its last checkpoint there.
    if len(window.tail) < 2:
        return None
    costs = window.tail.seconds_per_token
    begin, end = levels(costs)[-1]
    share = float(costs[begin:end].mean()) * window.num_tokens / window.seconds - 1
    return share if share > 0 else None
