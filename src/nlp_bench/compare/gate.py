"""The gate of continuous integration: whether B is slower than A by more than a threshold."""

from dataclasses import dataclass
from enum import Enum

from nlp_bench.compare.statistic import Statistic


class Word(Enum):
    """What the gate says."""

    PASS = "PASS"  # noqa: S105  # no password
    NOT_PROVEN = "NOT PROVEN"
    FAIL = "FAIL"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The rule."""

    percent: float
    """B may be slower by this much; above 0, below 100."""
    strict: bool = False
    """Whether what is not proven stops too."""

    def word(self, found: Statistic | None) -> Word:
        """Return FAIL when the whole interval is below the threshold, PASS when all of it is not, else NOT PROVEN.

        None stands for a B without a number: it fails.
        """
        if found is None:
            return Word.FAIL
        if found.ratio is None:
            return Word.NOT_PROVEN
        lowest = 1 - self.percent / 100
        return Word.FAIL if found.ratio.high < lowest else Word.PASS if found.ratio.low >= lowest else Word.NOT_PROVEN

    def is_unexpected(self, found: Statistic | None) -> bool:
        """Say whether B is proven to be faster by more than the threshold: an improvement nobody expected is checked first."""
        return found is not None and found.ratio is not None and found.ratio.low > 1 + self.percent / 100

    def stops(self, word: Word) -> bool:
        """Say whether a pipeline stops at this word."""
        return word is Word.FAIL or (self.strict and word is Word.NOT_PROVEN)


def worst(words: list[Word]) -> Word:
    """Return the word of several comparisons."""
    return next((word for word in (Word.FAIL, Word.NOT_PROVEN) if word in words), Word.PASS)
