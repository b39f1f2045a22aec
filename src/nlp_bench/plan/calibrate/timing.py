"""How long a call takes: warm-up, repetitions, median and spread."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nlp_bench.plan.calibrate.device import Device
from nlp_bench.plan.calibrate.measurement import Call

MIN_REPETITION_S = 5e-4
"""A repetition is as many calls as last so long: clocks and events resolve about a microsecond."""
MIN_REPEATS, MAX_REPEATS = 3, 100
MAX_CALLS = 10_000


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long one call takes."""

    seconds: float
    """Median over the repetitions."""
    spread: float
    """Half the distance of the quartiles / median: robust against a few disturbed repetitions."""
    repeats: int
    """Repetitions."""
    calls: int
    """Calls in each."""


def timed(call: Call, device: Device, budget_s: float, agree: Callable[[Any], Any] | None = None) -> Timing:
    """Time `call` for about `budget_s` seconds, at least MIN_REPEATS repetitions, after it was called once.

    `agree` is for several ranks that wait for each other in the call: it returns what the first one says, so that all repeat as often.
    """
    once = max(device.elapsed(call, 1, waits=agree is not None), 1e-9)
    calls = min(MAX_CALLS, max(1, round(MIN_REPETITION_S / once)))
    repeats = int(min(MAX_REPEATS, max(MIN_REPEATS, budget_s / (once * calls))))
    if agree is not None:
        calls, repeats = agree((calls, repeats))
    return summary([device.elapsed(call, calls, waits=agree is not None) / calls for _ in range(repeats)], calls)


def summary(seconds: Sequence[float], calls: int) -> Timing:
    """Return median and spread of the seconds of one call, one value per repetition (at least two)."""
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(seconds=middle, spread=(high - low) / 2 / middle, repeats=len(seconds), calls=calls)
