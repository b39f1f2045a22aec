"""The steady window: which logged intervals count, and why the others do not.

The rule, applied to seconds per token of each logged interval:
1. The interval that holds iteration 1 is warm-up (allocation, communicators, kernel selection), unless it is the only one.
2. Typical = the median of the rest; too slow = above typical + max(5 %, 3 * 1.4826 * median absolute deviation).
3. Intervals are dropped from the front while they are too slow ("warm-up"), and from the back likewise ("slow end").
Nothing is dropped inside, and nothing for being fast: a single stall within the window belongs to the machine.
By step 2 at most half of the rest can be dropped. 1.4826 makes the deviation that of a normal distribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nlp_bench.measure.span import Span
from nlp_bench.measure.summary import median

RELATIVE_TOLERANCE = 0.05
SPREAD_FACTOR = 3 * 1.4826


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """Neighbouring intervals that do not count, for one reason."""

    first_iteration: int
    """First iteration left out, counted from 1."""
    last_iteration: int
    """Last iteration left out."""
    why: str
    """"warm-up" or "slow end"."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The steady window of one attempt."""

    spans: tuple[Span, ...]
    """The intervals that count, at least one."""
    excluded: tuple[Excluded, ...]
    """What was left out before and after."""
    limit_seconds_per_token: float
    """Above this an interval at either end was too slow."""

    @property
    def first_iteration(self) -> int:
        """The first iteration that counts."""
        return self.spans[0].first_iteration

    @property
    def last_iteration(self) -> int:
        """The last iteration that counts."""
        return self.spans[-1].record.iteration

    @property
    def num_tokens(self) -> int:
        """Tokens of the window."""
        return sum(span.num_tokens for span in self.spans)

    @property
    def seconds(self) -> float:
        """Time of the window."""
        return sum(span.seconds for span in self.spans)

    def to_json(self) -> dict[str, object]:
        """Return the `window` object of nlp-bench/report/1."""
        return {
            "first_iteration": self.first_iteration,
            "last_iteration": self.last_iteration,
            "num_records": len(self.spans),
            "excluded": [{"iterations": [e.first_iteration, e.last_iteration], "why": e.why} for e in self.excluded],
        }


def find_window(spans: Sequence[Span]) -> Window:
    """Apply the rule of this module to `spans`, which is not empty and in the order of the iterations."""
    costs = [span.seconds_per_token for span in spans]
    start, end = int(spans[0].first_iteration == 1 and len(spans) > 1), len(spans)
    limit = _limit(costs[start:])
    while costs[start] > limit:
        start += 1
    while costs[end - 1] > limit:
        end -= 1
    excluded = [*_excluded(spans[:start], "warm-up"), *_excluded(spans[end:], "slow end")]
    return Window(spans=tuple(spans[start:end]), excluded=tuple(excluded), limit_seconds_per_token=limit)


def _limit(costs: Sequence[float]) -> float:
    typical = median(costs)
    spread = median([abs(cost - typical) for cost in costs])
    return typical + max(RELATIVE_TOLERANCE * typical, SPREAD_FACTOR * spread)


def _excluded(spans: Sequence[Span], why: str) -> list[Excluded]:
    if not spans:
        return []
    return [Excluded(first_iteration=spans[0].first_iteration, last_iteration=spans[-1].record.iteration, why=why)]
