"""The steady window: which logged intervals count, and why the others do not.

The rule, applied to seconds per token of each logged interval:
1. The interval that holds the first iteration is warm-up (allocation, communicators, kernel selection), unless it is the only
   one; so is each interval at the front that takes three times as long as the next one, up to the half of the log. Where a
   program prints the first iteration alone and counts it again in its second line, that line is warm-up too.
2. An interval with an evaluation or a checkpoint in it, by the words of the log, is left out where it is slow, one that our trainer
   profiled always; words that stand in more than half of the intervals tell nothing.
3. An interval that is four or more times as fast as the median of the rest, and has no slow neighbour that makes up for it (as where a
   program prints late), is no measurement but a dispatch that returned before the work was done, or a torn number: it is left
   out as "implausibly fast", unless such intervals are the half of the log or more.
4. Change points (`changes`) cut the rest into levels. The level that holds most intervals is the steady one; what lies before its first and
   after its last segment is left out: "warm-up" or "slow end" where it is slower, "fast start" or "fast end" where it is faster (a GPU
   that is not yet throttled is no steady machine). A level that comes back between steady segments is the machine's own, and stays
   at the ends too.
5. Typical = the median of what is left; too slow = above typical + max(3 %, 3 * 1.4826 * median absolute deviation).
   Intervals are dropped from the front while they are too slow ("warm-up"), and from the back likewise ("slow end").
6. What fades slowly is cut where the marginal standard error is least (MSER; White 1997, Simulation 69), at both ends, if it is
   slower than the rest by four standard errors. Where the front fades and does not step, half as much again is left out, for what
   fades on below the noise; so is the interval before a slow end that is among the slowest quarter, for the change may lie in it.
Nothing else is dropped: a single stall within the window belongs to the machine.
1.4826 makes the deviation that of a normal distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.record import Event
from nlp_bench.measure.autocorrelation import scatter_of
from nlp_bench.measure.changes import MIN_STEP, held, levels
from nlp_bench.measure.habits import Habits
from nlp_bench.measure.span import Spans
from nlp_bench.measure.summary import median

RELATIVE_TOLERANCE = 0.03
SPREAD_FACTOR = 3 * 1.4826
IMPLAUSIBLE_FACTOR = 4.0
SETTLING_FACTOR = 3.0
LATE_FACTOR = 1.25
MIN_FADING = 16
"""Intervals from which a slow fading can be told from noise."""
FADING_T = 4.0


@dataclass(frozen=True)
class Excluded:
    """Neighbouring intervals that do not count, for one reason."""

    first_iteration: int
    """First iteration left out, as the log counts."""
    last_iteration: int
    """Last iteration left out."""
    why: str
    """One of REASONS."""


REASONS = (
    "warm-up", "slow end", "fast start", "fast end", "implausibly fast", "evaluation", "checkpoint", "profiler",
)  # fmt: skip
"""Why an interval does not count."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The steady window of one attempt."""

    spans: Spans
    """The intervals that count, at least one."""
    excluded: tuple[Excluded, ...]
    """What was left out."""
    limit_seconds_per_token: float
    """Above this an interval at either end was too slow."""
    tail: Spans | None = None
    """The intervals after the window that were left out for their speed, None where there are none."""

    @property
    def first_iteration(self) -> int:
        """The first iteration that counts."""
        return int(self.spans.first_iterations[0])

    @property
    def last_iteration(self) -> int:
        """The last iteration that counts."""
        return int(self.spans.records.column("iteration")[-1])

    @property
    def num_tokens(self) -> float:
        """Tokens of the window."""
        return float(self.spans.num_tokens.sum())

    @property
    def seconds(self) -> float:
        """Time of the window."""
        return float(self.spans.seconds.sum())

    def to_json(self) -> dict[str, object]:
        """Return the `window` object of nlp-bench/report/1."""
        return {
            "first_iteration": self.first_iteration,
            "last_iteration": self.last_iteration,
            "num_records": len(self.spans),
            "excluded": [{"iterations": [e.first_iteration, e.last_iteration], "why": e.why} for e in self.excluded],
        }


def find_window(spans: Spans, habits: Habits) -> Window:
    """Apply the rule of this module to `spans`, which is not empty and in the order of the iterations."""
    finding = _Finding(spans)
    finding.leave_out_first(habits)
    finding.leave_out_marked(habits.events)
    finding.leave_out_implausible()
    finding.leave_out_other_levels()
    limit = finding.leave_out_slow_ends()
    finding.leave_out_fading()
    finding.leave_out_transitions()
    return finding.result(limit)


class _Finding:
    """The intervals with the reason why each does not count, empty where it does."""

    def __init__(self, spans: Spans) -> None:
        self.spans, self.costs = spans, spans.seconds_per_token
        self.why = np.full(len(spans), "", dtype=object)
        self.own_level = 0.0
        """Seconds per token of the slower end, where a level that comes back reaches it."""

    def left(self) -> NDArray[np.intp]:
        """Return the indices of what still counts."""
        return np.flatnonzero(self.why == "")

    def leave_out_first(self, habits: Habits) -> None:
        """Leave out the first iteration and what falls steeply after it; at least half of the log is kept, or its last interval."""
        spans, costs = self.spans, self.costs
        start = int(spans.first_iterations[0] <= habits.counts_from and len(spans) > 1)
        if start and habits.has_first_twice and len(spans) > 2 and _is_alone_and_repeated(spans):
            start = 2
        latest = max(start, min(len(costs) // 2 + 1, len(costs) - 1))
        while start < latest and costs[start] > SETTLING_FACTOR * costs[start + 1]:
            start += 1
        self.why[:start] = "warm-up"

    def leave_out_marked(self, events: Sequence[Event]) -> None:
        """Leave out the slow intervals that hold an evaluation or a checkpoint, and all that were profiled."""
        offsets = self.spans.records.offsets
        where = np.searchsorted(offsets, [event.offset for event in events])
        # What stands before the first record belongs to the start-up, what stands after the last one to no interval.
        inside = [(int(i), event.kind) for i, event in zip(where, events, strict=True) if 0 < i < len(offsets)]
        if not inside:
            return
        limit = _limit(self.costs[self.left()])
        # In the order of the log: of two kinds in one interval the first is told.
        for kind in dict.fromkeys(kind for _, kind in inside):
            marked = np.unique([index for index, other in inside if other == kind])
            if 2 * len(marked) <= len(offsets):
                counts_out = (self.costs[marked] > limit) | (
                    kind == "profiler"
                )  # our own trainer's word needs no doubt
                self.why[marked[(self.why[marked] == "") & counts_out]] = kind

    def leave_out_implausible(self) -> None:
        left = self.left()
        self.why[left[_implausibly_fast(self.costs[left])]] = "implausibly fast"

    def leave_out_other_levels(self) -> None:
        left = self.left()
        costs = self.costs[left]
        segments = levels(costs)
        if len(segments) < 2:
            return
        means = [median(costs[begin:end]) for begin, end in segments]
        steady = _steady_segments(segments, means)
        first, last = _own_segments(means, steady)
        if (first, last) != (steady[0], steady[-1]):
            self.own_level = max(means[first], means[last])
        level = means[max(steady, key=lambda i: segments[i][1] - segments[i][0])]
        for index, (begin, end) in enumerate(segments):
            is_slower = means[index] > level
            if index < first:
                self.why[left[begin:end]] = "warm-up" if is_slower else "fast start"
            elif index > last:
                self.why[left[begin:end]] = "slow end" if is_slower else "fast end"

    def leave_out_slow_ends(self) -> float:
        """Return the limit in seconds per token."""
        left = self.left()
        limit = max(_limit(self.costs[left]), (1 + RELATIVE_TOLERANCE) * self.own_level)
        slow = self.costs[left] > limit
        self.why[left[: int(np.argmin(slow))]] = "warm-up"
        self.why[left[len(left) - int(np.argmin(slow[::-1])) :]] = "slow end"
        return limit

    def leave_out_fading(self) -> None:
        left = self.left()
        if len(left) < MIN_FADING or self.own_level:
            return
        costs = held(self.costs[left])
        front, back = _fading(costs), _fading(costs[::-1])
        if front + back <= len(left) // 2:
            self.why[left[:front]] = "warm-up"
            self.why[left[len(left) - back :]] = "slow end"

    def leave_out_transitions(self) -> None:
        """Leave out what lies between warm-up and window, and between window and slow end, and is a little of both."""
        left = self.left()
        if len(left) < MIN_FADING // 2:
            return
        costs = self.costs[left]
        front = self.costs[: left[0]] - median(costs)
        if len(front) > 1 and front[0] > 0 and front[-1] < front[0] / 2:
            self.why[left[: min(-(-len(front) // 2), len(left) // 4)]] = "warm-up"
        if self.why[-1] == "slow end" and costs[-1] > np.quantile(costs, 0.75):
            self.why[left[-1]] = "slow end"

    def result(self, limit: float) -> Window:
        left = self.left()
        tail = np.flatnonzero(np.isin(self.why, ("slow end", "fast end")))
        return Window(
            spans=self.spans[left] if len(left) < len(self.spans) else self.spans,
            excluded=self._excluded(),
            limit_seconds_per_token=limit,
            tail=self.spans[tail] if len(tail) else None,
        )

    def _excluded(self) -> tuple[Excluded, ...]:
        """Return neighbours that were left out for the same reason as one, in the order of the iterations."""
        out = np.flatnonzero(self.why != "")
        if not len(out):
            return ()
        firsts, lasts, why = (
            self.spans.first_iterations[out],
            self.spans.records.column("iteration")[out],
            self.why[out],
        )
        is_new = (why[1:] != why[:-1]) | (firsts[1:] != lasts[:-1] + 1)
        begins = np.concatenate([[0], np.flatnonzero(is_new) + 1])
        ends = np.append(begins[1:], len(out)) - 1
        return tuple(
            Excluded(int(firsts[begin]), int(lasts[end]), str(why[begin]))
            for begin, end in zip(begins, ends, strict=True)
        )


def _is_alone_and_repeated(spans: Spans) -> bool:
    """Say whether the first line stands for one iteration and the second may hold it again: its sum is at least as long."""
    number, seconds = spans.num_iterations, spans.seconds
    return bool(number[0] == 1 and seconds[1] / number[1] * (number[1] + 1) >= seconds[0])


def _implausibly_fast(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    typical = median(costs)
    fast = costs * IMPLAUSIBLE_FACTOR <= typical
    late = np.concatenate([[False], costs > LATE_FACTOR * typical, [False]])
    return fast & ~late[:-2] & ~late[2:] if 2 * int(fast.sum()) < len(costs) else np.zeros_like(fast)


def _steady_segments(segments: list[tuple[int, int]], means: list[float]) -> list[int]:
    """Return the segments, in order, of the level that holds most intervals; of two that hold as many, the slower one."""
    best: list[int] = []
    best_size = (0, 0.0)
    for mean in means:
        alike = [i for i, other in enumerate(means) if abs(other - mean) <= MIN_STEP * mean]
        size = (sum(segments[i][1] - segments[i][0] for i in alike), mean)
        if size > best_size:
            best, best_size = alike, size
    return best


def _own_segments(means: list[float], steady: list[int]) -> tuple[int, int]:
    """Return the first and the last segment of any level that lies between the first and the last steady one."""
    inside = means[steady[0] : steady[-1] + 1]
    own = [i for i, mean in enumerate(means) if any(abs(mean - other) <= MIN_STEP * other for other in inside)]
    return own[0], own[-1]


def _limit(costs: NDArray[np.float64]) -> float:
    typical = median(costs)
    spread = median(np.abs(costs - typical))
    return typical + max(RELATIVE_TOLERANCE * typical, SPREAD_FACTOR * spread)


def _fading(costs: NDArray[np.float64]) -> int:
    """Return how many values at the front are slower than the rest and fade into it, at most half of them; 0 for none."""
    number = len(costs)
    cut = np.arange(number // 2 + 1)
    count = number - cut
    sums, squares = np.cumsum(costs[::-1])[::-1][cut], np.cumsum(costs[::-1] ** 2)[::-1][cut]
    errors = (squares - sums**2 / count) / count**2
    best = int(np.argmin(errors))
    if not best:
        return 0
    rest = scatter_of(costs[best:])
    inflation = (number - best) / rest.num_effective
    error = math.sqrt(rest.variance * inflation / best)
    # Without its slowest value: a single stall is no fading.
    front = np.sort(costs[:best])[: max(best - 1, 1)].mean()
    return best if front - costs[best:].mean() > FADING_T * error else 0
