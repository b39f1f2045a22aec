"""What a comparison is asked: whether B is slower than A by more than a threshold, or within it on both sides."""

import math
from dataclasses import dataclass
from enum import Enum

from nlp_bench.compare.statistic import Statistic


class Word(Enum):
    """What a gate says, the worst first."""

    FAIL = "FAIL"
    NOT_EQUIVALENT = "NOT EQUIVALENT"
    NOT_PROVEN = "NOT PROVEN"
    PASS = "PASS"  # noqa: S105  # no password
    EQUIVALENT = "EQUIVALENT"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The rule."""

    percent: float
    """B may be slower by this much; above 0, below 100."""
    strict: bool = False
    """Whether what is not proven stops too."""
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
        """Return FAIL when the whole interval is beyond the threshold, PASS when all of it is not, else NOT PROVEN.

        None stands for a B without a number: it fails. Runs that do not show what runs differ by prove nothing.
        """
        good, bad = (Word.EQUIVALENT, Word.NOT_EQUIVALENT) if self.equivalence else (Word.PASS, Word.FAIL)
        if found is None:
            return bad
        ratio = found.both_sides if self.equivalence else found.ratio
        if ratio is None or not found.is_provable:
            return Word.NOT_PROVEN
        if ratio.high < self.lowest or ratio.low > self.highest:
            return bad
        return good if ratio.low >= self.lowest and ratio.high <= self.highest else Word.NOT_PROVEN

    def runs_each(self, found: Statistic) -> int | None:
        """Return how many runs of each side would decide, as `Statistic.runs_each` counts them; the nearer bound is the harder one."""
        return found.runs_each(self.highest if self.equivalence and found.value > 1 else self.lowest)

    def is_unexpected(self, found: Statistic | None) -> bool:
        """Say whether B's runs are faster by more than the threshold: an improvement nobody expected is checked first."""
        return found is not None and found.ratio is not None and found.ratio.low > 1 + self.percent / 100

    def stops(self, word: Word) -> bool:
        """Say whether a pipeline stops at this word."""
        return word in {Word.FAIL, Word.NOT_EQUIVALENT} or (self.strict and word is Word.NOT_PROVEN)


def worst(words: list[Word]) -> Word:
    """Return the word of several comparisons, at least one."""
    return min(words, key=list(Word).index)
