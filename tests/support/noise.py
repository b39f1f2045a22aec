"""Windows cut from step times of long real trainings, where they lie beside the checkout, and noise made on their residuals."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from support.simulated import TRUE_S, logged_of

Column = NDArray[np.float64]
PLACE = Path(
    os.environ.get("NLP_BENCH_NOISE") or Path(__file__).resolve().parents[3] / "shared/noise/real_steps_ms.npz"
)
"""Milliseconds of every step of long runs, one array each, called KIND_NUMBER."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    name: str  # what the table calls it
    iterations: int  # iterations of a window
    log_interval: int = 1  # iterations per line
    runs: str | None = None  # arrays that begin so are cut; None for noise that is made
    state: float = 0.0  # a second state that is so much slower, each lasting 200 iterations in the mean
    storm: float = 0.0  # twenty iterations that are so much slower, beginning once in 300


KINDS = (
    *(
        Noise(name=f"{words}, {iterations}/{step}", runs=runs, iterations=iterations, log_interval=step)
        for words, runs, sizes in (
            ("even run, rare clusters of slow steps", "scaleup", ((500, 1), (500, 10), (1000, 1), (200, 1))),
            ("a data stall in 1 % of the steps", "stall", ((200, 1), (150, 10), (500, 1), (500, 10))),
        )
        for iterations, step in sizes
    ),
    *(
        Noise(name=f"two states 5 % apart, dwell 200, 500/{step}", iterations=500, log_interval=step, state=0.05)
        for step in (1, 10)
    ),
    *(
        Noise(name=f"storms of 20 iterations, +30 %, 500/{step}", iterations=500, log_interval=step, storm=0.3)
        for step in (1, 10)
    ),
)


def runs() -> dict[str, Column]:
    """Return seconds per step of each run, none where the file does not exist."""
    if not PLACE.exists():
        return {}
    with np.load(PLACE) as arrays:
        return {name: arrays[name].astype(np.float64) / 1000 for name in arrays}


def windows(kind: Noise, count: int, dice: np.random.Generator) -> Iterator[tuple[Column, float]]:
    """Yield the logged times of `count` windows, four decimals each, with the true mean: that of the whole run."""
    known = runs()
    cut = [times for name, times in known.items() if kind.runs and name.startswith(kind.runs)]
    even = next(times for name, times in known.items() if name.startswith("scaleup"))
    residuals = even[even < 1.05 * np.median(even)] / np.median(even)
    for _ in range(count):
        times = cut[dice.integers(len(cut))] if cut else residuals
        start = int(dice.integers(len(times) - kind.iterations + 1))
        window, truth = times[start : start + kind.iterations], float(times.mean())
        if not cut:
            slower, share = _made(kind, dice)
            window, truth = TRUE_S * window * slower, TRUE_S * truth * share
        yield logged_of(window, kind.log_interval), truth


def _made(kind: Noise, dice: np.random.Generator) -> tuple[Column, float]:
    """Return the factor of each iteration, and its mean in the long run."""
    number, factors = kind.iterations, np.ones(kind.iterations)
    if kind.state:
        is_slow, at = bool(dice.integers(2)), 0
        while at < number:
            lasts = int(dice.geometric(1 / 200))
            factors[at : at + lasts] += kind.state * is_slow
            is_slow, at = not is_slow, at + lasts
        return factors, 1 + kind.state / 2
    for begin in np.flatnonzero(dice.random(number + 19) < 1 / 300) - 19:
        factors[max(begin, 0) : max(begin + 20, 0)] = 1 + kind.storm
    return factors, 1 + kind.storm * (1 - (1 - 1 / 300) ** 20)
