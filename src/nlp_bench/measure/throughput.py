"""Tokens per second, in three definitions, and the time that a training on 20 million tokens would take."""

from dataclasses import replace
from enum import Enum

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.record import Column, Records
from nlp_bench.measure import Json
from nlp_bench.measure.estimate import MAX_HALF_WIDTH, Estimate, Pair
from nlp_bench.measure.interval import MIN_RECORDS, estimate_of
from nlp_bench.measure.series import median, misread_midnights, quantile, steps_of, zone_change
from nlp_bench.measure.sizes import NO_SPANS, Sizes, Spans, spans_of
from nlp_bench.measure.window import WORDS, LogConventions, Steadiness, Window, find_window, num_more, steadiness_of


@immutable(kw_only=False)
class Summary:
    """Seconds per iteration over the records of the window, each record counted once."""

    mean: float
    median: float
    p95: float  # 95th percentile in seconds, by linear interpolation between closest ranks (Hyndman and Fan's type 7)
    p99: float
    cv: float | None  # sample standard deviation / mean, without unit; None for a single record

    @classmethod
    def of(cls, seconds: Column) -> "Summary":
        """Summarise `seconds`, which is not empty."""
        centre = float(np.mean(seconds))
        ordered = np.sort(seconds)
        median, p95, p99 = (quantile(ordered, share) for share in (0.5, 0.95, 0.99))
        cv = float(np.std(seconds, ddof=1)) / centre if len(seconds) > 1 else None
        return cls(centre, median, p95, p99, cv)


@immutable(kw_only=False)
class Choice:
    """The rate of one window."""

    name: str
    used_by: str
    num_records: int
    tokens_per_second: float  # tokens / time of these intervals; of the whole machine

    def to_json(self, tokens: int) -> Json:
        """Return it with the time of the hypothetical training."""
        return {
            "window": self.name,
            "used_by": self.used_by,
            "num_records": self.num_records,
            "tokens_per_second": self.tokens_per_second,
            "time_to_report_s": tokens / self.tokens_per_second,
        }


def sensitivity(spans: Spans, reference: float | None) -> tuple[Choice, ...]:
    """Return the rate under every window that the log is long enough for; windows with the same intervals stand in one row.

    Sources: FZJ-JSC/jubench-megatron-lm benchmark/jube/nlp_benchmark.yaml; NVIDIA/NeMo nemo/collections/llm/tools/auto_configurator/core/
    calculate_performance.py; NVIDIA/NeMo-Framework-Launcher auto_configurator/autoconfig/scripts/compare_throughput.py; NVIDIA/cloudai
    report_generator/training/models.py and megatron_run/report_generation_strategy.py; AI-Hypercomputer/gpu-recipes
    process_training_results.py; NVIDIA/dgxc-benchmarking pretrain_log_parser.py; NVIDIA-NeMo/Megatron-Bridge
    performance/argument_parser.py and utils/evaluate.py; mosaicml/llm-foundry collect_results.py; AMD-AGI/Primus benchmark_report.py.
    """
    number, firsts, lasts = len(spans), spans.first_iterations, spans.records.column("iteration")

    def between(first: int, last: int) -> tuple[int, int]:
        # All of the window has to be there: a log that is too short does not have it.
        is_there = lasts[-1] >= last and firsts[0] <= first
        return (int(np.searchsorted(firsts, first)), int(np.searchsorted(lasts, last, "right"))) if is_there else (0, 0)

    windows = (
        ("all lines but the first", "NeMo 2 auto-configurator", (1, number)),
        ("iterations after 5", "NeMo Launcher, CloudAI (JSON)", (int(np.searchsorted(firsts, 5, "right")), number)),
        ("iterations 10 to 30", "GCP gpu-recipes", between(10, 30)),
        ("iterations 35 to 44", "NVIDIA dgxc-benchmarking", between(35, 44)),
        # At least the first is left out, as Megatron-Bridge does: max(1, int(len(steps) * share)).
        ("all but the first 10 %", "Megatron-Bridge (function)", (max(1, int(0.1 * number)), number)),
        ("the last 30 %", "Megatron-Bridge (command line)", (max(1, int(0.7 * number)), number)),
        ("the last 10 lines", "CloudAI (CSV), Megatron-Bridge model cards", (max(0, number - 10), number)),
        ("the last line", "llm-foundry, Primus", (number - 1, number)),
    )
    found: dict[tuple[int, int], Choice] = {}
    for name, used_by, (begin, end) in windows:
        if same := found.get((begin, end)):
            found[begin, end] = replace(same, name=f"{same.name} = {name}", used_by=f"{same.used_by}; {used_by}")
        elif begin < end:
            rate = float(spans.num_tokens[begin:end].sum() / spans.seconds[begin:end].sum())
            found[begin, end] = Choice(name, used_by, end - begin, rate)
    if reference is None:
        return tuple(found.values())
    used_by = "jubench-megatron-lm, CARAML (the reference value)"
    return (Choice("the mean of all lines", used_by, number, reference), *found.values())


class Clock(Enum):
    """By what the wall clock of a run is known, as it is printed."""

    STAMPS = "time of day of the lines"
    SET_BACK = "time of day of the lines, where it goes back, or a month or a year on, the logged time"
    ZONE_CHANGE = "time of day of the lines, less the hour by which it was set forward"
    LOGGED = "sum of the logged times"


FINE = 0.02  # times of day whose step is at most this share of an interval tell how the intervals scatter


@immutable
class Sustained:
    """Tokens over wall clock."""

    tokens_per_second: float  # of the whole machine
    estimate: Estimate | None
    first_iteration: int  # first iteration that counts, the same as that of the steady window
    last_iteration: int
    seconds: float  # wall clock
    clock: Clock
    num_missing: int = 0  # lines in between that are not in the sum of the logged times; the time of day has them
    num_untimed: int = 0  # likewise of evaluations and checkpoints that the log speaks of

    @property
    def ci95(self) -> Pair | None:
        """95 % interval in tokens per second, lowest first; None where it cannot be given."""
        return self.estimate.interval() if self.estimate else None

    def to_json(self, tokens: int) -> Json:
        """Return the `sustained` object of nlp-bench/report/1, with the time of a training on `tokens` tokens."""
        interval, times_s = self.ci95, times_to_report_s(tokens, self.ci95)
        return {
            "tokens_per_second": self.tokens_per_second,
            "ci95": interval and list(interval),
            "time_to_report_s": tokens / self.tokens_per_second,
            "time_to_report_ci95_s": times_s and list(times_s),
            "first_iteration": self.first_iteration,
            "last_iteration": self.last_iteration,
            "wall_clock_s": self.seconds,
            "clock": self.clock.value,
        }


def _printed(spans: Spans, *, is_of_clock: bool) -> Column | None:
    """Return the times, or the rates, of these records as the log prints them; None where they are differences of its clock."""
    times = spans.records.column("elapsed_s")
    if np.isfinite(times).all():
        return times
    return None if is_of_clock else spans.num_tokens / spans.seconds


def sustained_of(
    spans: Spans, first_iteration: int, *, is_of_clock: bool = False, steady: tuple[int, Estimate | None] = (-1, None)
) -> Sustained:
    """Return the sustained rate of `spans` from `first_iteration` on (`is_of_clock` as of `Sizes`); `steady`: how many of these intervals are in the window, and their estimate."""
    start = int(np.argmax(spans.first_iterations >= first_iteration))
    part, stamps = spans[start:], spans.records.column("stamp_s")
    seconds, num_tokens = float(part.seconds.sum()), float(part.num_tokens.sum())
    # The time of day at which the first interval begins, and at which it and each after it ends; NaN where it is not known.
    ticks = np.concatenate([[stamps[start - 1] if start else stamps[0] - spans.seconds[0]], stamps[start:]])
    known = np.flatnonzero(np.isfinite(ticks))
    wall, clock = np.nan, Clock.STAMPS
    if len(known) > 1 and np.isfinite(ticks[[0, -1]]).all():
        steps, own = steps_of(ticks[known]), np.add.reduceat(part.seconds, known[:-1])
        # A clock that is set back would take away what passed before, summer time would add an hour, a misread date a month or a year.
        is_back, is_forward = (steps < 0) | misread_midnights(steps, own), zone_change(steps, own)
        clock = Clock.SET_BACK if is_back.any() else Clock.ZONE_CHANGE if is_forward.any() else Clock.STAMPS
        wall = float(np.where(is_back | is_forward, own, steps).sum())
    has_stamps = bool(wall >= seconds)  # NaN is not
    covered = float(part.num_iterations.sum())
    passed = float(part.records.column("iteration")[-1]) - float(part.first_iterations[0]) + 1
    num_missing = round((passed - covered) / median(part.num_iterations))
    if has_stamps:
        num_tokens = num_tokens * passed / covered
        steps, resolution = steps_of(ticks), part.records.stamp_resolution_s
        is_sharp = resolution is not None and resolution <= FINE * median(steps)
        is_fine = is_sharp and clock is Clock.STAMPS and bool(np.all(steps > 0))
        part = replace(part, seconds=steps if is_fine else part.seconds * (wall / seconds))
        seconds = wall
    if not has_stamps and steady[0] == len(part):
        estimate = steady[1]
    else:
        estimate = estimate_of(part, None if has_stamps else _printed(part, is_of_clock=is_of_clock))
    if estimate:  # of the mean of the lines; gaps between them belong to the wall clock
        mean = seconds / num_tokens
        error = estimate.standard_error * (mean / estimate.seconds_per_token)
        estimate = replace(estimate, seconds_per_token=mean, standard_error=error)
    return Sustained(
        tokens_per_second=num_tokens / seconds,
        estimate=estimate,
        first_iteration=first_iteration,
        last_iteration=int(spans.records.column("iteration")[-1]),
        seconds=seconds,
        clock=clock if has_stamps else Clock.LOGGED,
        num_missing=0 if has_stamps else max(num_missing, 0),
    )


@immutable
class Throughput:
    """What one attempt measured; rates in tokens per second of the whole machine."""

    reference: float | None  # batch * sequence / arithmetic mean of every logged time; None where the batch changes
    steady: float  # tokens / time over the steady window
    estimate: Estimate | None  # `steady` as seconds per token with its uncertainty, None where that cannot be given
    seconds_per_iteration: Summary | None  # of the records of the window; None where the log has rates alone
    window: Window
    spans: Spans  # all intervals that have a time and a size; none where the samples were not kept
    num_records: int
    sizes: Sizes
    steadiness: Steadiness
    sensitivity: tuple[Choice, ...]
    sustained: Sustained | None = None  # tokens over wall clock, nothing left out; None where the log has rates alone

    @property
    def ci95(self) -> Pair | None:
        """95 % interval of `steady`, None where it cannot be given."""
        return self.estimate.interval() if self.estimate else None

    @property
    def num_more(self) -> int | None:
        """Further logged intervals for an interval of +-1 %; 0 where it is as narrow already, None where that cannot be told."""
        return num_more(self.estimate, self.window.num_records) if self.estimate else None

    @property
    def ending_seconds_per_token(self) -> float | None:
        """Seconds per token at which the run ends, where that is slower than the window; None where it is not."""
        ending = self.steadiness.ending
        return None if ending is None else ending * self.window.seconds / self.window.num_tokens

    def without_samples(self) -> "Throughput":
        """Return the same without what belongs to single records: a report on thousands of logs keeps the sums alone."""
        empty = np.empty(0)
        sizes = replace(self.sizes, tokens=empty, elapsed_s=empty, sequence=empty)
        return replace(self, window=replace(self.window, spans=NO_SPANS, tail=NO_SPANS), spans=NO_SPANS, sizes=sizes)

    @property
    def why_no_interval(self) -> str | None:
        """Say why `ci95` is missing, None when it is given."""
        if self.ci95:
            return None
        if (number := self.window.num_records) < MIN_RECORDS:
            intervals = f"{number} logged interval{'s' * (number > 1)}"
            return f"no 95 % interval: the window has {intervals}, {MIN_RECORDS} are needed"
        if self.estimate is None:
            return "no 95 % interval: the times are rounded to one value, which hides how much they scatter"
        return f"no 95 % interval: it would be wider than +-{100 * MAX_HALF_WIDTH:.0f} %"


def reference_tokens_per_second(sizes: Sizes) -> float | None:
    """Return the published formula's value: batch * sequence / mean of every logged elapsed time (`Sizes.mean_s`), warm-up included.

    Source: FZJ-JSC/jubench-megatron-lm benchmark/jube/nlp_benchmark.yaml, `tokens_per_second` over `elp_pat_avg`.
    None where no time was logged, the size is not known, or the size changes.
    """
    if sizes.mean_s is None:
        return None
    tokens = sizes.tokens[np.isfinite(sizes.elapsed_s)]
    is_constant = bool(np.isfinite(tokens[0]) and np.all(tokens == tokens[0]))
    return float(tokens[0] / sizes.mean_s) if is_constant else None


def measure_records(records: Records, sizes: Sizes, conventions: LogConventions) -> Throughput | None:
    """Measure one attempt; None when no record has both a time and a size in tokens."""
    spans = spans_of(records, sizes, log_interval=conventions.log_interval, counts_from=conventions.counts_from)
    if not len(spans):
        return None
    window = find_window(spans, conventions)
    estimate = estimate_of(window.spans, _printed(window.spans, is_of_clock=sizes.is_of_clock))
    reference, steady, sustained = reference_tokens_per_second(sizes), (len(window.spans), estimate), None
    if sizes.has_times:
        sustained = sustained_of(spans, window.first_iteration, is_of_clock=sizes.is_of_clock, steady=steady)
        has_clock = sizes.is_of_clock or bool(spans.records.has("stamp_s").any())
        if not has_clock and window.set_aside.keys().isdisjoint(WORDS):
            first, last = (float(line.records.offsets[0]) for line in (window.spans[:1], spans[-1:]))
            sustained = replace(sustained, num_untimed=sum(first < event.offset < last for event in conventions.events))
    return Throughput(
        reference=reference,
        steady=window.num_tokens / window.seconds,
        estimate=estimate,
        seconds_per_iteration=Summary.of(window.spans.elapsed_s) if sizes.has_times else None,
        window=window,
        spans=spans,
        num_records=len(spans),
        sizes=sizes,
        steadiness=steadiness_of(window),
        sensitivity=sensitivity(spans, reference),
        sustained=sustained,
    )


def time_to_report_s(tokens: int, tokens_per_second: float | None) -> float | None:
    """Return tokens / (tokens per second), the benchmark's metric in seconds; None stays None."""
    return tokens / tokens_per_second if tokens_per_second else None


def times_to_report_s(tokens: int, interval: Pair | None) -> Pair | None:
    """Return the interval of that time from one of the rate, shortest first; None stays None."""
    return (tokens / interval[1], tokens / interval[0]) if interval else None
