"""Whether B is faster than A: the ratio of their rates with its interval, from runs where there are several, else within one.

Several runs on both sides: the wider of Welch's interval (`estimate.ratio_of` over `estimate.over_runs`), which allows that one
side scatters more, and that of one common scatter (Student's t), which is exact where both scatter alike: Welch's alone finds a
difference between 2 and 10 equal runs in 9 % of all cases instead of 5 %.
One against several: a further run scatters like the several (their standard deviation * sqrt(1 + 1/n), n - 1 degrees of freedom),
or more where its own scatter within is larger.
One run each: the scatter within both; that shows whether two runs differ, never whether two machines do.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from nlp_bench.measure.estimate import LEVEL, Estimate, Ratio, ratio_of
from nlp_bench.measure.repeats import Pool

_EXACT = 1e-15
"""Relative standard error of a side whose uncertainty stands on the other."""


class Basis(Enum):
    """What a comparison rests on."""

    RUNS = "several runs each"
    ONE_TO_SEVERAL = "one run against several"
    ONE_EACH = "one run each"


class Verdict(Enum):
    """What it says about B."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE_FOUND = "no difference found"
    NO_INTERVAL = "no interval"


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """The comparison of two pools."""

    value: float
    """Rate of B / rate of A."""
    ratio: Ratio | None
    """The same with its interval, None where the runs do not show their scatter."""
    basis: Basis
    """What it rests on."""
    level: float
    """Of the interval: 95 % for all comparisons of one table together (Bonferroni)."""

    @property
    def verdict(self) -> Verdict:
        """B is faster or slower when the whole interval is."""
        if self.ratio is None:
            return Verdict.NO_INTERVAL
        return Verdict.FASTER if self.ratio.low > 1 else Verdict.SLOWER if self.ratio.high < 1 else Verdict.NONE_FOUND


def statistic(a: Pool, b: Pool, num_comparisons: int = 1) -> Statistic:
    """Compare two pools, each with at least one run."""
    level = 1 - (1 - LEVEL) / num_comparisons
    first, second = a.tokens_per_second or math.nan, b.tokens_per_second or math.nan
    several = (len(a.runs) > 1) + (len(b.runs) > 1)
    found = [ratio_of(one, two, level) for one, two in _pairs(a, b)]
    return Statistic(
        value=second / first,
        ratio=max(found, key=lambda ratio: ratio.high / ratio.low, default=None),
        basis=(Basis.ONE_EACH, Basis.ONE_TO_SEVERAL, Basis.RUNS)[several],
        level=level,
    )


def _pairs(a: Pool, b: Pool) -> Iterator[tuple[Estimate, Estimate]]:
    """Yield the estimates of A and B under each assumption that the runs allow; the one with the widest interval counts."""
    if a.estimate and b.estimate:
        # Of one run against several the scatter within that run alone, which is the larger one where a run is short.
        yield a.estimate, b.estimate
    elif len(a.runs) == len(b.runs) == 1:
        return
    common = _common(a, b)
    if common and a.tokens_per_second and b.tokens_per_second:
        error, degrees = common
        mean, other = 1 / a.tokens_per_second, 1 / b.tokens_per_second
        # All uncertainty of the ratio stands on one side, with its degrees of freedom.
        yield (
            Estimate(seconds_per_token=mean, standard_error=error * mean, degrees=degrees),
            Estimate(seconds_per_token=other, standard_error=_EXACT * other, degrees=1.0),
        )


def _common(a: Pool, b: Pool) -> tuple[float, float] | None:
    """Return the relative standard error of the ratio for one common scatter of all runs, and its degrees of freedom."""
    known = [(len(pool.runs) - 1, spread) for pool in (a, b) if (spread := pool.spread)]
    degrees = sum(number for number, _ in known)
    if not degrees:
        return None
    variance = sum(number * spread**2 for number, spread in known) / degrees
    return math.sqrt(variance * (1 / len(a.runs) + 1 / len(b.runs))), float(degrees)
