"""Tokens per second, in two definitions, and the time that a training on 20 million tokens would take."""

from collections.abc import Sequence
from dataclasses import dataclass

from nlp_bench.logs.record import LogRecord
from nlp_bench.measure.interval import MIN_RECORDS, interval95
from nlp_bench.measure.span import spans_of
from nlp_bench.measure.summary import Summary, mean
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
    seconds_per_iteration: Summary
    """Of the records of the window."""
    window: Window
    """The steady window."""

    @property
    def why_no_interval(self) -> str | None:
        """Say why `ci95` is missing, None when it is given."""
        if self.ci95:
            return None
        number = len(self.window.spans)
        if number < MIN_RECORDS:
            return f"no 95 % interval: the window has {number} logged interval(s), {MIN_RECORDS} are needed"
        return "no 95 % interval: the times scatter too much to bound the rate"


def reference_tokens_per_second(
    records: Sequence[LogRecord], *, sequence_length: int, global_batch_size: int | None = None
) -> float | None:
    """Return the published formula's value: batch * sequence / mean of every logged elapsed time, warm-up included.

    Source: FZJ-JSC/jubench-megatron-lm benchmark/jube/nlp_benchmark.yaml, `tokens_per_second` over `elp_pat_avg`.
    None where no time was logged, no batch size is known, or the batch size changes.
    """
    times = [record.elapsed_s for record in records if record.elapsed_s]
    batches = {record.global_batch_size or global_batch_size for record in records if record.elapsed_s}
    batch = batches.pop() if len(batches) == 1 else None
    return batch * sequence_length / mean(times) if batch else None


def measure_records(
    records: Sequence[LogRecord],
    *,
    sequence_length: int,
    global_batch_size: int | None = None,
    log_interval: int | None = None,
) -> Throughput | None:
    """Measure one attempt; None when no record has both a time and a batch size."""
    spans = spans_of(
        records, sequence_length=sequence_length, global_batch_size=global_batch_size, log_interval=log_interval
    )
    if not spans:
        return None
    window = find_window(spans)
    return Throughput(
        reference=reference_tokens_per_second(
            records, sequence_length=sequence_length, global_batch_size=global_batch_size
        ),
        steady=window.num_tokens / window.seconds,
        ci95=interval95(window.spans),
        seconds_per_iteration=Summary.of([span.record.elapsed_s or 0.0 for span in window.spans]),
        window=window,
    )


def time_to_report_s(tokens: int, tokens_per_second: float | None) -> float | None:
    """Return tokens / (tokens per second), the benchmark's metric in seconds; None stays None."""
    return tokens / tokens_per_second if tokens_per_second else None
