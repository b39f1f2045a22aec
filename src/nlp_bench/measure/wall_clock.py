"""The times of day of the lines against the times that they log, in both directions.

A line is written when its interval is over, a little late at times. So between two lines no less time passes than the second one logs,
and what passes more is evaluation, a checkpoint, or time that the program does not count. A program whose clock runs from line to line
loses nothing in between: where more time passes from line to line all along the log, its times are too small.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nlp_bench.immutable import immutable
from nlp_bench.measure.contradiction import Claims, Code, Contradiction, Weight
from nlp_bench.measure.series import median, month_steps, steps_of, zone_change
from nlp_bench.measure.sizes import Column, Spans
from nlp_bench.measure.window import MAX_MARKED

UNIFORM = 0.02
"""Share by which the time from line to line may differ from the logged one, all along the log, in addition to the resolution of the stamps."""
ROUNDED = 0.005  # share of a block that the rounding of the clock may be
FAST, PRINTED_LATE_S = 0.01, 1.0
"""Share by which less time may have passed in all, and seconds by which the first line may have been printed late."""
OUTSIDE, MUCH_OUTSIDE = 0.05, 0.10
"""Share of the wall clock between the lines, without words of an evaluation or a checkpoint, from which it is remarked, and doubted."""
MUCH_IN_WORDS = 0.30  # the same with such words: what they excuse has an end
SET_BACK, MIN_SET_BACK = 0.01, 2
"""Share of the lines, and number of them, before which a clock may be set back: what lies between them is not looked at."""
BURST, MIN_BURSTS = 0.1, 3
"""Share of its logged time before which a line comes after the one before it where both were written in one block, and blocks that show it."""
MIN_BLOCK, MAX_BLOCKS = 8, 20  # lines of a block, at least, and blocks: late lines even out within one
ONE_STALL_S = 5.0
"""Seconds that a loaded machine may hold a program up between two of a few lines: too little to call all of them wrong."""
EVALUATES_BETWEEN = frozenset({"mlperf-mllog"})
"""Forms of logs in which an evaluation lies between each two lines: MLPerf stops its blocks of training for it."""
LONG, HOLE_S = 5.0, 10.0
"""Times the usual, and seconds beyond it, from which the job may have stood still in an interval."""
STOOD_STILL = 0.8  # share of such an interval in which no recorder took a sample


@immutable
class Passed:
    """The intervals between two neighbouring lines of which both have a time of day."""

    seconds: Column  # seconds between the two lines
    logged: Column  # seconds that the second one logs
    numbers: NDArray[np.int64]  # its line number
    has_event: NDArray[np.bool_]  # whether the log speaks of an evaluation or a checkpoint between them
    resolution_s: float  # unit of the times of day
    backward: NDArray[np.int64]  # line numbers before which the clock was set back
    is_worded: bool  # whether the log speaks of them so often that its words tell nothing


def passed(spans: Spans, claims: Claims, *, may_change_zone: bool = True) -> Passed | None:
    """Return what can be compared, None where nothing can.

    Left out are gaps in the iterations, clocks that were set back, and one step of an hour, which is the change of a time zone. In a run of ours the
    words of a checkpoint are the trainer's own, however often it writes one.
    """
    stamps = spans.records.column("stamp_s")
    where = np.flatnonzero(np.isfinite(stamps))
    if len(where) < 2:
        return None
    resolution_s = 1.0 if np.all(stamps[where] == np.round(stamps[where])) else 0.0
    where, late_s = _ends_of_bursts(where, stamps, spans.seconds)
    known, resolution_s = stamps[where], resolution_s + late_s
    # Lines without a time of day belong to the next one that has it.
    logged, covered = (steps_of(np.cumsum(column)[where], np.nan) for column in (spans.seconds, spans.num_iterations))
    between = steps_of(known, np.nan)
    steps = steps_of(spans.records.column("iteration")[where], np.nan)
    is_back = between < -resolution_s
    usable = np.isfinite(between) & (steps <= covered) & ~is_back & ~month_steps(between, logged)
    if may_change_zone:
        usable &= ~zone_change(between, logged)
    if not np.any(usable | is_back):
        return None
    offsets, numbers = spans.records.offsets[where], spans.records.numbers[where]
    inside = np.searchsorted(offsets, [event.offset for event in claims.log.events])
    has_event = np.zeros(len(offsets), dtype=np.bool_)
    has_event[inside[inside < len(offsets)]] = True
    is_worded = not claims.is_ours and 2 * np.count_nonzero(has_event) > len(has_event)
    if is_worded or claims.log.dialect in EVALUATES_BETWEEN:
        has_event[:] = claims.log.dialect in EVALUATES_BETWEEN
    return Passed(
        seconds=between[usable],
        logged=logged[usable],
        numbers=numbers[usable],
        has_event=has_event[usable],
        resolution_s=resolution_s,
        backward=numbers[is_back],
        is_worded=is_worded,
    )


def _ends_of_bursts(where: NDArray[np.intp], stamps: Column, seconds: Column) -> tuple[NDArray[np.intp], float]:
    """Return those lines with a time of day whose interval ended then, and by how many seconds that may be late.

    A program whose output is a pipe writes lines by the block, and a collector stamps all of them when the block comes: the last line of
    each has ended within an interval of that, but of the last block, which comes when the program ends.
    """
    is_inside = steps_of(stamps[where]) < BURST * steps_of(np.cumsum(seconds)[where])
    if 2 * np.count_nonzero(is_inside) <= len(is_inside) or np.count_nonzero(~is_inside) < MIN_BURSTS:
        return where, 0.0
    return where[:-1][~is_inside], median(seconds)


def against_stamps(claims: Claims) -> Iterator[Contradiction]:
    """Yield what the times of day say against the logged times."""
    found = passed(claims.spans, claims)
    if found is None:
        return
    number, total, logged = len(found.seconds), float(found.seconds.sum()), float(found.logged.sum())
    if len(found.backward) > max(MIN_SET_BACK, SET_BACK * (number + len(found.backward))):
        text = f"the clock of its lines goes backward {len(found.backward)} times"
        yield Contradiction(Code.STAMPS_VS_TIME_FAST, claims.weigh(1.0), text, found.backward)
        return
    if total < logged - (FAST * logged + 2 * found.resolution_s + PRINTED_LATE_S):
        text = f"its lines were written within {total:.1f} s, and their times add up to {logged:.1f} s"
        if not found.seconds.any():
            text += (
                ": all have one time of day; if it belongs to a name before each line, give the log without that name"
            )
        yield Contradiction(Code.STAMPS_VS_TIME_FAST, claims.weigh(1.0), text)
        return
    steady = ~found.has_event
    typical, tolerance = _typical(found.seconds[steady], found.logged[steady], found.resolution_s)
    if typical > 1 + tolerance:
        is_one_stall = number < MIN_BLOCK and total - logged < ONE_STALL_S
        weight = Weight.DOUBT if found.is_worded or is_one_stall else claims.weigh(typical)
        text = f"from line to line {typical:.4g} times as much time passed as the lines log ({total:.1f} s for {logged:.1f} s)"
        yield Contradiction(Code.STAMPS_VS_TIME_SLOW, weight, text)
        return
    over = np.maximum(found.seconds - found.logged - found.resolution_s, 0.0)
    late_s = 2 * (found.resolution_s + PRINTED_LATE_S)
    outside = total - logged
    unexplained = outside - float(over[found.has_event].sum())
    is_much = unexplained > MUCH_OUTSIDE * total + late_s or outside > MUCH_IN_WORDS * total + late_s
    if is_much or outside > OUTSIDE * total + late_s:
        text = (
            f"by the time of day of its lines {total:.1f} s passed for {logged:.1f} s of logged iterations: what lies between them "
            "(evaluation, checkpoints, logging) is not in the number"
        )
        lines = found.numbers[over > max(0.0, 0.1 * outside)]
        yield Contradiction(Code.WALL_CLOCK_OUTSIDE, Weight.DOUBT if is_much else Weight.REMARK, text, lines)


def _typical(seconds: Column, logged: Column, resolution_s: float) -> tuple[float, float]:
    """Return the median over blocks of lines of passed / logged time, and how far from 1 honest times may be."""
    if not len(seconds):
        return 1.0, 0.0
    num_blocks = max(1, min(MAX_BLOCKS, len(seconds) // MIN_BLOCK))
    if resolution_s:  # a block has to be long against the unit of the clock
        num_blocks = max(1, min(num_blocks, int(logged.sum() * ROUNDED / resolution_s)))
    edges = np.linspace(0, len(seconds), num_blocks + 1).astype(int)[:-1]
    totals, own = np.add.reduceat(seconds, edges), np.add.reduceat(logged, edges)
    late_s = resolution_s + (PRINTED_LATE_S if num_blocks == 1 else 0.0)
    return median(totals / own), UNIFORM + late_s / median(own)


def slower_by_clock(claims: Claims) -> float | None:
    """Return how many times as long as the intervals of the window log passed by the clock of its lines, at least.

    Intervals in which the log speaks of an evaluation or a checkpoint are left out, where what they excuse is no more than words may excuse
    within the lines. None where the lines have no clock.
    """
    found = passed(claims.measured.window.spans, claims, may_change_zone=False)
    if found is None or claims.log.dialect in EVALUATES_BETWEEN or not len(found.seconds):
        return None
    steady = ~found.has_event
    over_s = float((found.seconds - found.logged)[found.has_event].sum())
    if over_s > MAX_MARKED * float(found.seconds.sum()) or not steady.any():
        steady[:] = True
    total, logged = float(found.seconds[steady].sum()), float(found.logged[steady].sum())
    return (total - found.resolution_s - PRINTED_LATE_S) / logged


def against_recorders(claims: Claims) -> Iterator[Contradiction]:
    """Yield the intervals in which the recorder of every node stood still as long as the training: the job was suspended or frozen.

    In a stall of the training itself the recorders go on.
    """
    records, seconds = claims.spans.records, claims.spans.seconds
    stamps, usual_s = records.column("stamp_s"), median(seconds)
    known = [times for times in claims.recorders if len(times) > 1]
    holes = []
    for index in np.flatnonzero((seconds > LONG * usual_s) & (seconds > usual_s + HOLE_S) & np.isfinite(stamps)):
        begin, end = stamps[index] - seconds[index], stamps[index]
        needed_s = STOOD_STILL * (seconds[index] - usual_s)
        if known and all(_longest_gap(times, begin, end) >= needed_s for times in known):
            holes.append(int(index))
    if holes:
        text = (
            f"the job stood still for about {seconds[holes[0]] - usual_s:.0f} s before line {records.numbers[holes[0]]}: neither the training "
            "nor the recorder of any node went on, as if it had been suspended"
        )
        yield Contradiction(Code.WALL_CLOCK_HOLE, Weight.VOID, text, records.numbers[holes])


def _longest_gap(times: Column, begin: float, end: float) -> float:
    """Return the longest time between two samples that reaches into an interval, 0 where none lie before and after it."""
    if times[0] > begin or times[-1] < begin:
        return 0.0
    return float((np.minimum(times[1:], end) - np.maximum(times[:-1], begin)).max())
