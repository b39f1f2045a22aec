"""Logged intervals out of bare times."""

import numpy as np

from nlp_bench.logs.record import Records
from nlp_bench.measure.sizes import Spans

NOISE = np.random.default_rng(7).standard_normal(400) * 0.01


def spans(seconds: "np.typing.ArrayLike", iterations: "np.typing.ArrayLike | None" = None) -> Spans:
    times = np.asarray(seconds, dtype=np.float64)
    number = len(times)
    ends = np.arange(1.0, number + 1) if iterations is None else np.asarray(iterations, dtype=np.float64)
    places = 100 * np.arange(number)
    covered = np.diff(ends, prepend=0)
    return Spans(
        records=Records({"iteration": ends}, places, np.arange(number), np.ones(number, dtype=np.bool_)),
        num_iterations=covered,
        num_tokens=covered,
        seconds=times * covered,
    )
