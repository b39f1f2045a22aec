"""Whether B is faster than A: the ratio of their rates with its interval, on the logarithm, from the scatter between runs.

Several runs on both sides: Student's t with the scatter of all runs together (pooled t) where it may be one and the same, else the wider
of that and Welch's, which allows that one side scatters more. Which of the two is fixed before their means are looked at (`_method`): by
whether both ran on the same machine, by their numbers, and by an F test of their scatters.
One against several: a further run scatters like the several (their standard deviation * sqrt(1 + 1/n), n - 1 degrees of freedom),
or more where its own scatter within is larger.
One run each: the scatter within both. That proves nothing about two machines: runs of the same one differ too.
Other runs of the same machine may show by how much (`Scatter`): their degrees of freedom are added, and one run each is enough.
Error rates and power of each: `tests/compare/calibration.py`, docs/compare.md.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum

from nlp_bench.analysis.repeats import Pool
from nlp_bench.immutable import immutable
from nlp_bench.measure.estimate import LEVEL, Estimate, Ratio, ratio_of, student_t, variance_ratio_tail

UNEQUAL = 0.02
"""Level of the F test of equal scatters; one-sided: the larger group scatters more than the smaller, or the compared runs more than others."""
MOST_RUNS = 1.25
"""Ratio of the sides' numbers of runs. Beyond it the pooled t is often wrong where the smaller group scatters more, and has little power
where the larger does."""
FEW_SCATTER = 0.3  # level of the one-sided F test that the smaller group scatters more
USUAL_SCATTER = 0.01  # cv between runs that is assumed where none is known, to count the runs that are needed
POWER = 0.8  # share of comparisons that so many runs decide
MAX_EACH = 200
_EXACT = 1e-15  # relative standard error of a side whose uncertainty the other one carries


class Basis(Enum):
    """What a comparison rests on."""

    RUNS = "several runs each"
    ONE_TO_SEVERAL = "one run against several"
    ONE_EACH = "one run each"


class Method(Enum):
    """Whose scatter the interval is made of."""

    POOLED = "pooled t"
    WELCH = "Welch's t"
    WIDER = "wider of Welch's t and pooled t"
    FURTHER_RUN = "a further run"
    WITHIN = "scatter within the runs"


class Verdict(Enum):
    """What the comparison says about B."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE_FOUND = "no difference found"
    DOUBTED = "doubted"
    NEEDS_REPEATS = "not proven"
    NO_INTERVAL = "no interval"


@immutable
class Scatter:
    """The scatter between runs of one configuration."""

    cv: float
    degrees: float

    @classmethod
    def of(cls, pool: Pool) -> "Scatter | None":
        """Return that of `pool`, None where it was not repeated or its runs do not differ at all."""
        return cls(cv=pool.spread, degrees=len(pool.runs) - 1) if pool.spread else None

    @classmethod
    def joined(cls, parts: Sequence["Scatter"]) -> "Scatter | None":
        """Return the pooled scatter of all `parts`; None of none."""
        degrees = math.fsum(part.degrees for part in parts)
        if not parts:
            return None
        return cls(cv=math.sqrt(math.fsum(part.degrees * part.cv**2 for part in parts) / degrees), degrees=degrees)

    def tail(self, other: "Scatter") -> float:
        """Return the probability that this one is at least so much larger than `other` if both are the same."""
        return variance_ratio_tail((self.cv / other.cv) ** 2, self.degrees, other.degrees)

    def over(self, a: Pool, b: Pool) -> tuple[Estimate, Estimate]:
        """Return the means of two pools whose runs scatter so."""
        one, two = (1 / (pool.tokens_per_second or math.nan) for pool in (a, b))
        error = self.cv * math.sqrt(1 / len(a.runs) + 1 / len(b.runs))
        # One side carries all uncertainty of the ratio, with its degrees of freedom.
        return (
            Estimate(seconds_per_token=one, standard_error=error * one, degrees=self.degrees),
            Estimate(seconds_per_token=two, standard_error=_EXACT * two, degrees=1.0),
        )


@immutable
class Statistic:
    """The comparison of two pools."""

    value: float  # rate of B / rate of A
    ratio: Ratio | None  # the same with its interval, None where the runs do not show their scatter
    both_sides: Ratio | None = None  # the same with the interval of two one-sided tests at 5 % each
    basis: Basis
    method: Method = Method.POOLED
    known: Scatter | None = None  # scatter between other runs of the machine, None where it is not known
    is_used: bool = False  # whether that is part of the interval: not where the compared runs scatter more (F test)
    scatter: Scatter | None = None  # scatter between runs, None where it is not known
    is_doubted: bool = False  # whether there is a doubt about one of the runs (`RunResult.doubts`)
    a_slower: float = 1.0  # factor on A's time if the slowest start in each of its logs counted
    b_slower: float = 1.0  # the same of B
    at_ends: float = 1.0  # factor on `value` if each run took as long as it does at its end
    level: float  # of the interval: 95 % for all comparisons of one table together (Bonferroni)

    @property
    def is_provable(self) -> bool:
        """Return whether the scatter between runs of the machine is known, and no run is doubted: otherwise the runs prove nothing."""
        return self.ratio is not None and self.method is not Method.WITHIN and not self.is_doubted

    @property
    def verdict(self) -> Verdict:
        """B is faster or slower when the whole interval is, and the scatter of runs is in it."""
        if self.ratio is None:
            return Verdict.NO_INTERVAL
        if self.is_doubted:
            return Verdict.DOUBTED
        if not self.is_provable:
            return Verdict.NEEDS_REPEATS
        return Verdict.FASTER if self.ratio.low > 1 else Verdict.SLOWER if self.ratio.high < 1 else Verdict.NONE_FOUND

    def runs_each(self, threshold: float) -> int | None:
        """Return how many runs of each side would distinguish a true ratio of `value` from `threshold` in `POWER` of the cases.

        They are assumed to scatter as these do, or by USUAL_SCATTER where that is not known. None above MAX_EACH.
        """
        cv, distance = self.scatter.cv if self.scatter else USUAL_SCATTER, abs(math.log(self.value / threshold))
        for number in range(2, MAX_EACH + 1):
            degrees = 2 * number - 2
            factor = student_t(0.5 + self.level / 2, degrees) + student_t(POWER, degrees)
            if factor * cv * math.sqrt(2 / number) <= distance:
                return number
        return None


def statistic(
    a: Pool, b: Pool, num_comparisons: int = 1, *, same_machine: bool = True, known: Scatter | None = None
) -> Statistic:
    """Compare two pools, each with at least one run; `known` is the scatter between other runs of the same machine."""
    wrong = (1 - LEVEL) / num_comparisons
    several = (len(a.runs) > 1) + (len(b.runs) > 1)
    if a.is_too_alike or b.is_too_alike:
        known, own = None, list[Scatter]()  # how much runs differ is then not known, whatever others show
    else:
        own = [scatter for pool in (a, b) if (scatter := Scatter.of(pool))]
    used = known if known and all(scatter.tail(known) > UNEQUAL for scatter in own) else None
    common = Scatter.joined([*own, *([used] if used else [])])
    if several < 2:
        method = Method.FURTHER_RUN if common else Method.WITHIN
    else:
        method = Method.POOLED if used or len(own) < 2 else _method(own, same_machine=same_machine)
    pairs = [common.over(a, b)] if common and method is not Method.WELCH else []
    if method is not Method.POOLED and a.estimate and b.estimate:
        one, two = a.estimate, b.estimate
        if common:
            # Of one run the noise within it alone, which dominates where a run is short; its stalls are part of the scatter between runs.
            one, two = replace(one, uncertainty=None), replace(two, uncertainty=None)
        pairs.append((one, two))
    return Statistic(
        value=(b.tokens_per_second or math.nan) / (a.tokens_per_second or math.nan),
        ratio=_widest(pairs, 1 - wrong),
        both_sides=_widest(pairs, 1 - 2 * wrong),
        basis=(Basis.ONE_EACH, Basis.ONE_TO_SEVERAL, Basis.RUNS)[several],
        method=method,
        known=known,
        is_used=used is not None,
        scatter=common,
        is_doubted=a.is_doubted or b.is_doubted,
        a_slower=a.slower_by_starts,
        b_slower=b.slower_by_starts,
        at_ends=a.slower_by_ends / b.slower_by_ends,
        level=1 - wrong,
    )


def _method(scatters: Sequence[Scatter], *, same_machine: bool) -> Method:
    """Return the method for several runs each, by all that is known of them but their means."""
    few, many = sorted(scatters, key=lambda scatter: scatter.degrees)
    tail = few.tail(many)
    if many.degrees + 1 <= MOST_RUNS * (few.degrees + 1):
        is_one = UNEQUAL / 2 < tail < 1 - UNEQUAL / 2
    elif tail > 1 - UNEQUAL:
        return Method.WELCH
    else:
        is_one = tail > FEW_SCATTER
    return Method.POOLED if is_one and same_machine else Method.WIDER


def _widest(pairs: Iterable[tuple[Estimate, Estimate]], level: float) -> Ratio | None:
    found = [ratio_of(one, two, level) for one, two in pairs]
    return max(found, key=lambda ratio: ratio.high / ratio.low, default=None)


class Word(Enum):
    """The verdict of a gate, the worst first."""

    FAIL = "FAIL"
    NOT_EQUIVALENT = "NOT EQUIVALENT"
    NOT_PROVEN = "NOT PROVEN"
    PASS = "PASS"  # noqa: S105  # no password
    EQUIVALENT = "EQUIVALENT"


@immutable
class Gate:
    """A limit on how much slower B may be."""

    percent: float  # B may be slower by this much; above 0, below 100
    strict: bool = False  # whether NOT PROVEN stops too
    equivalence: bool = False
    """Whether A may not be slower than B by more than that either: two one-sided tests at 5 % each (Schuirmann 1987,
    doi:10.1007/BF01068419), which is an interval at 90 %."""

    @property
    def lowest(self) -> float:
        """The least B/A that is allowed."""
        return 1 - self.percent / 100

    @property
    def highest(self) -> float:
        """The largest."""
        return 1 / self.lowest if self.equivalence else math.inf

    def word(self, found: Statistic | None) -> Word:
        """Return FAIL (also for None, a B without a number) when the whole interval is beyond the threshold, PASS when all of it is not, else NOT PROVEN."""
        good, bad = (Word.EQUIVALENT, Word.NOT_EQUIVALENT) if self.equivalence else (Word.PASS, Word.FAIL)
        if found is None:
            return bad
        ratio = found.both_sides if self.equivalence else found.ratio
        if ratio is None or not found.is_provable:
            return Word.NOT_PROVEN
        if ratio.high < self.lowest or ratio.low > self.highest:
            return bad
        is_within = ratio.low >= self.lowest and ratio.high <= self.highest
        return good if is_within and not self.is_broken(found) else Word.NOT_PROVEN

    def is_broken(self, found: Statistic) -> bool:
        """Return whether B/A, which is not beyond the threshold, would be if other lines of the same logs counted."""
        return self.is_broken_by_starts(found) or self.is_broken_by_ends(found)

    def is_broken_by_starts(self, found: Statistic) -> bool:
        """Return whether B/A, which is not beyond the threshold, would be if the slowest start in the logs of one side counted."""
        return self._leaves(found, found.value / found.b_slower, found.value * found.a_slower)

    def is_broken_by_ends(self, found: Statistic) -> bool:
        """Return whether B/A, which is not beyond the threshold, is at the speeds at which the runs end."""
        return self._leaves(found, found.value * found.at_ends)

    def _leaves(self, found: Statistic, *others: float) -> bool:
        return self.lowest <= found.value <= self.highest and not all(self.lowest <= v <= self.highest for v in others)

    def runs_each(self, found: Statistic) -> int | None:
        """Return how many runs of each side would decide, as `Statistic.runs_each` counts them; the nearer bound is the harder one."""
        return found.runs_each(self.highest if self.equivalence and found.value > 1 else self.lowest)

    def is_unexpected(self, found: Statistic | None) -> bool:
        """Return whether B's runs are faster by more than the threshold: an improvement that was not expected is checked first."""
        return found is not None and found.ratio is not None and found.ratio.low > 1 + self.percent / 100

    def stops(self, word: Word) -> bool:
        """Return whether `word` stops a pipeline."""
        return word in {Word.FAIL, Word.NOT_EQUIVALENT} or (self.strict and word is Word.NOT_PROVEN)


def worst(words: list[Word]) -> Word:
    """Return the word of several comparisons, at least one."""
    return min(words, key=[*Word].index)
