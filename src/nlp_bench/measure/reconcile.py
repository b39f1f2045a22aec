"""One list of checks of what a log says: its times against every other statement of it, and whether what it times is a training.

`nlp-bench report`, `measure` and `verify` all use this list. Tolerances and weights stand in `docs/evidence.md`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.record import Attempt, Log, Records
from nlp_bench.measure.arguments import against_lines, against_run, against_themselves, said_twice
from nlp_bench.measure.contradiction import MAX_LINES, Code, Contradiction, Weight, named
from nlp_bench.measure.restated import against_counts, against_shape, against_time, restated, silent
from nlp_bench.measure.sizes import Overrides, sizes_of
from nlp_bench.measure.span import Spans
from nlp_bench.measure.throughput import Throughput
from nlp_bench.measure.wall_clock import against_recorders, against_stamps, passed
from nlp_bench.measure.workload import Workload

Column = NDArray[np.float64]
SKIPPED, NEARLY_ALL_SKIPPED, MIN_ITERATIONS = 0.4, 0.9, 20
"""Shares of skipped updates that are doubted, and that are no training; a log of fewer iterations may still be in search of its loss
scale."""
MISSING = 0.005
"""Share of the lines in the middle that may be missing: one of 200 can hide a stall of several per cent."""
FAST, NEIGHBOURS, FAST_SHARE = 0.6, 10, 0.01
"""An interval that takes less than such a share of the median of so many before and after it is implausible; share of such intervals
that is doubted."""
ATTEMPTS, MIN_ATTEMPT = 0.05, 8
"""Share by which the typical times of two starts may differ, and lines of one that has a typical time."""
RANKS = 0.01
"""Share by which the times of two processes may differ over all: they wait for each other."""
MOST, FEW_LOSSES, MANY_LOSSES = 0.9, 0.1, 10_000
"""Share of lines with a learning rate of 0 from which nothing was trained; share that different losses must be of so many lines."""
MIN_COPIES, COPIES = 2, 0.01
"""Lines, and share of them, that may have the loss and the time of another one."""
MIN_LOSSES, MIN_ROUND_LOSSES = 10, 100
"""Lines with one and the same loss from which that is no chance, and the same of a loss of three digits or fewer."""


@dataclass(frozen=True, kw_only=True)
class Statements:
    """What is held against each other."""

    log: Log
    """The whole log."""
    attempt: Attempt
    """The start of the program that was measured."""
    others: Sequence[Attempt] = ()
    """Other starts of the same training in the same log."""
    measured: Throughput
    """The number."""
    overrides: Overrides
    """What a person or run.json says of the sizes."""
    workload: Workload
    """What was trained, by run.json and by the log."""
    seals: tuple[Contradiction, ...] = ()
    """What the trainer's closing hash says against the lines, where the log was read without its run folder."""
    recorders: Sequence[Column] = ()
    """Times of day at which the recorders of the nodes took their samples, where there are any."""
    is_ours: bool = False
    """Whether it is a run of this program's own trainer, with a run.json: its statements come from one measurement."""


def reconcile(said: Statements) -> tuple[Contradiction, ...]:
    """Return everything in which the statements disagree with the number, the gravest first."""
    order = list(Weight)
    return tuple(sorted(_checks(said), key=lambda found: -order.index(found.weight)))


def _checks(said: Statements) -> Iterator[Contradiction]:
    records, sizes, spans, is_ours = said.attempt.records, said.measured.sizes, said.measured.spans, said.is_ours
    found = list(restated(records, sizes))
    yield from against_run(said.workload, said.overrides)
    yield from said.seals
    yield from against_time(records, found, is_ours=is_ours)
    yield from against_shape(records, sizes, found, said.workload, is_ours=is_ours)
    yield from against_counts(records, sizes, is_ours=is_ours)
    if sizes.has_times:
        yield from against_stamps(passed(spans, said.log, is_ours=is_ours), is_ours=is_ours)
        yield from against_recorders(spans, said.recorders)
    yield from against_lines(said.attempt, sizes)
    yield from against_themselves(said.attempt, said.workload, sizes)
    yield from _missing(spans)
    yield from _repeated(records)
    yield from silent(records)
    if len(said.log.attempts) == 1:
        yield from said_twice(said.attempt, said.workload)
    yield from _impossible(said.log)
    yield from _fast(spans)
    yield from _attempts(said)
    yield from _ranks(said.attempt)
    yield from against_training(records, is_ours=is_ours)


def against_training(records: Records, *, is_ours: bool) -> Iterator[Contradiction]:
    """Yield why what was timed is no training: updates skipped, a learning rate of 0, a loss that does not move."""
    yield from _skipped(records, is_ours=is_ours)
    rate = records.column("learning_rate")
    known = rate[np.isfinite(rate)]
    num_zero = int(np.count_nonzero(known == 0))
    if num_zero > max(1.0, MOST * len(known)):
        yield Contradiction(
            code=Code.LEARNING_RATE_ZERO,
            weight=Weight.VOID if is_ours and num_zero == len(known) else Weight.DOUBT,
            text=f"the learning rate is 0 in {_of(num_zero, len(known))} lines that print it: nothing was trained",
        )
    loss = records.column("lm_loss")
    loss = loss[np.isfinite(loss)]
    values = np.unique(loss[:MANY_LOSSES])
    is_round = (
        bool(len(values)) and values[-1] != 0 and all(float(f"{value:.2e}") == value for value in values[:MIN_LOSSES])
    )
    few = 1 if is_round else max(1, FEW_LOSSES * len(loss[:MANY_LOSSES]))
    if len(loss) >= (MIN_ROUND_LOSSES if is_round else MIN_LOSSES) and len(values) <= few:
        is_one = bool(np.ptp(loss) == 0)
        yield Contradiction(
            code=Code.LOSS_DOES_NOT_MOVE,
            weight=Weight.VOID if is_ours and is_one else Weight.DOUBT,
            text=f"the loss is {loss[-1]:g} in all {len(loss)} lines that print it: no training does that"
            if is_one
            else f"the loss has {len(values)} value(s) in {len(loss[:MANY_LOSSES])} lines: no training does that",
        )


def _repeated(records: Records) -> Iterator[Contradiction]:
    """Yield the lines that are copies of another one: of losses with five digits and more two are hardly ever alike."""
    loss, elapsed = records.column("lm_loss"), records.column("elapsed_s")
    known = np.flatnonzero(np.isfinite(loss) & np.isfinite(elapsed))[:MANY_LOSSES]
    fine = np.array([float(f"{value:.3e}") != value for value in loss[known]], dtype=np.bool_)
    known = known[fine]
    _, firsts = np.unique(np.column_stack([loss[known], elapsed[known]]), axis=0, return_index=True)
    copies = np.delete(known, firsts)
    if len(copies) <= max(MIN_COPIES, COPIES * len(records)):
        return
    lines = [int(number) for number in records.numbers[copies]]
    yield Contradiction(
        code=Code.REPEATED_LINES,
        weight=Weight.DOUBT,
        text=f"{len(copies)} of {len(records)} lines have the loss and the time of another one to the last digit: {named(lines)}",
        lines=tuple(lines[:MAX_LINES]),
    )


def _of(number: int, whole: int) -> str:
    return f"all {whole}" if number == whole else f"{number} of {whole}"


def _skipped(records: Records, *, is_ours: bool) -> Iterator[Contradiction]:
    skipped, iterations = records.column("num_skipped"), records.column("iteration")
    if not np.any(skipped > 0):
        return
    # Of the first line nobody says for how many iterations it stands.
    covered = np.diff(iterations, prepend=np.nan)
    covered[0] = max(1.0, float(np.nanmedian(covered)) if len(covered) > 1 else iterations[0])
    known = np.isfinite(skipped)
    share = float(np.sum(np.minimum(skipped, covered)[known]) / np.sum(covered[known]))
    if share < SKIPPED:
        return
    is_long = is_ours or float(np.sum(covered[known])) >= MIN_ITERATIONS
    is_void = share >= NEARLY_ALL_SKIPPED and is_long
    words = "every iteration" if share == 1 else f"{100 * share:.0f} % of the iterations"
    yield Contradiction(
        code=Code.SKIPPED_UPDATES,
        weight=Weight.VOID if is_void else Weight.DOUBT,
        text=f"{words} skipped the update of the weights: {'nothing' if share > NEARLY_ALL_SKIPPED else 'too little'} was trained",
        lines=tuple(int(number) for number in records.numbers[skipped > 0][:MAX_LINES]),
    )


def _missing(spans: Spans) -> Iterator[Contradiction]:
    """Yield how many lines between the first and the last have no time, or are not there."""
    steps = np.diff(spans.records.column("iteration"))
    usual = spans.num_iterations[1:]
    gaps = np.flatnonzero(steps > usual)
    if not len(gaps):
        return
    usual_step = float(np.median(usual))
    num_missing = float(np.sum(steps[gaps] / usual_step - 1))
    share = num_missing / (len(spans) + num_missing)
    numbers = spans.records.numbers
    lines = [int(numbers[gap + 1]) for gap in gaps]
    yield Contradiction(
        code=Code.MISSING_LINES,
        weight=Weight.DOUBT if share >= MISSING else Weight.REMARK,
        text=f"{num_missing:.0f} of {len(spans) + num_missing:.0f} lines between the first and the last have no time or are not there "
        f"(before {named(lines)}): whatever stood there is not in the number",
        lines=tuple(lines[:MAX_LINES]),
    )


def _impossible(log: Log) -> Iterator[Contradiction]:
    number = log.num_impossible
    if number > 1:
        is_many = number >= MISSING * (log.num_records + number)
        yield Contradiction(
            code=Code.IMPOSSIBLE_TIMES,
            weight=Weight.DOUBT if is_many else Weight.REMARK,
            text=f"{number} times or rates are 0, below 0 or not finite",
        )


def _fast(spans: Spans) -> Iterator[Contradiction]:
    """Yield the intervals that are far faster than their neighbours, and have none that is slower to make up for it."""
    costs, number = spans.seconds_per_token, len(spans)
    if number < 2 * NEIGHBOURS:
        return
    padded = np.pad(costs, NEIGHBOURS, mode="reflect")
    around = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1), axis=1)
    # A line that was printed late makes the next one short: both together are held against twice the usual.
    pairs = np.pad(costs, 1, mode="edge")
    with_neighbour = np.maximum(pairs[:-2], pairs[2:]) + costs
    fast = np.flatnonzero((costs < FAST * around) & (with_neighbour < (1 + FAST + 0.25) * around))
    if not len(fast):
        return
    is_many = len(fast) > max(1.0, FAST_SHARE * number)
    lines = [int(line) for line in spans.records.numbers[fast]]
    yield Contradiction(
        code=Code.IMPLAUSIBLY_FAST,
        weight=Weight.DOUBT if is_many else Weight.REMARK,
        text=f"{len(fast)} of {number} intervals take less than {100 * FAST:.0f} % of the time of those around them "
        f"({named(lines)}): no machine trains single iterations so much faster",
        lines=tuple(lines[:MAX_LINES]),
    )


def _attempts(said: Statements) -> Iterator[Contradiction]:
    """Yield whether another start of the same training was clearly slower (doubted) or faster (said) than the one that counts."""
    ours = _typical(said.attempt, said.overrides)
    for other in said.others:
        theirs = _typical(other, said.overrides)
        if ours is None or theirs is None or abs(theirs / ours - 1) <= ATTEMPTS:
            continue
        line = int(other.records.numbers[0])
        yield Contradiction(
            code=Code.ATTEMPTS_DIFFER,
            weight=Weight.DOUBT if theirs > ours else Weight.REMARK,
            text=f"another start of this training (from line {line}) takes {theirs / ours:.4g} times as long per token as the one that "
            "is measured",
            lines=(line,),
        )


def _ranks(attempt: Attempt) -> Iterator[Contradiction]:
    """Yield whether processes that print the same iterations print different times for them; the slowest one's count."""
    copies = max(attempt.copies.values(), key=lambda each: each.between_processes, default=None)
    if copies is None or copies.between_processes <= RANKS:
        return
    fastest, slowest = copies.line_numbers
    yield Contradiction(
        code=Code.RANKS_DIFFER,
        weight=Weight.DOUBT,
        text=f"processes print different times for {copies.num_differing} of {copies.num_iterations} iterations: the slowest one's are "
        f"{copies.between_processes + 1:.4g} times the fastest one's in all (most in lines {fastest} and {slowest})",
        lines=(fastest, slowest),
    )


def _typical(attempt: Attempt, overrides: Overrides) -> float | None:
    """Return the median of seconds per token of a start, None for one of too few lines."""
    if len(attempt.records) < MIN_ATTEMPT:
        return None
    sizes = sizes_of(attempt, overrides)
    with np.errstate(divide="ignore", invalid="ignore"):
        costs = sizes.elapsed_s / sizes.tokens
    costs = costs[np.isfinite(costs) & (costs > 0)]
    return float(np.median(costs)) if len(costs) >= MIN_ATTEMPT else None
