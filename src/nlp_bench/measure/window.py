"""The steady window: which logged intervals count, and why the others do not.

The rule, applied to seconds per token of each logged interval:
1. The interval that holds the first iteration is warm-up (allocation, communicators, kernel selection), unless it is the only
   one; so is each interval at the front that takes three times as long as the next one, up to the half of the log.
2. An interval that is four or more times as fast as the median of the rest, and has no slow neighbour that makes up for it (as where a
   program prints late), is no measurement but a dispatch that returned before the work was done, or a torn number: it is left
   out as "implausibly fast", unless such intervals are the half of the log or more.
3. Typical = the median of what is left; too slow = above typical + max(5 %, 3 * 1.4826 * median absolute deviation).
4. Intervals are dropped from the front while they are too slow ("warm-up"), and from the back likewise ("slow end").
Nothing else is dropped: a single stall within the window belongs to the machine.
By step 3 at most half of the rest can be dropped. 1.4826 makes the deviation that of a normal distribution.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nlp_bench.measure.span import Spans

RELATIVE_TOLERANCE = 0.05
SPREAD_FACTOR = 3 * 1.4826
IMPLAUSIBLE_FACTOR = 4.0
SETTLING_FACTOR = 3.0
LATE_FACTOR = 1.25


@dataclass(frozen=True)
class Excluded:
    """Neighbouring intervals that do not count, for one reason."""

    first_iteration: int
    """First iteration left out, as the log counts."""
    last_iteration: int
    """Last iteration left out."""
    why: str
    """"warm-up", "slow end" or "implausibly fast"."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The steady window of one attempt."""

    spans: Spans
    """The intervals that count, at least one."""
    excluded: tuple[Excluded, ...]
    """What was left out."""
    limit_seconds_per_token: float
    """Above this an interval at either end was too slow."""

    @property
    def first_iteration(self) -> int:
        """The first iteration that counts."""
        return int(self.spans.first_iterations[0])

    @property
    def last_iteration(self) -> int:
        """The last iteration that counts."""
        return int(self.spans.records[-1].iteration)

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


def find_window(spans: Spans, counts_from: int = 1) -> Window:
    """Apply the rule of this module to `spans`, which is not empty and in the order of the iterations."""
    start = int(spans.first_iterations[0] <= counts_from and len(spans) > 1)
    start = _settled(spans.seconds_per_token, start)
    excluded = _excluded(spans[:start], "warm-up")
    spans = spans[start:]
    fast = _implausibly_fast(spans.seconds_per_token)
    if fast.any():
        excluded += [
            e for index in np.flatnonzero(fast) for e in _excluded(spans[index : index + 1], "implausibly fast")
        ]
        spans = spans[~fast]
    limit = _limit(spans.seconds_per_token)
    slow = spans.seconds_per_token > limit
    begin, end = int(np.argmin(slow)), len(spans) - int(np.argmin(slow[::-1]))
    excluded += [*_excluded(spans[:begin], "warm-up"), *_excluded(spans[end:], "slow end")]
    return Window(spans=spans[begin:end], excluded=_joined(excluded), limit_seconds_per_token=limit)


def _implausibly_fast(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    typical = np.median(costs)
    fast = costs * IMPLAUSIBLE_FACTOR <= typical
    late = np.concatenate([[False], costs > LATE_FACTOR * typical, [False]])
    return fast & ~late[:-2] & ~late[2:] if 2 * int(fast.sum()) < len(costs) else np.zeros_like(fast)


def _settled(costs: NDArray[np.float64], start: int) -> int:
    """Return where the front no longer falls steeply; at least half of the log is kept, or its last interval."""
    latest = max(start, min(len(costs) // 2 + 1, len(costs) - 1))
    while start < latest and costs[start] > SETTLING_FACTOR * costs[start + 1]:
        start += 1
    return start


def _limit(costs: NDArray[np.float64]) -> float:
    typical = float(np.median(costs))
    spread = float(np.median(np.abs(costs - typical)))
    return typical + max(RELATIVE_TOLERANCE * typical, SPREAD_FACTOR * spread)


def _excluded(spans: Spans, why: str) -> list[Excluded]:
    if not len(spans):
        return []
    first, last = int(spans.first_iterations[0]), spans.records[-1].iteration
    return [Excluded(first, last, why)]


def _joined(excluded: list[Excluded]) -> tuple[Excluded, ...]:
    """Return neighbours that were left out for the same reason as one, in the order of the iterations."""
    joined: list[Excluded] = []
    for part in sorted(excluded, key=lambda e: e.first_iteration):
        last = joined[-1] if joined else None
        if last and last.why == part.why and last.last_iteration + 1 == part.first_iteration:
            joined[-1] = Excluded(last.first_iteration, part.last_iteration, part.why)
        else:
            joined.append(part)
    return tuple(joined)
