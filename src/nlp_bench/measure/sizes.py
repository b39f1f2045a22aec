"""From what a log states to tokens and seconds per iteration, each with the way it was found; nothing is guessed.

The ways, best first. Tokens per iteration of the whole machine: batch x sequence given by a person; stated by the line; batch x
sequence; stated once; differences of consumed tokens; rate x time. Seconds per iteration: stated; differences of the
training's own clock; tokens / rate. A rate of one device counts only with the number of devices.
A line every ten iterations is the mean of ten: `Spans` are the lines with the iterations that each stands for.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.pattern import pattern_dialect
from nlp_bench.logs.quantity import COUNTS_ELSE, OPTIONS
from nlp_bench.logs.record import NO_RECORDS, Attempt, Column, Records, constant
from nlp_bench.measure import Texts
from nlp_bench.measure.series import Where, finite, ratio, steps_of
from nlp_bench.measure.workload import RUN_JSON

SAME_COUNT = 0.05  # share by which sizes given by hand may differ from the tokens that the lines count: padding
_WHOLE_TOLERANCE = 2e-3  # samples/s is printed with three decimals at best


@immutable
class Overrides:
    """What a person adds to a log, or says against it."""

    sequence_length: int | None = None  # tokens per sample, `--sequence-length`
    global_batch_size: int | None = None  # samples per iteration, `--global-batch-size`
    num_gpus: int | None = None  # GPUs of the whole run, `--num-gpus`
    pattern: Texts = ()
    """Regular expressions of its lines, `--pattern`: nothing else of it is read then. Raises UsageError for one that is wrong."""

    is_of_run: bool = False  # whether the run.json of a run of ours says it, and no person

    @property
    def counts(self) -> dict[str, int]:
        """The sizes that are given, by their names."""
        found = {name: getattr(self, name) for name in ("sequence_length", "global_batch_size", "num_gpus")}
        return {name: value for name, value in found.items() if value}

    def source(self, option: str) -> str:
        """Return whose word a size is: `option`, or run.json."""
        return RUN_JSON if self.is_of_run else option

    def __post_init__(self) -> None:
        """Refuse a wrong pattern before any log is opened."""
        if self.pattern:
            pattern_dialect(self.pattern)


@immutable
class Sizes:
    """Per record; NaN where it cannot be known. `how_...` says in words where a value is from; empty where it is not known."""

    tokens: Column  # tokens per iteration of the whole machine; where `has_times` is False, tokens per second
    elapsed_s: Column  # seconds per iteration; where `has_times` is False, 1
    has_times: bool  # False where the log has rates alone
    is_even: bool  # whether each iteration of rates alone is taken to have as many tokens; else to take as much time
    rate_counts: str  # what the stated tokens per second count, where these are not all tokens; else empty
    is_of_rates: bool  # whether the tokens are of a stated rate, so that they cannot be held against it
    how_tokens: str
    how_time: str
    is_of_clock: bool  # whether the times are differences of the training's clock, whose rounding evens out
    mean_s: float | None  # the mean of all times, warm-up included; None where none was logged
    sequence: Column
    sequence_length: int | None  # tokens per sample of the last record
    how_sequence: str
    global_batch_size: int | None  # samples per iteration of the last record
    how_batch: str
    num_devices: int | None

    @property
    def is_measurable(self) -> bool:
        """Say whether any record has both."""
        return bool(np.any(np.isfinite(self.tokens) & np.isfinite(self.elapsed_s)))


@immutable
class Spans:
    """The records that have a time and a size, with all iterations that each stands for."""

    records: Records
    num_iterations: Column  # iterations that each record is the mean of
    num_tokens: Column
    seconds: Column  # time of all its iterations together

    def __repr__(self) -> str:
        """Return it in a line: the columns of a long log fill a screen."""
        return f"<{len(self)} logged intervals, {self.num_iterations.sum():g} iterations, {self.seconds.sum():g} s>"

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, where: Where) -> "Spans":
        return Spans(
            records=self.records.chosen(where),
            num_iterations=self.num_iterations[where],
            num_tokens=self.num_tokens[where],
            seconds=self.seconds[where],
        )

    @property
    def first_iterations(self) -> Column:
        """The first iteration of each interval, as the log counts."""
        return self.records.column("iteration") - self.num_iterations + 1

    @property
    def elapsed_s(self) -> Column:
        """Seconds per iteration of each record."""
        return self.seconds / self.num_iterations

    @property
    def seconds_per_token(self) -> Column:
        """What the window and the interval are decided on: it stays comparable while the batch size ramps up."""
        return self.seconds / self.num_tokens


NO_SPANS = Spans(records=NO_RECORDS, num_iterations=np.empty(0), num_tokens=np.empty(0), seconds=np.empty(0))


def iterations_per_record(records: Records, log_interval: int | None = None, counts_from: int = 1) -> Column:
    """Return how many iterations each record covers: the step from the record before, at most the usual step.

    A larger step is a gap (a torn line, an excerpt that was joined), which the record did not measure.
    The usual step is `log_interval`, and where that is not known the most common one, the smallest of several.
    """
    iterations = records.column("iteration")
    if not len(iterations):
        return iterations
    steps = steps_of(iterations)
    usual = float(log_interval or 1)
    if not log_interval and len(steps) and steps.min() == steps.max():
        usual = max(1.0, float(steps[0]))
    elif not log_interval and len(steps):
        values, counts = np.unique(steps, return_counts=True)
        usual = max(1.0, float(values[np.argmax(counts)]))
    first = min(iterations[0] - counts_from + 1, usual)
    covered: Column = np.clip(np.concatenate([[first], steps]), 1, usual)
    return covered


def spans_of(records: Records, sizes: Sizes, *, log_interval: int | None = None, counts_from: int = 1) -> Spans:
    """Return the records that have a time and a size in tokens."""
    number, tokens, elapsed = iterations_per_record(records, log_interval, counts_from), sizes.tokens, sizes.elapsed_s
    if sizes.is_of_clock:  # the time from one reading to the next is that of all iterations between them
        number = _iterations_between(records, number[:1])
    if not sizes.has_times and sizes.is_even:
        # The mean of rates is the harmonic one: at half the rate an iteration takes twice as long.
        usual = np.full_like(tokens, np.nanmedian(tokens))
        tokens, elapsed = usual, ratio(usual, tokens)
    spans = Spans(records=records, num_iterations=number, num_tokens=tokens * number, seconds=elapsed * number)
    # NaN is in no range; what is outside was never meant as tokens or seconds, and would overflow further on.
    usable = (spans.num_tokens > 1e-6) & (spans.num_tokens < 1e24) & (spans.seconds > 1e-12) & (spans.seconds < 1e15)
    return spans if usable.all() else spans[usable]


def _iterations_between(records: Records, first: "Column | float" = 1.0) -> Column:
    """Return the iterations from each reading of a clock to the next, at least one; `first` is those before the first reading."""
    iterations = records.column("iteration")
    between: Column = np.maximum(np.diff(iterations, prepend=iterations[:1] - first), 1)
    return between


def sizes_of(attempt: Attempt, overrides: Overrides) -> Sizes:
    """Return the sizes of every record of `attempt`."""
    return _Derivation(attempt, overrides).result()


def stated(attempt: Attempt) -> tuple[dict[str, int | None], Column]:
    """Return the sizes that the log itself states, by the names of `Overrides`, and tokens per iteration as it counts them, NaN where it does not."""
    found = _Derivation(attempt, Overrides())
    sequence, batch, tokens = _last(found.sequence), _last(found.batch), attempt.records.column("tokens")
    sizes = {"sequence_length": sequence, "global_batch_size": batch, "num_gpus": found.num_devices}
    once = constant(attempt.fact("tokens") or np.nan, len(tokens))
    ways = ((column, "") for column in (tokens, once, growth(attempt.records, "consumed_tokens")))
    return sizes, (_first_known(ways) or (tokens, ""))[0]


def times_of(tokens: Column, counted: Column) -> float:
    """Return how many times `counted` `tokens` are in the usual line, 1 where no line has both."""
    times = finite(ratio(tokens, counted))
    return float(np.median(times)) if len(times) else 1.0


def mean_batch(records: Records, batch: Column) -> Column:
    """Return the mean batch of each record's iterations, of which `batch` is the last one's: during a ramp-up they differ.

    Where it is another than in the line before, the consumed samples tell, if they lie between the two and no line is missing.
    """
    if (batch == batch[:1]).all():
        return batch
    before = np.concatenate([batch[:1], batch[:-1]])
    if np.array_equal(before, batch, equal_nan=True):
        return batch
    grown = growth(records, "consumed_samples")
    is_between = (grown > np.minimum(before, batch)) & (grown < np.maximum(before, batch))
    is_next = steps_of(records.column("iteration"), -np.inf) <= iterations_per_record(records)
    return np.where(is_between & is_next, grown, batch)


def growth(records: Records, name: str) -> Column:
    """Return how much a cumulative count grew per iteration since the record before, NaN where it did not grow."""
    if name not in records.columns:
        return records.column(name)
    grown = ratio(*(steps_of(records.column(of), np.nan) for of in (name, "iteration")))
    return np.where((grown > 0) & np.isfinite(grown), grown, np.nan)


class _Derivation:
    """The records with what is known about them so far."""

    def __init__(self, attempt: Attempt, overrides: Overrides) -> None:
        self.attempt, self.records, self.overrides = attempt, attempt.records, overrides
        self.rate_counts = str(fact.value) if (fact := attempt.facts.get(COUNTS_ELSE)) else ""
        self.elapsed, self.how_time = self.records.column("elapsed_s"), "logged time per iteration"
        self.is_of_clock = False
        if np.isnan(self.elapsed).all():
            # A clock that was set back (after warm-up) or stood still says nothing about the interval.
            self.elapsed = growth(self.records, "clock_s")
            if np.isfinite(self.elapsed).any():
                self.how_time, self.is_of_clock = "differences of the training's clock", True
        self.num_devices = overrides.num_gpus or self._devices()
        self.sequence, self.how_sequence = self._sequence()
        self.batch, self.how_batch = self._batch()

    def _devices(self) -> int | None:
        stated = _last(self.records.column("num_devices")) or self.attempt.count("num_devices")
        if stated:
            return stated
        devices = self._ratio("tokens_per_second", "tokens_per_second_per_device")
        whole = round(float(np.median(devices))) if len(devices) else 0
        return whole if whole and np.all(np.abs(devices / whole - 1) < _WHOLE_TOLERANCE) else None

    def _ratio(self, above: str, below: str) -> Column:
        columns = self.records.columns
        if not {above, below} <= columns.keys():
            return np.empty(0)
        return finite(ratio(columns[above], columns[below]))

    def _stated(self, name: str, given: int | None) -> tuple[Column, str] | None:
        """Return a count that a person, the lines or one line states, None where nobody does."""
        size, words = len(self.records), name.replace("_", " ")
        if given:
            return constant(given, size), self.overrides.source(OPTIONS[name])
        stated = self.records.column(name)
        is_stated = stated > 0
        if is_stated.any():
            if not is_stated.all():
                # Where a cut line ends before its own, that of the line before need not be its.
                is_known = self.records.whole | is_stated
                stated = np.where(is_known, _filled(np.where(is_stated, stated, np.nan)), np.nan)
            return stated, f"{words} of the line"
        if count := self.attempt.count(name):
            return constant(count, size), f"{words} of line {self.attempt.facts[name].line_number}"
        return None

    def _sequence(self) -> tuple[Column, str]:
        if stated := self._stated("sequence_length", self.overrides.sequence_length):
            return stated
        lengths, size = self._ratio("consumed_tokens", "consumed_samples"), len(self.records)
        if len(lengths) and np.all(lengths == lengths[0]) and lengths[0] == int(lengths[0]):
            return constant(lengths[0], size), "consumed tokens / consumed samples"
        return constant(np.nan, size), ""

    def _batch(self) -> tuple[Column, str]:
        if stated := self._stated("global_batch_size", self.overrides.global_batch_size):
            return stated
        samples, size = growth(self.records, "consumed_samples"), len(self.records)
        if size > 1 and (np.isfinite(samples) | ~self.records.whole)[1:].all():
            return _filled(samples), "differences of consumed samples"
        product = self.records.column("samples_per_second") * self.elapsed
        known = finite(product)
        is_near = len(known) and np.all(np.abs(known - np.round(known)) < _WHOLE_TOLERANCE * known)
        if is_near and np.all(known >= 0.5):
            return _filled(np.round(product)), "samples per second x time, rounded"
        return constant(np.nan, size), ""

    def _rates(self) -> Iterator[tuple[Column, str]]:
        """Yield tokens per second of the whole machine as the log itself states them, and in what words, the best way first."""
        devices, tokens = self.num_devices or np.nan, f"{_last(self.sequence)} tokens"
        of_devices = f"per second per device x {self.num_devices} devices"
        ways: tuple[tuple[str, tuple[Column | float, ...], str], ...] = (
            ("tokens_per_second", (), "tokens per second"),
            ("tokens_per_second_per_device", (devices,), f"tokens {of_devices}"),
            ("samples_per_second", (self.sequence,), f"samples per second x {tokens}"),
            ("samples_per_second_per_device", (devices, self.sequence), f"samples {of_devices} x {tokens}"),
        )
        for name, factors, words in ways[2 * bool(self.rate_counts) :]:
            if (rate := self.records.columns.get(name)) is not None:
                for factor in factors:
                    rate = rate * factor
                yield rate, words

    def _tokens(self) -> Iterator[tuple[Column, str]]:
        """Yield tokens per iteration and where they come from, the best way first."""
        column, words = self.records.column, f"({self.how_batch}, {self.how_sequence})"
        product = mean_batch(self.records, self.batch) * self.sequence, f"global batch size x sequence length {words}"
        once = constant(self.attempt.fact("tokens") or np.nan, len(self.records)), "tokens per iteration, stated once"
        consumed = growth(self.records, "consumed_tokens")
        if len(consumed) > 1 and np.isnan(consumed[0]):
            # Nothing stands before the first record: it has the tokens of the second.
            consumed = np.concatenate([consumed[1:2], consumed[1:]])
        grown = consumed, "differences of consumed tokens"
        line = column("tokens"), "tokens of the line"
        if self.overrides.sequence_length or self.overrides.global_batch_size:
            counted = _first_known((line, once, grown))
            # What the log counts is no matter of opinion: options that contradict it are not used.
            if not counted or abs(times_of(product[0], counted[0]) - 1) <= SAME_COUNT:
                yield product
        yield line
        of_device = column("tokens_per_device") * (self.num_devices or np.nan)
        yield of_device, f"tokens per device of the line x {self.num_devices} devices"
        yield product
        yield once
        yield grown

    def result(self) -> Sizes:
        rate, words = _first_known(self._rates()) or (constant(np.nan, len(self.records)), "tokens per second")
        how_rate = f"logged {words}"
        known = _first_known(self._tokens())
        tokens, how_tokens = known or (rate * self.elapsed, f"{how_rate} x time")
        elapsed, how_time, has_times = self.elapsed, self.how_time, True
        if not np.any(np.isfinite(elapsed) & np.isfinite(tokens)) and np.isfinite(rate).any():
            # Rates alone. Where the tokens of an iteration are known, each rate is a time; else each counts alike.
            has_times = bool(np.any(np.isfinite(tokens) & np.isfinite(rate)))
            elapsed = tokens / rate if has_times else np.where(np.isfinite(rate), 1.0, np.nan)
            how_time = f"tokens / ({how_rate})" if has_times else f"{how_rate}, each iteration counted alike"
            tokens, how_tokens = (tokens, how_tokens) if has_times else (rate, how_rate)
        return Sizes(
            tokens=tokens,
            elapsed_s=elapsed,
            has_times=has_times,
            is_even=not self.attempt.fact("tokens_vary"),
            rate_counts=self.rate_counts,
            is_of_rates=known is None or not has_times,
            how_tokens=how_tokens,
            how_time=how_time,
            is_of_clock=self.is_of_clock,
            mean_s=self._mean_s(elapsed) if has_times else None,
            sequence=self.sequence,
            sequence_length=self.overrides.sequence_length or _last(self.sequence),
            how_sequence=self.how_sequence,
            global_batch_size=self.overrides.global_batch_size or _last(self.batch),
            how_batch=self.how_batch,
            num_devices=self.num_devices,
        )

    def _mean_s(self, elapsed: Column) -> float | None:
        """Return the mean of the times: of all logged ones, as published; of differences of a clock that of their iterations, whose numbers differ."""
        timed = np.isfinite(elapsed)
        if not timed.any():
            return None
        if not self.is_of_clock:
            return float(elapsed[timed].mean())
        return float(np.average(elapsed[timed], weights=_iterations_between(self.records)[timed]))


def _first_known(ways: Iterable[tuple[Column, str]]) -> tuple[Column, str] | None:
    return next((way for way in ways if np.isfinite(way[0]).any()), None)


def _last(column: Column) -> int | None:
    known = column[-1:] if (column[-1:] > 0).all() else column[column > 0]
    return int(known[-1]) if len(known) else None


def _filled(column: Column) -> Column:
    """Return `column` with gaps filled with the last known value before them, and at the front with the first."""
    known = np.flatnonzero(np.isfinite(column))
    if not len(known):
        return column
    before = np.maximum.accumulate(np.where(np.isfinite(column), np.arange(len(column)), known[0]))
    return column[before]
