"""Simulated runs whose true steady rate is known: autocorrelated noise, warm-up, throttling, stalls, differences between runs."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.record import Attempt, Records
from nlp_bench.measure.sizes import Overrides, sizes_of
from nlp_bench.measure.throughput import Throughput, measure_records
from nlp_bench.measure.window import LogConventions

TRUE_S = 5.0  # seconds of a steady iteration of every simulated machine
BATCH, SEQUENCE = 96, 2048
TRUE_RATE = BATCH * SEQUENCE / TRUE_S  # tokens per second of every simulated machine


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a kind of run is made of; shares are of the steady time."""

    name: str  # what the table calls it
    iterations: int = 500  # iterations of a run
    log_interval: int = 1  # iterations per line of the log
    scatter: float = 0.02  # standard deviation of one iteration
    autocorrelation: float = 0.0  # of neighbouring iterations
    second_order: float = 0.0
    """Weight of the iteration before the last, beside `autocorrelation` as that of the last: a process of second order."""
    hurst: float = 0.5
    """Above 0.5: noise with a long memory (fractional Gaussian noise with this exponent), in place of the others."""
    warm_up: bool = False
    """A first iteration of 2 to 10 times the time, and a front that fades with a constant of 1 to 8 iterations."""
    throttling: bool = False  # 5 to 20 % slower from a moment in the last quarter on, to the end
    fast_start: bool = False
    """5 to 20 % faster until a moment in the second tenth to third: a GPU that is not throttled yet."""
    stalls: float = 0.0
    """Share of iterations that take 1.5 to 2.5 times as long; the truth holds them, as the steady value does."""
    between_runs: float = 0.0  # standard deviation of the steady time between runs


def times(kind: Kind, dice: np.random.Generator) -> NDArray[np.float64]:
    number = kind.iterations
    level = TRUE_S * (1 + kind.between_runs * dice.standard_normal())
    seconds = 1 + kind.scatter * _noise(number, kind, dice)
    if kind.fast_start:
        seconds[: int(number * dice.uniform(0.1, 0.33))] *= 1 - dice.uniform(0.05, 0.2)
    if kind.throttling:
        seconds[int(number * dice.uniform(0.75, 0.97)) :] *= 1 + dice.uniform(0.05, 0.2)
    if kind.stalls:
        is_stalled = dice.random(number) < kind.stalls
        seconds[is_stalled] *= dice.uniform(1.5, 2.5, int(is_stalled.sum()))
        seconds /= 1 + kind.stalls
    if kind.warm_up:
        seconds += dice.uniform(0.1, 1) * np.exp(-np.arange(number) / dice.uniform(1, 8))
        seconds[0] += dice.uniform(1, 9)
    return np.asarray(level * np.maximum(seconds, 0.1))


def measured(kind: Kind, dice: np.random.Generator) -> Throughput:
    """Simulate one run, write its lines as Megatron-LM does, and measure them."""
    return throughput_of(logged_of(times(kind, dice), kind.log_interval), kind.log_interval)


def logged_of(seconds: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """Return the mean of each interval of `step` iterations with four decimals, as the log prints it."""
    return np.round(seconds[: len(seconds) // step * step].reshape(-1, step).mean(axis=1), 4)


def throughput_of(logged: NDArray[np.float64], step: int) -> Throughput:
    """Measure a log with a line every `step` iterations that states the seconds of an iteration as `logged`."""
    number = len(logged)
    columns = {
        "iteration": step * np.arange(1.0, number + 1),
        "elapsed_s": logged,
        "global_batch_size": np.full(number, float(BATCH)),
    }
    places = np.arange(number)
    attempt = Attempt(records=Records(columns, places, places, np.ones(number, dtype=np.bool_)))
    sizes = sizes_of(attempt, Overrides(sequence_length=SEQUENCE))
    return measure_records(attempt.records, sizes, LogConventions(log_interval=step))


BURN_IN = 200  # values of an autoregressive process that are thrown away, until it has forgotten its start


def _noise(number: int, kind: Kind, dice: np.random.Generator) -> NDArray[np.float64]:
    if kind.hurst != 0.5:
        return _long_memory(number, kind.hurst, dice)
    one, two = kind.autocorrelation, kind.second_order
    if not one and not two:
        return dice.standard_normal(number)
    variance = (1 - two) / ((1 + two) * ((1 - two) ** 2 - one**2))  # of the process whose shocks have variance 1
    values, last, before = [], 0.0, 0.0
    for shock in dice.standard_normal(number + BURN_IN).tolist():
        last, before = one * last + two * before + shock, last
        values.append(last)
    return np.array(values[BURN_IN:]) / math.sqrt(variance)


def _long_memory(number: int, hurst: float, dice: np.random.Generator) -> NDArray[np.float64]:
    """Return fractional Gaussian noise by circulant embedding (Davies and Harte 1987, Biometrika 74)."""
    lag = np.arange(number)
    covariance = ((lag + 1) ** (2 * hurst) - 2 * lag ** (2 * hurst) + np.abs(lag - 1) ** (2 * hurst)) / 2
    spectrum = np.maximum(np.fft.fft(np.concatenate([covariance, [0], covariance[:0:-1]])).real, 0)
    size = len(spectrum)
    shocks = dice.standard_normal(size) + 1j * dice.standard_normal(size)
    return np.asarray(np.fft.fft(shocks * np.sqrt(spectrum / size)).real[:number])
