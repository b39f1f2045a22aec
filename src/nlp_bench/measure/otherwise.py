"""By what else a log says, how long the run takes: what is too little for a contradiction may yet break a limit.

The tolerances of `reconcile` are for honest logs whose programs take their rates and their times of day with another clock. A limit that is
kept by the logged times alone, and not by these, is not proven.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.record import Attempt
from nlp_bench.measure.contradiction import Otherwise
from nlp_bench.measure.reconcile import MIN_ATTEMPT, Statements
from nlp_bench.measure.restated import WORDS, half_unit, restated
from nlp_bench.measure.sizes import sizes_of
from nlp_bench.measure.wall_clock import slower_by_clock

GROSS = 0.5
"""A rate that is less than such a share of what it should be is in another unit, or a contradiction."""
START = 4
"""One in so many lines of another start is its warm-up."""


def otherwise(said: Statements) -> tuple[Otherwise, ...]:
    """Return the statements by which the run takes longer than its steady time."""
    return tuple(each for each in _statements(said) if each.slower > 1)


def _statements(said: Statements) -> Iterator[Otherwise]:
    measured = said.measured
    window, sizes = measured.window.spans, measured.sizes
    if sizes.has_times and (clock := slower_by_clock(window, said.log, is_ours=said.is_ours)):
        yield Otherwise(words="the times of day of its lines", slower=clock)
    for field in restated(said.attempt.records, sizes):
        if field.is_absolute and GROSS < field.high < 1:
            yield Otherwise(words=f"the {WORDS[field.name]} of its lines", slower=1 / field.high)
    if sizes.has_times:
        yield Otherwise(words="what the rounding of its times may hide", slower=_rounded(window.elapsed_s))
        alike = float(window.elapsed_s.sum() / (window.num_tokens / window.num_iterations).sum())
        yield Otherwise(words="its lines, each counted as many iterations,", slower=alike * measured.steady)
    yield from _attempts(said)


def _rounded(times: NDArray[np.float64]) -> float:
    """Return the greatest mean that the printed times may stand for by the mean that they have.

    Times that scatter less than they are rounded lie on one side of what is printed; else the rounding evens out.
    """
    half = half_unit(times)
    return 1 + half / float(times.mean()) if len(times) > 1 and float(times.std()) < half else 1.0


def _attempts(said: Statements) -> Iterator[Otherwise]:
    """Yield what the other starts of the training take in the mean, the short ones together: stalls are in it."""
    ours = _mean([said.attempt], said)
    short = [other for other in said.others if len(other.records) < MIN_ATTEMPT]
    for other in said.others:
        if len(other.records) >= MIN_ATTEMPT:
            yield from _of_attempts(ours, [other], said)
    yield from _of_attempts(ours, short, said)


def _of_attempts(ours: float | None, others: list[Attempt], said: Statements) -> Iterator[Otherwise]:
    theirs = _mean(others, said)
    if ours and theirs:
        lines = ", ".join(str(int(other.records.numbers[0])) for other in others[:3])
        yield Otherwise(words=f"another start of this training in the log (from line {lines})", slower=theirs / ours)


def _mean(attempts: list[Attempt], said: Statements) -> float | None:
    """Return the mean of seconds per token of the lines behind the warm-up of each start, None where they are too few."""
    costs = [np.empty(0)]
    for attempt in attempts:
        sizes = sizes_of(attempt, said.overrides)
        with np.errstate(divide="ignore", invalid="ignore"):
            costs.append((sizes.elapsed_s / sizes.tokens)[max(1, len(attempt.records) // START) :])
    known = np.concatenate(costs)
    known = known[np.isfinite(known) & (known > 0)]
    return float(known.mean()) if len(known) >= MIN_ATTEMPT else None
