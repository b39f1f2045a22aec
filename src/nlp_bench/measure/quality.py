"""How good a number is, in one word: a field of every output beside the number."""

from enum import Enum
from typing import TYPE_CHECKING

from nlp_bench.measure.series import MIN_VALUES

if TYPE_CHECKING:
    from nlp_bench.measure.throughput import Throughput

GOOD_HALF_WIDTH, FAIR_HALF_WIDTH = 0.01, 0.05  # shares of the steady rate


class Quality(str, Enum):
    """What the steady rate of one run is worth; a run without a steady rate has none."""

    GOOD = "GOOD"
    FAIR = "FAIR"
    SHORT = "SHORT"
    NOISY = "NOISY"
    DRIFTING = "DRIFTING"

    @property
    def rule(self) -> str:
        """When the word holds, in one sentence."""
        return _RULES[self]


_RULES = {
    Quality.GOOD: "The half width of the 95 % interval is at most 1 %.",
    Quality.FAIR: "The half width is at most 5 %.",
    Quality.SHORT: f"Fewer than {MIN_VALUES} intervals count, or the log prints too few digits: run longer.",
    Quality.NOISY: f"The half width is above 5 % with {MIN_VALUES} intervals or more: the machine was busy, repeat.",
    Quality.DRIFTING: "The speed changes along the window, or the run ends slower than the window: run longer.",
}


def quality_of(measured: "Throughput") -> Quality:
    """Return the word for one run, by its drift, its half width and its number of intervals."""
    steadiness, number, estimate = measured.steadiness, measured.window.num_records, measured.estimate
    if steadiness.drift is not None or steadiness.slowdown is not None:
        return Quality.DRIFTING
    if estimate is None:
        return Quality.SHORT
    half_width = estimate.relative_half_width()
    if half_width <= GOOD_HALF_WIDTH:
        return Quality.GOOD
    if number < MIN_VALUES:
        return Quality.SHORT
    return Quality.FAIR if half_width <= FAIR_HALF_WIDTH else Quality.NOISY
