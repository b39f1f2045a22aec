"""Runs of known truth that stop when their interval is narrow enough: by the confidence sequence, and by a fixed interval."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from support.simulated import BATCH, SEQUENCE, TRUE_S, Kind, logged_of, throughput_of, times

from nlp_bench.measure.anytime import WARM_UP, ConfidenceSequence
from nlp_bench.measure.estimate import student_t
from nlp_bench.measure.series import scatter_of

MOST = 6000
FIRST_LOOK = 16  # lines before which neither is looked at
Draw = Callable[[np.random.Generator], NDArray[np.float64]]
"""Makes the seconds of each iteration of one run; their true mean is 1."""
SIMULATED = {
    "independent noise of 2 %": {},
    "independent noise of 10 %": {"scatter": 0.1},
    "autocorrelation 0.3, 5 %": {"scatter": 0.05, "autocorrelation": 0.3},
    "autocorrelation 0.6, 5 %": {"scatter": 0.05, "autocorrelation": 0.6},
    "second order, 0.5 and 0.3, 5 %": {"scatter": 0.05, "autocorrelation": 0.5, "second_order": 0.3},
    "rare stalls: 2 % of iterations": {"stalls": 0.02},
    "rare stalls: 0.5 % of iterations": {"stalls": 0.005},
    "rare stalls: 0.1 % of iterations": {"stalls": 0.001},
    "long memory, Hurst exponent 0.7, 5 %": {"scatter": 0.05, "hurst": 0.7},
    "fast start (10 to 33 % of the run)": {"fast_start": True, "iterations": 1500},
}
WITH_STATES = {
    "storms of 20 iterations, +30 %, 5 % of the time": (0.3, 20.0, 0.05),
    "two states, +3 %, 200 iterations each": (0.03, 200.0, 0.5),
}
"""Slower by, iterations of the slow state, its share of the time."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    iterations: int | None  # after which it stopped; None where it did not
    missed: bool  # whether the truth was outside the interval then
    ever: bool  # whether it was outside at any look until then


def anytime(seconds: NDArray[np.float64], within: float, log_interval: int) -> Stop:
    """Look at the confidence sequence after every line."""
    sequence, ever = ConfidenceSequence(within, log_interval), False
    for iteration, elapsed_s in lines(seconds, log_interval):
        bound = sequence.bound() if sequence.add(iteration, elapsed_s) else None
        if bound is None:
            continue
        missed = abs(1 / bound.seconds_per_iteration - 1) > bound.half_width
        ever |= missed
        if bound.is_enough:
            return Stop(iterations=iteration, missed=missed, ever=ever)
    return Stop(iterations=None, missed=False, ever=ever)


def fixed(seconds: NDArray[np.float64], within: float, log_interval: int) -> Stop:
    """Look at Student's t on the effective number of lines after every line: the interval of one look, looked at often."""
    logged, ever = np.array([elapsed_s for _, elapsed_s in lines(seconds[WARM_UP:], log_interval)]), False
    number = FIRST_LOOK
    while number <= len(logged):
        part = logged[:number]
        scatter, mean = scatter_of(part), float(part.mean())
        error = math.sqrt(scatter.variance / scatter.num_effective)
        half = student_t(0.975, round(max(scatter.num_effective - 1, 1))) * error / mean
        missed = abs(1 / mean - 1) > half
        ever |= missed
        if half <= within:
            return Stop(iterations=WARM_UP + number * log_interval, missed=missed, ever=ever)
        number += max(1, number // 100)  # beyond 200 lines each hundredth part more: it favours this rule a little
    return Stop(iterations=None, missed=False, ever=ever)


def reported(seconds: NDArray[np.float64], iterations: int, log_interval: int) -> tuple[bool, bool, float]:
    """Return what the report makes of a run that stopped: whether its interval misses the truth, whether it is too fast, half its width."""
    logged = np.array([elapsed_s for _, elapsed_s in lines(seconds[:iterations], log_interval)])
    rate, interval = float(BATCH * SEQUENCE), throughput_of(logged, log_interval).ci95
    if interval is None:
        return False, False, math.inf
    return not interval[0] <= rate <= interval[1], interval[0] > rate, (interval[1] - interval[0]) / 2 / rate


def lines(seconds: NDArray[np.float64], log_interval: int) -> Iterator[tuple[int, float]]:
    """Return what the log would hold: the last iteration and the mean of each line, with four decimals."""
    means = logged_of(seconds, log_interval)
    return ((log_interval * place, float(mean)) for place, mean in enumerate(means, 1))


def simulated(name: str) -> Draw:
    """Return runs of a kind of `SIMULATED` or `WITH_STATES`."""
    if name in WITH_STATES:
        return with_states(*WITH_STATES[name])
    kind = Kind(name=name, **{"iterations": MOST, **SIMULATED[name]})
    return lambda dice: times(kind, dice) / TRUE_S


def with_states(slower: float, dwell: float, share: float) -> Draw:
    """Return runs of a machine with a slow state (`slower` than the other) that lasts `dwell` iterations, a `share` of all."""

    def draw(dice: np.random.Generator) -> NDArray[np.float64]:
        steps, place = np.ones(MOST), 0
        is_slow = bool(dice.random() < share)
        while place < MOST:
            length = 1 + int(dice.exponential(dwell if is_slow else dwell * (1 - share) / share))
            steps[place : place + length] += slower * is_slow
            place, is_slow = place + length, not is_slow
        return np.asarray(steps * (1 + 0.005 * dice.standard_normal(MOST)) / (1 + slower * share))

    return draw


def real(steps: NDArray[np.float64]) -> Draw:
    """Return windows of one real run."""
    whole = np.resize(steps / steps.mean(), max(len(steps), MOST))
    return lambda dice: np.roll(whole, -int(dice.integers(len(steps))))[:MOST]
