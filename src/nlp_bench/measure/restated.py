"""The time of an iteration, stated several times over in one line: as samples/s, tokens/s, FLOP/s, energy and power.

They are one measurement divided by constants. Each printed number stands for an interval of half a unit of its last digit to both
sides; a statement agrees where the intervals meet. Where most lines agree on one constant to the digit, a line that does not was
changed; where they do not, the rate was taken by another clock and only its middle is held against the time.
The formulas: `train/logline.py` and NVIDIA/Megatron-LM megatron/training/training.py (`training_log`).

Below it the times of day of the lines against the times that they log, in both directions. A line is written when its interval is over, a
little late at times. So between two lines no less time passes than the second one logs, and what passes more is evaluation, a checkpoint,
or time that the program does not count. A program whose clock runs from line to line loses nothing in between: where more time passes from
line to line all along the log, its times are too small. Rates alone are held against each other: the tokens of an iteration, which
nobody states, are those of most lines.
"""

from collections.abc import Iterator

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.record import Column, Records
from nlp_bench.measure import Texts
from nlp_bench.measure.contradiction import Claims, Code, Contradiction, Contradictions, Weight, named, so_do_others
from nlp_bench.measure.efficiency import SAME, flops_per_token, words_of
from nlp_bench.measure.estimate import Pair
from nlp_bench.measure.series import (
    SAME_DIGITS,
    Indices,
    Mask,
    Numbers,
    finite,
    half_unit,
    median,
    misread_midnights,
    positive,
    ratio,
    steps_of,
    zone_change,
)
from nlp_bench.measure.shape import shaped
from nlp_bench.measure.sizes import Sizes, Spans, mean_batch
from nlp_bench.measure.window import MAX_MARKED

OTHER_CLOCK = 0.03  # share by which rates that another clock took may differ from batch / time
ONE_CLOCK = 0.005  # the same where all lines agree with each other to the digit: one constant for the whole log
COUNTED = 1e-4  # the same of counts, which no clock took
GROSS_SHAPE = 2.0  # FLOP/s are counted in many ways: against a shape only such a factor voids the number
OVERCLAIMED = 0.1  # share of the lines whose batch may exceed what was consumed: a ramp-up took a step there
SILENT = 0.005  # share of the lines that may lack what the others print
MIN_LINES = 3  # lines from which their agreement to the digit is no chance
BY_1000 = 1e-3  # early versions of Megatron-DeepSpeed divide by milliseconds as if they were seconds
_MIN_SHARE = 0.5  # share of the lines that must agree before the others are called changed
_FLOPS = ("tflops", "model_tflops")
_RATES = (
    "samples_per_second", "samples_per_second_per_device", "tokens_per_second", "tokens_per_second_per_device", *_FLOPS,
)  # fmt: skip
_ENERGY = ("joules_per_device", "watts_per_device")
WORDS = {
    "samples_per_second": "samples per second",
    "samples_per_second_per_device": "samples per second and device",
    "tokens_per_second": "tokens per second",
    "tokens_per_second_per_device": "tokens per second and device",
    "tflops": "TFLOPs",
    "model_tflops": "TFLOP/s per GPU",
    "joules_per_device": "energy per GPU",
    "consumed_samples": "consumed samples",
    "lm_loss": "loss",
    "grad_norm": "norm of the gradient",
    "loss_scale": "loss scale",
    "learning_rate": "learning rate",
}


@immutable(kw_only=False)
class Restated:
    """How one field of the lines stands to the time in the same line."""

    name: str  # quantity of `logs.record.ROW`; of energy and power, joules_per_device
    rate: Column  # what is stated per second
    work: Column  # work of an iteration in the unit of the field, NaN where it is not known
    is_exact: bool  # whether most lines agree on one constant to the printed digits
    low: float
    """The least that stated rate / (work / time) may be by the printed digits: of the constant, or the median where there is none."""
    high: float
    is_wrong: Mask  # lines that do not agree with the constant
    is_absolute: bool  # whether the work is known by itself, so that the constant has to be 1

    @property
    def ratio(self) -> float:
        """The constant; 1 where both say the same."""
        is_one = self.is_exact and self.is_absolute and self.low <= 1 <= self.high
        return 1.0 if is_one else (self.low + self.high) / 2

    @property
    def code(self) -> Code:
        """Which statements disagree where this one does."""
        if self.name in _FLOPS:
            return Code.FLOPS_VS_TIME
        return Code.ENERGY_VS_TIME if self.name == "joules_per_device" else Code.RATES_VS_TIME

    def is_near(self, wanted: float, tolerance: float) -> bool:
        """Say whether the constant may be `wanted`."""
        return self.low <= wanted * (1 + tolerance) and self.high >= wanted * (1 - tolerance)


def _has(records: Records, *names: str) -> bool:
    return all(records.has(name).any() for name in names)


def stating(records: Records) -> Texts:
    """Return the quantities that state the time of the lines again; empty for a log that states it once only."""
    names = [name for name in _RATES if _has(records, name)]
    names += ["watts_per_device"] if _has(records, *_ENERGY) else []
    return tuple(names if _has(records, "elapsed_s") else names[1:])


def restated(records: Records, sizes: Sizes) -> Iterator[Restated]:
    """Yield each field that states the time of the lines again; nothing for a log that states it once only."""
    fields = [name for name in _RATES if _has(records, name)]
    is_base_absolute = True
    if _has(records, "elapsed_s"):
        time = bounds(records.column("elapsed_s"))
    elif fields:
        # The first rate stands for the time: the others are held against it.
        low, high = bounds(records.column(fields[0]))
        work, is_base_absolute = _work(fields.pop(0), records, sizes)
        time = ratio(work, high), ratio(work, low)
    else:
        return
    for name in fields:
        work, is_absolute = _work(name, records, sizes)
        yield from _held(name, records.column(name), time, work, is_absolute=is_absolute and is_base_absolute)
    if _has(records, *_ENERGY):
        joules, watts = map(records.column, _ENERGY)
        yield from _held("joules_per_device", watts, time, joules, is_absolute=True)


def _work(name: str, records: Records, sizes: Sizes) -> tuple[Column, bool]:
    """Return the work of an iteration, and whether its unit is that of the field."""
    batch, devices = records.column("global_batch_size"), float(sizes.num_devices or np.nan)
    if np.isnan(batch).all():
        batch = np.full(len(records), float(sizes.global_batch_size or np.nan))
    tokens = batch * sizes.sequence if sizes.is_of_rates else sizes.tokens
    known = {"samples_per_second": batch, "tokens_per_second": tokens}.get(name.removesuffix("_per_device"))
    if sizes.rate_counts and name.startswith("tokens"):
        known = None
    if known is not None and name.endswith("_per_device"):
        known = known / devices
    if known is not None and np.isfinite(known).any():
        return known, True
    # A constant that nobody states: it grows with the batch, and with the length where that changes.
    scale = batch if np.isfinite(batch).any() else np.ones(len(records))
    lengths = finite(sizes.sequence)
    return (scale * sizes.sequence if len(lengths) and np.ptp(lengths) else scale), False


def _held(
    name: str, rate: Column, time: tuple[Column, Column], work: Column, *, is_absolute: bool
) -> Iterator[Restated]:
    rate_low, rate_high = bounds(rate)
    low, high = ratio(time[0] * rate_low, work), ratio(time[1] * rate_high, work)
    known = np.isfinite(low) & np.isfinite(high) & (high > 0)
    if not known.any():
        return
    lows, highs = low[known], high[known]
    deepest = _deepest(lows, highs) if len(lows) >= MIN_LINES else None
    begin, end = deepest or (median(lows), median(highs))
    is_wrong = known & ((low > end) | (high < begin)) & (deepest is not None)
    yield Restated(name, rate, work, deepest is not None, begin, end, is_wrong, is_absolute)


def _deepest(low: Column, high: Column) -> Pair | None:
    """Return the interval in which most of the given ones meet; None where fewer than half of them do."""
    number = len(low)
    # Where half of them meet, half of them have begun and half of them have not ended.
    first, last = np.partition(low, (number - 1) // 2)[(number - 1) // 2], np.partition(high, number // 2)[number // 2]
    begins, ends = (np.sort(column[(column >= first) & (column <= last)]) for column in (low, high))
    num_begun, num_ended = np.count_nonzero(low < first), np.count_nonzero(high < first)
    # At each beginning: how many have begun, less those that have ended before.
    depth = np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins, side="left") + (num_begun - num_ended)
    best = int(np.argmax(depth))
    if 2 * depth[best] < number:
        return None
    return float(begins[best]), float(ends[np.searchsorted(ends, begins[best], side="left")])


def bounds(column: Column) -> tuple[Column, Column]:
    """Return the least and the greatest value that each printed number may stand for, by the decimals that the column has.

    A number does not remember how it was printed, but of numbers with `d` decimals nine in ten need all of them.
    """
    least, unit, most = half_unit(column), 10.0, float(finite(column).max(initial=0.0))
    half, round_ones = np.full(len(column), least), np.flatnonzero(column == np.rint(column))
    while unit <= most:  # `4.71K`: as many zeros as it ends with may not have been printed
        round_ones = round_ones[column[round_ones] % unit == 0]
        half[round_ones] = max(unit / 2, least)
        unit *= 10
    return np.maximum(column - half, 0.0) * (1 - SAME_DIGITS), (column + half) * (1 + SAME_DIGITS)


def against_time(claims: Claims, found: list[Restated]) -> Contradictions:
    """Yield where lines disagree with their own time, and where a rate does so throughout."""
    elapsed = claims.records.column("elapsed_s")
    has_times = _has(claims.records, "elapsed_s")
    wrong: list[tuple[Restated, Column, Mask]] = []
    implied = np.where(np.isfinite(elapsed), elapsed, 0.0)
    for field in found:
        yield from _throughout(field, claims)
        means, is_wrong = ratio(field.work * field.ratio, field.rate), field.is_wrong
        if not claims.is_ours and has_times:
            is_wrong = is_wrong & (np.abs(ratio(means, elapsed) - 1) > ONE_CLOCK)
        if is_wrong.any():
            wrong.append((field, means, is_wrong))
            implied = np.where(is_wrong & np.isfinite(means), np.maximum(implied, means), implied)
    if not wrong:
        return
    # One contradiction for all changed lines, with what the first one says.
    indices, reasons = np.flatnonzero(np.any([of for *_, of in wrong], axis=0)), list[str]()
    first, lines = indices[0], claims.records.numbers[indices]
    for field, means, is_wrong in wrong:
        if is_wrong[first] and not (reasons and field.name in _FLOPS):  # they have the fewest digits
            stated = claims.records.column(field.name)[first]
            reasons.append(f"{WORDS[field.name]} {stated:.12g} means {means[first]:.5g} s")
    codes = [field.code for field, *_ in wrong]
    logged = f"the time per iteration is {elapsed[first]:.12g} s" if np.isfinite(elapsed[first]) else "one rate"
    slower = float(np.sum(implied) / np.nansum(elapsed)) if has_times else 1.0
    text = f"line {lines[0]} contradicts itself: {logged}, but {' and '.join(reasons)}{so_do_others(lines)}"
    code = Code.RATES_VS_TIME if Code.RATES_VS_TIME in codes else codes[0]
    yield Contradiction(code, claims.weigh(slower), text, lines)


def _throughout(field: Restated, claims: Claims) -> Contradictions:
    is_old_deepspeed = field.name == "samples_per_second" and not claims.is_ours and field.is_near(BY_1000, OTHER_CLOCK)
    tolerance = ONE_CLOCK if field.is_exact else OTHER_CLOCK
    if field.is_absolute and not field.is_near(1.0, tolerance) and not is_old_deepspeed:
        ratio = field.high if field.high < 1 else field.low  # within the printed digits, the value nearest to 1
        text = f"the {WORDS[field.name]} of the log are {field.ratio:.4g} times what its time and sizes give"
        yield Contradiction(field.code, claims.weigh(1 / ratio if ratio else np.inf), text)


def is_silent(lacking: int, lines: int) -> bool:
    """Say whether so many lines that lack what the others print are more than a few that were cut."""
    return lacking >= max(MIN_LINES, SILENT * lines)


def silent(claims: Claims) -> Contradictions:
    """Yield where lines lack a rate that the others print: what was taken out of a changed line cannot contradict it."""
    records = claims.records
    elapsed = records.column("elapsed_s")
    for name in (*_RATES, "consumed_samples", "lm_loss"):
        if not MIN_LINES <= np.count_nonzero(records.has(name)[1:]) < len(records) - 1:
            continue
        lacks = np.flatnonzero(records.lacks(name)[1:] & np.isfinite(elapsed[1:])) + 1
        if is_silent(len(lacks), len(records)):
            lines = records.numbers[lacks]
            many = f"{len(lacks)} of {len(records)} lines"
            text = f"{many} do not print the {WORDS[name]} that the others print: {named(lines)}"
            yield Contradiction(Code.SILENT_LINES, Weight.DOUBT, text, lines)
            return


def against_shape(claims: Claims, found: list[Restated]) -> Contradictions:
    """Yield where the FLOP/s of the lines are by no counting those of the model that the arguments describe."""
    sizes = claims.sizes
    fields = [field for field in found if field.name in _FLOPS]
    if not (fields and sizes.num_devices and np.isfinite(sizes.tokens).any() and sizes.has_times):
        return
    shape = shaped(claims.workload, sizes.sequence_length)
    known = {name: flops for name, flops in flops_per_token(shape).items() if flops}
    for field in fields if known else ():
        per_token = positive(ratio(field.rate * sizes.elapsed_s * sizes.num_devices * 1e12, sizes.tokens))
        stated = median(per_token) if len(per_token) else 0.0
        typical = median(finite(field.rate))  # 0 where a small model's rate has too few digits
        digits = half_unit(field.rate) / typical if typical > 0 else np.inf
        if not stated or digits > SAME:
            continue
        ratios = {name: stated / flops for name, flops in known.items()}
        name = min(ratios, key=lambda name: abs(np.log(ratios[name])))
        if abs(ratios[name] - 1) > SAME + digits:
            text = (
                f"the {WORDS[field.name]} of the log are {ratios[name]:.4g} times what the model of its arguments gives at the "
                f"logged times, by the nearest of the usual counts ({words_of(shape)[name]})"
            )
            weight = Weight.VOID if claims.is_ours or 1 / ratios[name] > GROSS_SHAPE else Weight.DOUBT
            yield Contradiction(Code.FLOPS_VS_SHAPE, weight, text)


def against_counts(claims: Claims) -> Contradictions:
    """Yield where consumed samples or tokens do not grow as batch and sequence length say."""
    records, length = claims.records, claims.sizes.sequence_length
    iterations, consumed, tokens, batch = map(
        records.column, ("iteration", "consumed_samples", "consumed_tokens", "global_batch_size")
    )
    given = claims.overrides.global_batch_size
    if np.isnan(batch).all():
        given = given or claims.attempt.count("global_batch_size")
    if given:  # one size for all lines, which may be that of the end of a ramp-up
        batch = np.full(len(records), float(given))
    if _has(records, "consumed_samples") and np.isfinite(batch).any():
        yield from _changed_count(claims)
        batch = mean_batch(records, batch)
        steps = steps_of(iterations, np.nan)
        usual = median(steps[1:]) if len(steps) > 1 else 1.0  # a ramp-up goes on after a gap
        is_step = (steps > 0) & (steps <= usual) & (batch > 0)
        grown = finite(ratio(steps_of(consumed, np.nan), steps * batch)[is_step])
        grown = grown if len(grown) else np.ones(1)
        times, overclaimed = median(grown), float(np.mean(grown < 1 - COUNTED))
        times = float(np.mean(grown)) if times >= 1 - COUNTED and overclaimed > OVERCLAIMED else times
        if abs(times - 1) > COUNTED:
            text = f"its consumed samples grow by {times:.4g} times the global batch size per iteration"
            by_hand = claims.overrides.global_batch_size and not claims.is_ours
            weight = Weight.DOUBT if by_hand else claims.weigh(1 / max(times, 1e-9))
            yield Contradiction(Code.SAMPLES_VS_BATCH, weight, text)
    if _has(records, "consumed_tokens", "consumed_samples") and length and len(records) > 1:
        lengths = claims.sizes.sequence[1:]  # with a curriculum each line has its own
        grown = positive(ratio(steps_of(tokens), steps_of(consumed) * lengths))
        times = median(grown) if len(grown) else 1.0
        if 1 - times > OTHER_CLOCK:  # counts printed for people (1.258B) have few digits
            text = f"its consumed tokens grow by {times:.4g} times the sequence length per sample"
            yield Contradiction(Code.TOKENS_VS_SAMPLES, claims.weigh(1 / times), text)


def _changed_count(claims: Claims) -> Contradictions:
    """Yield the lines whose count is not that of all others: with one batch size each has `iteration * batch` and one constant.

    A batch that grew before this log began is in the constant; one that grows within it has no majority.
    """
    iterations, consumed, batch = map(claims.records.column, ("iteration", "consumed_samples", "global_batch_size"))
    offsets = consumed - iterations * batch
    known = np.isfinite(offsets)
    if not known.any() or np.ptp(batch[known]):
        return
    values, counts = np.unique(offsets[known], return_counts=True)
    usual = values[int(np.argmax(counts))]
    wrong = np.flatnonzero(known & (offsets != usual))
    if counts.max() <= _MIN_SHARE * known.sum() or not len(wrong):
        return
    first, lines = int(wrong[0]), claims.records.numbers[wrong]
    text = (
        f"line {lines[0]} contradicts the others: consumed samples is {consumed[first]:.0f} where iteration and batch give "
        f"{iterations[first] * batch[first] + usual:.0f}{so_do_others(lines)}"
    )
    yield Contradiction(Code.SAMPLES_VS_BATCH, Weight.VOID if claims.is_ours else Weight.DOUBT, text, lines)


UNIFORM = 0.02
"""Share by which the time from line to line may differ from the logged one, all along the log, in addition to the resolution of the stamps."""
ROUNDED = 0.005  # share of a block that the rounding of the clock may be
TOO_SHORT, PRINTED_LATE_S = 0.01, 1.0
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


@immutable(kw_only=False)
class Passed:
    """The intervals between two neighbouring lines of which both have a time of day."""

    seconds: Column  # seconds between the two lines
    logged: Column  # seconds that the second one logs
    numbers: Numbers  # its line number
    has_event: Mask  # whether the log speaks of an evaluation or a checkpoint between them
    resolution_s: float  # unit of the times of day
    backward: Numbers  # line numbers before which the clock was set back
    is_worded: bool  # whether the log speaks of them so often that its words tell nothing


def passed(spans: Spans, claims: Claims, *, may_change_zone: bool = True) -> Passed | None:
    """Return what can be compared, None where nothing can.

    Left out are gaps in the iterations, clocks that were set back, one step of an hour, which is the change of a time zone, and a second line
    that holds the first iteration again. In a run of ours the words of a checkpoint are the trainer's own, however often it writes one.
    """
    stamps = spans.records.column("stamp_s")
    where = np.flatnonzero(np.isfinite(stamps))
    if len(where) < 2:
        return None
    resolution_s = 1.0 if np.all(stamps[where] == np.round(stamps[where])) else 0.0
    times_s = spans.seconds
    if not claims.sizes.has_times:  # a rate is the time of its tokens but for one factor, the tokens of an iteration
        times_s = times_s * _typical_s(steps_of(stamps[where]), steps_of(np.cumsum(times_s)[where]), resolution_s)
        if np.isnan(times_s[0]):
            return None
    where, late_s = _ends_of_bursts(where, stamps, times_s)
    known, resolution_s = stamps[where], resolution_s + late_s
    # Lines without a time of day belong to the next one that has it.
    logged, covered = (steps_of(np.cumsum(column)[where], np.nan) for column in (times_s, spans.num_iterations))
    between = steps_of(known, np.nan)
    steps = steps_of(spans.records.column("iteration")[where], np.nan)
    is_back = between < -resolution_s
    usable = np.isfinite(between) & (steps <= covered) & ~is_back & ~misread_midnights(between, logged)
    if may_change_zone:
        usable &= ~zone_change(between, logged)
    if _holds_first_again(spans, where, float(between[1])):
        usable[1] = False
    if not np.any(usable | is_back):
        return None
    offsets, numbers = spans.records.offsets[where], spans.records.numbers[where]
    inside = np.searchsorted(offsets, [event.offset for event in claims.log.events])
    has_event = np.zeros(len(offsets), dtype=np.bool_)
    has_event[inside[inside < len(offsets)]] = True
    is_worded = not claims.is_ours and 2 * np.count_nonzero(has_event) > len(has_event)
    if is_worded or claims.log.dialect in EVALUATES_BETWEEN:
        has_event[:] = claims.log.dialect in EVALUATES_BETWEEN
    columns = between[usable], logged[usable], numbers[usable], has_event[usable]
    return Passed(*columns, resolution_s, numbers[is_back], is_worded)


def _holds_first_again(spans: Spans, where: Indices, passed_s: float) -> bool:
    """Return whether the second line's time is the mean with the first iteration, whose line came before: Megatron-LM's since January 2026.

    It does not reset its clock after the line of the first iteration. Then `passed_s` between the two lines is that mean for one iteration
    more, less the first line's time.
    """
    if where[:2].tolist() != [0, 1]:
        return False
    first_s, mean_s = map(float, spans.seconds[:2] / spans.num_iterations[:2])
    second_s = float(spans.seconds[1])
    own_s = second_s + mean_s - first_s
    return own_s < second_s and abs(passed_s - own_s) <= ROUNDED * second_s


def _typical_s(seconds: Column, own: Column, resolution_s: float) -> float:
    """Return the median of passed / logged time, rounded up; NaN of few lines.

    It is taken over groups of lines that are long against the unit of the clock, and short enough for a stall to be in few of them.
    """
    edges = np.arange(0, len(seconds), int(np.ceil(resolution_s / (OUTSIDE * max(median(seconds), 1e-9)))) or 1)
    ratios = (np.add.reduceat(seconds, edges) + resolution_s / 2) / np.add.reduceat(own, edges)
    return median(ratios) if len(ratios) >= MIN_BLOCK else np.nan


def _ends_of_bursts(where: Indices, stamps: Column, seconds: Column) -> tuple[Indices, float]:
    """Return those lines with a time of day whose interval ended then, and by how many seconds that may be late.

    A program whose output is a pipe writes lines by the block, and a collector stamps all of them when the block comes: the last line of
    each has ended within an interval of that, but of the last block, which comes when the program ends.
    """
    is_inside = steps_of(stamps[where]) < BURST * steps_of(np.cumsum(seconds)[where])
    if 2 * np.count_nonzero(is_inside) <= len(is_inside) or np.count_nonzero(~is_inside) < MIN_BURSTS:
        return where, 0.0
    return where[:-1][~is_inside], median(seconds)


def against_stamps(claims: Claims) -> Contradictions:
    """Yield what the times of day say against the logged times."""
    found = passed(claims.spans, claims)
    if found is None:
        return
    number, total, logged = len(found.seconds), float(found.seconds.sum()), float(found.logged.sum())
    if len(found.backward) > max(MIN_SET_BACK, SET_BACK * (number + len(found.backward))):
        text = f"the clock of its lines goes backward {len(found.backward)} times"
        yield Contradiction(Code.STAMPS_VS_TIME_FAST, claims.weigh(1.0), text, found.backward)
        return
    too_short, what = (TOO_SHORT, "times") if claims.sizes.has_times else (OUTSIDE, "tokens at the usual rate")
    if total < logged - (too_short * logged + 2 * found.resolution_s + PRINTED_LATE_S):
        text = f"its lines were written within {total:.1f} s, and their {what} add up to {logged:.1f} s"
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
        is_doubt = found.is_worded or is_one_stall or not claims.sizes.has_times
        weight = Weight.DOUBT if is_doubt else claims.weigh(typical)
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


def _typical(seconds: Column, logged: Column, resolution_s: float) -> Pair:
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
