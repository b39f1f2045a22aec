"""Tokens per second, in three definitions, and the time that a training on 20 million tokens would take."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.logs.record import Records
from nlp_bench.measure.estimate import Estimate
from nlp_bench.measure.habits import Habits
from nlp_bench.measure.interval import MIN_RECORDS, estimate_of
from nlp_bench.measure.sensitivity import Choice, sensitivity
from nlp_bench.measure.sizes import Sizes
from nlp_bench.measure.span import Spans, spans_of
from nlp_bench.measure.steadiness import Steadiness, steadiness_of
from nlp_bench.measure.summary import Summary
from nlp_bench.measure.sustained import Sustained, sustained_of
from nlp_bench.measure.window import Window, find_window

REPORT_TOKENS = 20_000_000
"""Tokens of the hypothetical training (NLP benchmark of the JUPITER suite)."""


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """What one attempt measured; rates in tokens per second of the whole machine."""

    reference: float | None
    """Batch * sequence / arithmetic mean of every logged time; None where the batch changes."""
    steady: float
    """Tokens / time over the steady window."""
    estimate: Estimate | None
    """`steady` as seconds per token with its uncertainty, None where that cannot be given."""
    seconds_per_iteration: Summary | None
    """Of the records of the window; None where the log has rates alone."""
    window: Window
    """The steady window."""
    spans: Spans
    """Every interval that has a time and a size, those outside the window too."""
    sizes: Sizes
    """Tokens and seconds of every record, and the way they were found."""
    steadiness: Steadiness
    """How steady the window is."""
    sensitivity: tuple[Choice, ...]
    """The rate under other windows."""
    sustained: Sustained | None = None
    """Tokens over wall clock, nothing left out; None where the log has rates alone."""

    @property
    def ci95(self) -> tuple[float, float] | None:
        """95 % interval of `steady`, None where it cannot be given."""
        return self.estimate.interval() if self.estimate else None

    @property
    def ending_seconds_per_token(self) -> float | None:
        """Seconds per token at which the run ends, where that is slower than the window; None where it is not."""
        ending = self.steadiness.ending
        return None if ending is None else ending * self.window.seconds / self.window.num_tokens

    @property
    def why_no_interval(self) -> str | None:
        """Say why `ci95` is missing, None when it is given."""
        if self.ci95:
            return None
        number = len(self.window.spans)
        if number < MIN_RECORDS:
            intervals = "1 logged interval" if number == 1 else f"{number} logged intervals"
            return f"no 95 % interval: the window has {intervals}, {MIN_RECORDS} are needed"
        if self.estimate is None:
            return "no 95 % interval: the times are rounded to one value, which hides how much they scatter"
        return "no 95 % interval: the times scatter too much to bound the rate"


def reference_tokens_per_second(sizes: Sizes) -> float | None:
    """Return the published formula's value: batch * sequence / mean of every logged elapsed time, warm-up included.

    Source: FZJ-JSC/jubench-megatron-lm benchmark/jube/nlp_benchmark.yaml, `tokens_per_second` over `elp_pat_avg`.
    None where no time was logged, the size is not known, or the size changes.
    """
    if not sizes.has_times:
        return None
    timed = np.isfinite(sizes.elapsed_s)
    tokens = sizes.tokens[timed]
    is_constant = len(tokens) > 0 and bool(np.isfinite(tokens[0]) and np.all(tokens == tokens[0]))
    return float(tokens[0] / np.mean(sizes.elapsed_s[timed])) if is_constant else None


def measure_records(records: Records, sizes: Sizes, habits: Habits = Habits()) -> Throughput | None:  # noqa: B008  # frozen
    """Measure one attempt; None when no record has both a time and a size in tokens."""
    spans = spans_of(records, sizes, log_interval=habits.log_interval, counts_from=habits.counts_from)
    if not len(spans):
        return None
    window = find_window(spans, habits)
    estimate = estimate_of(window.spans)
    reference = reference_tokens_per_second(sizes)
    return Throughput(
        reference=reference,
        steady=window.num_tokens / window.seconds,
        estimate=estimate,
        seconds_per_iteration=Summary.of(window.spans.elapsed_s) if sizes.has_times else None,
        window=window,
        spans=spans,
        sizes=sizes,
        steadiness=steadiness_of(window, estimate),
        sensitivity=sensitivity(spans, reference),
        sustained=sustained_of(spans, window.first_iteration) if sizes.has_times else None,
    )


def time_to_report_s(tokens: int, tokens_per_second: float | None) -> float | None:
    """Return tokens / (tokens per second), the benchmark's metric in seconds; None stays None."""
    return tokens / tokens_per_second if tokens_per_second else None
