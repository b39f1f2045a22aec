"""Which iterations a logged line stands for: a line every ten iterations is the mean of ten."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nlp_bench.logs.record import LogRecord


@dataclass(frozen=True, kw_only=True)
class Span:
    """One record that has a time, with the iterations that it covers and its size in tokens."""

    record: LogRecord
    """The logged interval; its `elapsed_s` is given."""
    num_iterations: int
    """Iterations that the record is the mean of."""
    num_tokens: int
    """Tokens of all its iterations: batch * sequence * iterations."""

    @property
    def first_iteration(self) -> int:
        """The first iteration of the interval, counted from 1."""
        return self.record.iteration - self.num_iterations + 1

    @property
    def seconds(self) -> float:
        """Time of all its iterations together."""
        return (self.record.elapsed_s or 0.0) * self.num_iterations

    @property
    def seconds_per_token(self) -> float:
        """What the window and the interval are decided on: it stays comparable while the batch size ramps up."""
        return self.seconds / self.num_tokens


def iterations_per_record(records: Sequence[LogRecord], log_interval: int | None = None) -> list[int]:
    """Return how many iterations each record covers: the step from the record before, at most the usual step.

    A larger step is a gap (a torn line, an excerpt that was joined), which the record did not measure.
    The usual step is `log_interval`, and where that is not known the most common one, the smallest of several.
    """
    steps = [later.iteration - earlier.iteration for earlier, later in itertools.pairwise(records)]
    counts = Counter(steps)
    most_common = max(counts, key=lambda step: (counts[step], -step)) if counts else 1
    usual = log_interval or most_common
    first = min(records[0].iteration, usual) if records else usual
    return [max(1, min(step, usual)) for step in [first, *steps]][: len(records)]


def spans_of(
    records: Sequence[LogRecord],
    *,
    sequence_length: int,
    global_batch_size: int | None = None,
    log_interval: int | None = None,
) -> list[Span]:
    """Return the records that have a time and a batch size (the record's own, else `global_batch_size`), with their tokens."""
    spans = []
    for record, count in zip(records, iterations_per_record(records, log_interval), strict=True):
        batch = record.global_batch_size or global_batch_size
        if record.elapsed_s and batch:
            spans.append(Span(record=record, num_iterations=count, num_tokens=batch * sequence_length * count))
    return spans
