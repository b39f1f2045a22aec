"""What a log states twice and differently: rates against times, counted samples against the batch, the time of day against the clock."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.record import Attempt
from nlp_bench.measure.sizes import stated_rate
from nlp_bench.measure.throughput import Throughput

BEGINS = "the log contradicts itself"
"""How each sentence begins."""
TOLERANCE = 0.03
CLOCK_TOLERANCE, CLOCK_DIGIT_S = 0.05, 1.0
"""Lines are printed late or early by a little, and their times of day as a rule without fractions."""

Column = NDArray[np.float64]


def contradictions(attempt: Attempt, measured: Throughput) -> list[str]:
    """Return one sentence for each thing that cannot be true together with the number."""
    if not measured.sizes.has_times:
        return []
    return [f"{BEGINS}: {text}" for text in (*_rates(attempt, measured), *_samples(measured), *_clock(measured))]


def _rates(attempt: Attempt, measured: Throughput) -> Iterator[str]:
    stated, words = stated_rate(attempt, measured.sizes)
    if not np.isfinite(stated).any():
        return
    ratio = float(np.nanmedian(stated) / np.median(measured.spans.num_tokens / measured.spans.seconds))
    if abs(ratio - 1) > TOLERANCE:
        yield f"its {words} is {ratio:.4g} times what its time and batch give"


def _samples(measured: Throughput) -> Iterator[str]:
    """Hold the growth of the consumed samples against the batch of each line."""
    records = measured.spans.records
    batch, grown = records.column("global_batch_size"), _grown(records.column("consumed_samples"))
    grown = grown / _grown(records.column("iteration"))
    known = np.isfinite(batch) & (batch > 0) & np.isfinite(grown) & (grown > 0)
    if not known.any():
        return
    ratio = float(np.median(grown[known] / batch[known]))
    if abs(ratio - 1) > TOLERANCE:
        yield f"its consumed samples grow by {ratio:.4g} times the global batch size per iteration"


def _clock(measured: Throughput) -> Iterator[str]:
    """Hold the time of day of the lines against the logged times: less time than was measured cannot have passed."""
    times = _passed_and_logged(measured)
    if times is None:
        return
    passed, logged = times
    if passed < logged * (1 - CLOCK_TOLERANCE) - CLOCK_DIGIT_S:
        yield f"its lines were written within {passed:.1f} s, and their times add up to {logged:.1f} s"


def _passed_and_logged(measured: Throughput) -> tuple[float, float] | None:
    """Return the seconds between the first and the last line of the window by the time of day, and by their logged times.

    None where fewer than three lines, or not both of these, have a time of day.
    """
    spans = measured.window.spans
    stamps = spans.records.column("stamp_s")
    if len(stamps) < 3 or not np.isfinite(stamps[[0, -1]]).all():
        return None
    return float(stamps[-1] - stamps[0]), float(spans.seconds[1:].sum())


def _grown(column: Column) -> Column:
    return np.diff(column, prepend=np.nan)


def time_between(measured: Throughput) -> str | None:
    """Say how much time passed between the lines of the window that no line counts, None where that is little or not known."""
    spans, times = measured.window.spans, _passed_and_logged(measured)
    steps = _grown(spans.records.column("iteration"))
    is_gapless = bool(np.all(steps[1:] <= spans.num_iterations[1:]))
    if times is None or not is_gapless:
        return None
    passed, logged = times
    if passed <= logged * (1 + CLOCK_TOLERANCE) + 2 * CLOCK_DIGIT_S:
        return None
    return (
        f"by the time of day of its lines {passed:.1f} s passed for {logged:.1f} s of logged iterations: what lies between them "
        "(evaluation, checkpoints, logging) is not in the number"
    )
