"""When a measurement is long enough: a bound on the mean time of an iteration that may be looked at after every line of the log.

A 95 % interval holds the truth in 95 of 100 runs if it is looked at once, at a moment that was chosen before. With repeated looks and
a stop at a convenient one (optional stopping) it is wrong more often. A confidence sequence holds the truth at *all* moments at once in
95 of 100 runs, so any reason to stop is allowed. Sources: Robbins' normal mixture (H. Robbins 1970, Annals of Mathematical Statistics 41) in
its asymptotic form with an estimated variance (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and
asymptotic confidence sequences", Annals of Statistics 52, 2024, theorem 2.2); the variance from batch means whose batches grow with the
run (Yeh and Schmeiser 2000, doi:10.1109/WSC.2000.899781), so that neighbours' resemblance stays inside a batch. Coverage by simulation
and on real noise: docs/until.md.
"""

import itertools
import math
import re
from collections.abc import Iterable

from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.measure import Json
from nlp_bench.measure.estimate import LEVEL, least, student_t

WARM_UP = 20  # iterations never counted, one line at least: what is left out is fixed before anything is seen
UNSEEN_EVENT = 2.0
"""Iterations' worth of one event that was not seen yet: a stall, or a cluster of some, is added to the variance as if it had come once.
Without it an even run would end before its first stall. Chosen on real runs (docs/until.md): 1 misses the truth in 22 % of them."""
NUM_BATCHES = 32  # batches are merged in pairs when there are twice as many
MIN_BATCHES = 16
BEST_AT = 500  # iterations at which the sequence is narrowest; four times as many or as few cost 3 to 8 % of the width
DRIFT = 4 / 3
"""In wanted half widths: by how much the halves of a run may differ that stops. Where the bound, some three standard errors of the mean,
has just come within, halves of a steady run differ by two thirds of it (one standard deviation)."""
LARGEST_CORRELATION = 0.9
TORN = 1.02  # by what factor the bound may be wider that is worked out again from a log, of which a line may be lost
MOST_ITERATIONS = 10**9
MOST_EVEN = 10**6  # iterations after which it is no longer asked whether an even run would be enough
PERCENT = re.compile(r"(\d{1,2}(?:\.\d+)?|\.\d+) ?%")
_ROBBINS = -2 * math.log(1 - LEVEL)
_RHO_SQUARED = (_ROBBINS + math.log(_ROBBINS + 1)) / BEST_AT


def percent(name: str, text: str) -> float:
    """Return the share that a person means by `1%` or `0.5 %`: 0.01, 0.005. Raises UsageError that begins with `name`."""
    found = PERCENT.fullmatch(text.strip())
    share = float(found[1]) / 100 if found else 0.0
    if not share > 0:
        raise UsageError(f"{name}: {text!r} is no share in percent above 0 and below 100; write it as 1% or 0.5%")
    return share


@immutable
class Bound:
    """What is known after one line."""

    seconds_per_iteration: float  # mean over the counted iterations
    half_width: float  # of the confidence sequence at 95 %, as a share of the mean
    first_iteration: int
    last_iteration: int
    within: float
    is_steady: bool  # whether the two halves agree as far as halves of a steady run do
    needed: int | None
    """Iterations of a whole run that is as even as this one, until it would be within; None where they are beyond counting."""

    @property
    def is_enough(self) -> bool:
        """Whether the run may stop."""
        return self.half_width <= self.within and self.is_steady

    @property
    def is_proven(self) -> bool:
        """Whether the log shows that its run was allowed to stop."""
        return self.half_width <= TORN * self.within

    def text(self) -> str:
        """Return what is known, and what is missing, for a person."""
        known = f"the mean of iterations {self.first_iteration}-{self.last_iteration} is known to +-{100 * self.half_width:.2f} %"
        if self.is_enough:
            return f"{known} (95 % over all looks together)"
        if not self.is_steady and self.half_width <= self.within:
            return f"{known}, but its halves differ: it still changes its speed"
        if self.needed is None:
            return f"{known}; it scatters too much for any length"
        return f"{known}; a run of about {self.needed} iterations would do"

    def to_json(self) -> Json:
        """Return it as JSON."""
        names = ("within", "half_width", "seconds_per_iteration", "first_iteration", "last_iteration", "is_enough")
        return {**{name: getattr(self, name) for name in names}, "needed_iterations": self.needed}


class ConfidenceSequence:
    """The confidence sequence of one run, line by line; memory and time per line do not grow with the run."""

    def __init__(self, within: float, log_interval: int) -> None:
        """Want the mean to `within` (a share above 0) of itself; each line is the mean of `log_interval` iterations."""
        self._within, self._log_interval = within, log_interval
        self._begin()

    def _begin(self) -> None:
        self._first = self._seen = self._last = 0
        self._lines_per_batch = 1
        self._batches: list[float] = []
        self._sum, self._num_lines, self._open, self._num_open = 0.0, 0, 0.0, 0

    def add(self, iteration: int, elapsed_s: float) -> bool:
        """Take the line that ends with `iteration`, whose iterations took `elapsed_s` each; return whether it is time to look.

        A smaller iteration than before is a new start of the program. Lines of another length than log_interval and times that are not
        above 0 are not counted.
        """
        if iteration <= self._seen:
            self._begin()
        every = self._log_interval
        before = (iteration - 1) // every * every
        self._first = self._first or before + -(-WARM_UP // every) * every + 1
        self._seen = iteration
        if before + 1 < self._first or iteration % every or not 0 < elapsed_s < math.inf:
            return False
        self._last = iteration
        self._sum, self._num_lines = self._sum + elapsed_s, self._num_lines + 1
        self._open, self._num_open = self._open + elapsed_s, self._num_open + 1
        if self._num_open < self._lines_per_batch:
            return False
        self._batches.append(self._open / self._num_open)
        self._open, self._num_open = 0.0, 0
        if len(self._batches) == 2 * NUM_BATCHES:
            self._batches = [(one + two) / 2 for one, two in zip(self._batches[::2], self._batches[1::2], strict=True)]
            self._lines_per_batch *= 2
        return True

    def bound(self) -> Bound | None:
        """Return what is known now, None before MIN_BATCHES batches."""
        number = len(self._batches)
        if number < MIN_BATCHES:
            return None
        mean, iterations = self._sum / self._num_lines, self._num_lines * self._log_interval
        # Student's t in place of the normal quantile: the variance is estimated from few batches.
        from statistics import NormalDist  # noqa: PLC0415  # few callers need it, and start-up is measured

        inflation = student_t(0.5 + LEVEL / 2, number - 1) / NormalDist().inv_cdf(0.5 + LEVEL / 2)
        scale = inflation / mean
        variance = self._long_run_variance()
        half = len(self._batches) // 2
        halves = abs(math.fsum(self._batches[:half]) - math.fsum(self._batches[-half:])) / half
        width = scale * _half_width(variance, mean, iterations)
        return Bound(
            seconds_per_iteration=mean,
            half_width=width,
            first_iteration=self._first,
            last_iteration=self._last,
            within=self._within,
            is_steady=halves <= DRIFT * self._within * mean,
            needed=self._needed(scale, variance, mean, iterations),
        )

    def _long_run_variance(self) -> float:
        """Return the variance of the mean times its iterations: of batch means, neighbours' resemblance allowed for."""
        number = len(self._batches)
        mean = math.fsum(self._batches) / number
        centred = [value - mean for value in self._batches]
        total = math.fsum(value * value for value in centred)
        if total <= 0:
            return 0.0
        raw = math.fsum(one * two for one, two in itertools.pairwise(centred)) / total
        # Short series look less alike than they are (Kendall 1954).
        ratio = min(max((raw + 1 / number) / (1 - 4 / number), 0.0), LARGEST_CORRELATION)
        per_batch = self._lines_per_batch * self._log_interval
        return per_batch * total / (number - 1) * (1 + ratio) / (1 - ratio)

    def _needed(self, scale: float, variance: float, mean: float, iterations: int) -> int | None:
        def is_enough(number: int) -> bool:
            return scale * _half_width(variance, mean, number) <= self._within

        number, every = least(is_enough, max(iterations, 1), MOST_ITERATIONS, self._log_interval), self._log_interval
        return None if number is None else self._first - 1 + -(-number // every) * every


def replay(lines: Iterable[tuple[int, float]], within: float, log_interval: int) -> Bound | None:
    """Return the bound after the last of `lines` (iteration, seconds per iteration); None where they are too few."""
    sequence = ConfidenceSequence(within, log_interval)
    for iteration, elapsed_s in lines:
        sequence.add(iteration, elapsed_s)
    return sequence.bound()


def least_iterations(within: float, log_interval: int) -> int:
    """Return after how many iterations a run stops whose iterations all take the same time: no run stops before."""
    sequence, iteration = ConfidenceSequence(within, log_interval), 0
    while True:
        iteration += log_interval
        bound = sequence.bound() if sequence.add(iteration, 1.0) else None
        if bound and (bound.is_enough or iteration > MOST_EVEN):
            return iteration


def _half_width(variance: float, mean: float, iterations: int) -> float:
    """Return the half width in seconds per iteration, one unseen event allowed for."""
    mixture = iterations * _RHO_SQUARED
    factor = math.sqrt(2 * (mixture + 1) / mixture * math.log(math.sqrt(mixture + 1) / (1 - LEVEL)))
    return factor * math.sqrt((variance + (UNSEEN_EVENT * mean) ** 2 / iterations) / iterations)
