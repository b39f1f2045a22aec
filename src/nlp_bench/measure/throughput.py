"""Tokens per second, in two definitions, and the time that a training on 20 million tokens would take."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.logs.record import Records
from nlp_bench.measure.interval import MIN_RECORDS, interval95
from nlp_bench.measure.sizes import Sizes
from nlp_bench.measure.span import Spans, spans_of
from nlp_bench.measure.summary import Summary
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
    ci95: tuple[float, float] | None
    """95 % interval of `steady`, None where it cannot be given."""
    seconds_per_iteration: Summary | None
    """Of the records of the window; None where the log has rates alone."""
    window: Window
    """The steady window."""
    spans: Spans
    """Every interval that has a time and a size, those outside the window too."""
    sizes: Sizes
    """Tokens and seconds of every record, and the way they were found."""

    @property
    def why_no_interval(self) -> str | None:
        """Say why `ci95` is missing, None when it is given."""
        if self.ci95:
            return None
        number = len(self.window.spans)
        if number < MIN_RECORDS:
            return f"no 95 % interval: the window has {number} logged interval(s), {MIN_RECORDS} are needed"
        seconds = self.window.spans.seconds_per_token
        if seconds.max() <= seconds.min() * (1 + 1e-12):
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


def measure_records(
    records: Records, sizes: Sizes, *, log_interval: int | None = None, counts_from: int = 1
) -> Throughput | None:
    """Measure one attempt; None when no record has both a time and a size in tokens."""
    spans = spans_of(records, sizes, log_interval=log_interval, counts_from=counts_from)
    if not len(spans):
        return None
    window = find_window(spans, counts_from)
    return Throughput(
        reference=reference_tokens_per_second(sizes),
        steady=window.num_tokens / window.seconds,
        ci95=interval95(window.spans),
        seconds_per_iteration=Summary.of(window.spans.elapsed_s) if sizes.has_times else None,
        window=window,
        spans=spans,
        sizes=sizes,
    )


def time_to_report_s(tokens: int, tokens_per_second: float | None) -> float | None:
    """Return tokens / (tokens per second), the benchmark's metric in seconds; None stays None."""
    return tokens / tokens_per_second if tokens_per_second else None
