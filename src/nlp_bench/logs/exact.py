"""From rounded numbers to exact ones: a count is a whole number, and several rounded numbers may leave only one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nlp_bench.logs.quantity import bounds

if TYPE_CHECKING:
    from nlp_bench.logs.findings import Findings
    from nlp_bench.logs.scan import Line


_LARGEST = 1e18


class Bracket:
    """What is still possible for one number after all that was read of it."""

    def __init__(self) -> None:
        """Begin with every positive number."""
        self.low, self.high = 0.0, math.inf

    def narrow(self, low: float, high: float) -> None:
        """Leave only what lies from `low` to `high`; bounds that contradict each other leave nothing."""
        self.low, self.high = max(self.low, low), min(self.high, high)

    def ratio(self, above: tuple[float, float] | None, below: tuple[float, float] | None) -> None:
        """Leave only what may be the quotient of two rounded numbers, given by their bounds; None says nothing."""
        if above and below and below[0] > 0:
            self.narrow(above[0] / below[1], above[1] / below[0])

    @property
    def _is_finite(self) -> bool:
        # What is counted in a training is never larger; a torn exponent is.
        return math.isfinite(self.low) and self.high < _LARGEST

    @property
    def whole(self) -> int | None:
        """The only whole number that is left, None where none or several are."""
        if not self._is_finite:
            return None
        first = max(1, math.ceil(self.low))
        return first if first == math.floor(self.high) else None

    @property
    def roundest(self) -> int | None:
        """The whole number left that the highest power of two divides, as batches and sequences are chosen."""
        if not self._is_finite:
            return None
        low, high = max(1, math.ceil(self.low)), math.floor(self.high)
        if low > high:
            return None
        power = 1
        while -(-low // (2 * power)) * 2 * power <= high:
            power *= 2
        return -(-low // power) * power


class Counted(Bracket):
    """A whole number that many lines bound and no line states; told as a fact at the end."""

    def __init__(self, name: str = "num_devices") -> None:
        """Begin with every positive number; `name` is one of `quantity.FACTS`."""
        super().__init__()
        self.name = name
        self.line: Line | None = None

    def quotient(self, line: Line, above: bytes | None, below: bytes | None) -> None:
        """Take two rounded numbers as they are written on `line`: the count is their quotient."""
        self.line = line
        self.ratio(bounds(above or b""), bounds(below or b""))

    def tell(self, findings: Findings) -> None:
        """Tell the number, if only one is possible."""
        if self.whole and self.line:
            findings.fact(self.name, self.whole, self.line)
