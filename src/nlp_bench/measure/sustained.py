"""The sustained rate: tokens over the wall clock from the first counted iteration to the last, nothing left out.

Where the lines of the log have times of day, the clock is theirs, so that evaluations, checkpoints and whatever lies between the
logged iterations count; else it is the sum of the logged times. It is never less than that sum. Iterations that no line stands for
took their part of the wall clock, and count with the tokens of the others.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.measure.estimate import Estimate
from nlp_bench.measure.interval import estimate_of
from nlp_bench.measure.span import Spans
from nlp_bench.measure.summary import median

STAMPS, LOGGED = "time of day of the lines", "sum of the logged times"
FINE = 0.02
"""Times of day whose step is at most this share of an interval tell how the intervals scatter."""


@dataclass(frozen=True, kw_only=True)
class Sustained:
    """Tokens over wall clock."""

    tokens_per_second: float
    """Of the whole machine."""
    estimate: Estimate | None
    """Seconds per token with their uncertainty, None where that cannot be given."""
    first_iteration: int
    """First iteration that counts, the same as that of the steady window."""
    last_iteration: int
    """Last iteration of the log."""
    seconds: float
    """Wall clock."""
    clock: str
    """STAMPS or LOGGED."""

    @property
    def ci95(self) -> tuple[float, float] | None:
        """95 % interval in tokens per second, lowest first; None where it cannot be given."""
        return self.estimate.interval() if self.estimate else None

    def to_json(self, tokens: int) -> dict[str, Any]:
        """Return the `sustained` object of nlp-bench/report/1, with the time of a training on `tokens` tokens."""
        interval = self.ci95
        return {
            "tokens_per_second": self.tokens_per_second,
            "ci95": list(interval) if interval else None,
            "time_to_report_s": tokens / self.tokens_per_second,
            "time_to_report_ci95_s": [tokens / interval[1], tokens / interval[0]] if interval else None,
            "first_iteration": self.first_iteration,
            "last_iteration": self.last_iteration,
            "wall_clock_s": self.seconds,
            "clock": self.clock,
        }


def sustained_of(spans: Spans, first_iteration: int) -> Sustained:
    """Return the sustained rate of `spans` from the interval that begins with `first_iteration`."""
    start = int(np.argmax(spans.first_iterations >= first_iteration))
    part = spans[start:]
    logged = float(part.seconds.sum())
    ticks = _ticks(spans, start)
    wall = float(ticks[-1] - ticks[0])
    has_stamps = bool(wall >= logged)  # NaN is not
    seconds, num_tokens = logged, float(part.num_tokens.sum())
    if has_stamps:
        last, covered = float(part.records.column("iteration")[-1]), float(part.num_iterations.sum())
        seconds, num_tokens = wall, num_tokens * (last - float(part.first_iterations[0]) + 1) / covered
        steps = np.diff(ticks)
        resolution = part.records.stamp_resolution_s
        is_fine = bool(np.all(steps > 0)) and resolution is not None and resolution <= FINE * median(steps)
        part = replace(part, seconds=steps if is_fine else part.seconds * (wall / logged))
    estimate = estimate_of(part)
    if estimate:  # of the mean of the lines; gaps between them belong to the wall clock
        scale = seconds / num_tokens / estimate.seconds_per_token
        estimate = replace(
            estimate, seconds_per_token=seconds / num_tokens, standard_error=estimate.standard_error * scale
        )
    return Sustained(
        tokens_per_second=num_tokens / seconds,
        estimate=estimate,
        first_iteration=first_iteration,
        last_iteration=int(spans.records.column("iteration")[-1]),
        seconds=seconds,
        clock=STAMPS if has_stamps else LOGGED,
    )


def _ticks(spans: Spans, start: int) -> NDArray[np.float64]:
    """Return the time of day at which the interval `start` begins, and at which it and each after it ends; NaN where it is not known."""
    stamps = spans.records.column("stamp_s")
    begin = stamps[start - 1] if start else stamps[0] - spans.seconds[0]
    return np.concatenate([[begin], stamps[start:]])
