"""Entries without their samples: a report on thousands of logs keeps of each the sums that its tables show."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from nlp_bench.logs.record import Records
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.sizes import Sizes
from nlp_bench.measure.span import Spans
from nlp_bench.measure.throughput import Throughput

MAX_DRAWN = 1000
"""Logs whose runs have plots."""


@dataclass(frozen=True, kw_only=True)
class LeanSpans(Spans):
    """The first and the last interval, and the sums over all of them."""

    count: int
    """Intervals that the sums are over."""

    def __len__(self) -> int:
        return self.count


def lean(entry: RunEntry) -> RunEntry:
    """Return `entry` without samples. One without a provenance keeps them: nothing else tells where its numbers are from."""
    if entry.provenance is None:
        return entry
    throughput = _throughput(entry.throughput) if entry.throughput else None
    return replace(entry, records=_ends(entry.records), attempts={}, throughput=throughput)


def _throughput(measured: Throughput) -> Throughput:
    tail = measured.window.tail
    window = replace(measured.window, spans=_spans(measured.window.spans), tail=_spans(tail) if tail else None)
    return replace(measured, window=window, spans=_spans(measured.spans), sizes=_sizes(measured.sizes))


def _ends(records: Records) -> Records:
    # Copied: a view would keep all of them alive.
    return records.chosen(np.array([0, -1])) if len(records) > 1 else records


def _spans(spans: Spans) -> Spans:
    ends = np.array([0, -1])
    records = spans.records
    iterations = {
        "iteration": records.column("iteration")
    }  # what a window tells of its ends; `entry.records` has the rest
    return LeanSpans(
        records=Records(iterations, records.offsets, records.numbers, records.whole).chosen(ends),
        num_iterations=spans.num_iterations[ends],
        num_tokens=np.array([spans.num_tokens.sum()]),
        seconds=np.array([spans.seconds.sum()]),
        count=len(spans),
    )


def _sizes(sizes: Sizes) -> Sizes:
    columns: dict[str, Any] = {
        f.name: np.empty(0) for f in fields(sizes) if isinstance(getattr(sizes, f.name), np.ndarray)
    }
    return replace(sizes, **columns)
