"""The samples of a run as the few points that a plot needs: a log of a million intervals becomes some kilobytes.

Points are left out by groups of neighbours, of which the lowest and the highest stay where they are: the envelope is that of all
points, and every point that is left is one of the log.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.record import Column, Records
from nlp_bench.measure.series import Indices
from nlp_bench.measure.throughput import Throughput

MAX_POINTS = 600  # points of one curve that are kept of a run
IN_WINDOW = ""  # the key of the points of the steady window


@immutable
class Curve:
    """Some points of one quantity, in the order of x."""

    xs: Column  # iterations, or seconds per iteration
    ys: Column
    num_all: int  # points of the log that these stand for

    @classmethod
    def of(cls, xs: Column, ys: Column, max_points: int = MAX_POINTS) -> "Curve":
        """Keep at most `max_points`, at least 4, of the points."""
        kept = _kept(ys, max(max_points, 4))
        return cls(xs=xs[kept], ys=ys[kept], num_all=len(xs))

    def fewer(self, max_points: int) -> "Curve":
        """Return at most `max_points` of these points."""
        return replace(Curve.of(self.xs, self.ys, max_points), num_all=self.num_all)


@immutable
class Curves:
    """What is drawn of one run."""

    rates: Mapping[str, Curve]  # tokens/s over iterations by why the interval does not count; IN_WINDOW where it does
    loss: Curve | None  # training loss over iterations, None where the log has none
    step_times: Curve | None  # share of the window's records, 0 to 1, over seconds per iteration; None: rates alone

    def fewer(self, max_points: int) -> "Curves":
        """Return the same with at most `max_points` in each line, and a fifth of that in what does not count."""
        # What does not count is drawn as single marks, which take more room than a line.
        marks = max_points // 5
        return Curves(
            rates={why: curve.fewer(marks if why else max_points) for why, curve in self.rates.items()},
            loss=self.loss.fewer(max_points) if self.loss else None,
            step_times=self.step_times.fewer(max_points) if self.step_times else None,
        )


def curves_of(records: Records, measured: Throughput) -> Curves:
    """Return the curves of a run whose samples are all there."""
    spans, window = measured.spans, measured.window
    iterations, rates = spans.records.column("iteration"), 1 / spans.seconds_per_token
    inside = np.isin(iterations, window.spans.records.column("iteration"))
    reasons = window.why(iterations)
    found = {IN_WINDOW: Curve.of(iterations[inside], rates[inside])}
    for why in dict.fromkeys(excluded.why for excluded in window.excluded):
        there = ~inside & (reasons == why)
        if there.any():
            found[why] = Curve.of(iterations[there], rates[there])
    losses, step_times = records.column("lm_loss"), None
    known = np.isfinite(losses)
    loss = Curve.of(records.column("iteration")[known], losses[known]) if known.any() else None
    if measured.sizes.has_times:
        times = np.sort(window.spans.elapsed_s)
        # Evenly spread over the ranks: here the envelope is the curve itself.
        ranks = np.unique(np.linspace(0, len(times) - 1, min(len(times), MAX_POINTS)).round().astype(int))
        step_times = Curve(xs=times[ranks], ys=(ranks + 1) / len(times), num_all=len(times))
    return Curves(rates=found, loss=loss, step_times=step_times)


def _kept(ys: Column, max_points: int) -> Indices:
    number = len(ys)
    if number <= max_points:
        return np.arange(number)
    edges = np.linspace(0, number, max_points // 2).astype(int)  # two points a group, and both ends
    groups = [(begin, ys[begin:end]) for begin, end in pairwise(edges)]
    kept = [begin + place for begin, group in groups for place in (int(group.argmin()), int(group.argmax()))]
    return np.unique(np.array([0, *kept, number - 1]))
