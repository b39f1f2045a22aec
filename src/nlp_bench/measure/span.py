"""Which iterations a logged line stands for: a line every ten iterations is the mean of ten."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.record import Records
from nlp_bench.measure.sizes import Sizes


@dataclass(frozen=True, kw_only=True)
class Spans:
    """The records that have a time and a size, as columns."""

    records: Records
    """The logged intervals."""
    num_iterations: NDArray[np.float64]
    """Iterations that each record is the mean of."""
    num_tokens: NDArray[np.float64]
    """Tokens of all its iterations."""
    seconds: NDArray[np.float64]
    """Time of all its iterations together."""

    def __repr__(self) -> str:
        """Return it in a line: the columns of a long log fill a screen."""
        return f"<{len(self)} logged intervals, {self.num_iterations.sum():g} iterations, {self.seconds.sum():g} s>"

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, where: "slice[Any, Any, Any] | NDArray[Any]") -> "Spans":
        records = self.records.chosen(where)
        return Spans(
            records=records,
            num_iterations=self.num_iterations[where],
            num_tokens=self.num_tokens[where],
            seconds=self.seconds[where],
        )

    @property
    def first_iterations(self) -> NDArray[np.float64]:
        """The first iteration of each interval, as the log counts."""
        return self.records.column("iteration") - self.num_iterations + 1

    @property
    def elapsed_s(self) -> NDArray[np.float64]:
        """Seconds per iteration of each record."""
        return self.seconds / self.num_iterations

    @property
    def seconds_per_token(self) -> NDArray[np.float64]:
        """What the window and the interval are decided on: it stays comparable while the batch size ramps up."""
        return self.seconds / self.num_tokens


def iterations_per_record(
    records: Records, log_interval: int | None = None, counts_from: int = 1
) -> NDArray[np.float64]:
    """Return how many iterations each record covers: the step from the record before, at most the usual step.

    A larger step is a gap (a torn line, an excerpt that was joined), which the record did not measure.
    The usual step is `log_interval`, and where that is not known the most common one, the smallest of several.
    """
    iterations = records.column("iteration")
    if not len(iterations):
        return iterations
    steps = np.diff(iterations)
    usual = float(log_interval or 1)
    if not log_interval and len(steps) and steps.min() == steps.max():
        usual = max(1.0, float(steps[0]))
    elif not log_interval and len(steps):
        values, counts = np.unique(steps, return_counts=True)
        usual = max(1.0, float(values[np.argmax(counts)]))
    first = min(iterations[0] - counts_from + 1, usual)
    covered: NDArray[np.float64] = np.clip(np.concatenate([[first], steps]), 1, usual)
    return covered


def spans_of(records: Records, sizes: Sizes, *, log_interval: int | None = None, counts_from: int = 1) -> Spans:
    """Return the records that have a time and a size in tokens."""
    number = iterations_per_record(records, log_interval, counts_from)
    spans = Spans(
        records=records,
        num_iterations=number,
        num_tokens=sizes.tokens * number,
        seconds=sizes.elapsed_s * number,
    )
    # NaN is in no range; what is outside was never meant as tokens or seconds, and would overflow further on.
    usable = (spans.num_tokens > 1e-6) & (spans.num_tokens < 1e24) & (spans.seconds > 1e-12) & (spans.seconds < 1e15)
    return spans if usable.all() else spans[usable]
