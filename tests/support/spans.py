"""Logged intervals out of bare times."""

from collections.abc import Sequence

import numpy as np

from nlp_bench.logs.record import ROW, LogRecord, Records, stored
from nlp_bench.measure.sizes import Spans

NOISE = np.random.default_rng(7).standard_normal(400) * 0.01


def records_of(records: Sequence[LogRecord]) -> Records:
    """Make columns of single records."""
    given = [name for name in ROW if any(getattr(record, name) is not None for record in records)]
    columns = {name: np.array([stored(name, getattr(record, name)) for record in records]) for name in given}
    places = np.array([(record.offset, record.line_number) for record in records])
    return Records(columns, places[:, 0], places[:, 1])


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
