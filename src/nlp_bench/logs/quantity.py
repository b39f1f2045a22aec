"""The vocabulary of all dialects: what a log may state, each with one name and one unit, and how its numbers are written.

A dialect names what it reads by a quantity, which is a field of `record.LogRecord`, or by a quantity with another unit at its end (`elapsed_ms`); the unit is
turned into the quantity's own when the value is read, so that nobody downstream can mistake it. From rounded numbers follow exact ones:
a count is a whole number, and several rounded numbers may leave only one.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nlp_bench.logs.findings import Findings
    from nlp_bench.logs.scan import Line

RATES = (
    "elapsed_s",
    "tokens_per_second",
    "tokens_per_second_per_device",
    "samples_per_second",
    "samples_per_second_per_device",
)
"""One of these (or the training's clock) is what makes a record worth having; none of them can be 0."""

FACTS = (
    "sequence_length", "global_batch_size", "num_devices", "tokens", "log_interval", "micro_batches", "parameters",
    "device",
)  # fmt: skip
"""What a log says once: `tokens` per iteration of the whole machine, `micro_batches` per iteration, `parameters` of the model,
`device` the words that name the accelerator ("cpu", "NVIDIA H100 80GB HBM3")."""

OPTIONS = {
    "sequence_length": "--sequence-length",
    "global_batch_size": "--global-batch-size",
    "num_devices": "--num-gpus",
}
"""The command line options that supply a fact."""

UNITS = {
    "elapsed_ms": ("elapsed_s", 1000.0),
    "elapsed_us": ("elapsed_s", 1e6),
    "clock_ms": ("clock_s", 1000.0),
    "clock_min": ("clock_s", 1 / 60),
    "clock_h": ("clock_s", 1 / 3600),
}
"""Names with another unit: the quantity, and the divisor that leads to its unit."""
_SUFFIXES = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_NUMBER = re.compile(rb"([-+]?)(\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)((?:[eE][-+]?\d+)?) ?([KkMGBT]?)")
_PLAIN = re.compile(rb"\d+(?:\.\d*)?")
_NOT_FINITE = re.compile(rb"[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)


def number(text: bytes) -> float | None:
    """Return the number that is written in `text`, None when it is none.

    Read are thousands commas (`45,538`), exponents (`2e+3`), one suffix (`4.71K`, `85.8G`), nan and inf in any case.
    """
    if _PLAIN.fullmatch(text):
        return float(text)
    text = text.strip()
    found = _NUMBER.fullmatch(text)
    if found:
        sign, digits, exponent, suffix = found.groups()
        plain = sign + (digits.replace(b",", b"") if b"," in digits else digits) + exponent
        return float(plain) * _SUFFIXES[suffix.decode()] if suffix else float(plain)
    return float(text) if _NOT_FINITE.fullmatch(text) else None


def bounds(text: bytes, units: float = 0.5) -> tuple[float, float] | None:
    """Return the least and greatest number that may have been printed as `text`, None when it is none.

    `units` of the last digit lie between: 0.5 where the program rounds, 1 where it may cut digits off.
    """
    found = _NUMBER.fullmatch(text.strip())
    value = number(text)
    if not found or value is None:
        return None
    _, digits, exponent, suffix = found.groups()
    try:
        unit = _SUFFIXES[suffix.decode()] * 10.0 ** (int(exponent[1:] or 0) - len(digits.partition(b".")[2]))
    except OverflowError:  # such a number means nothing
        return None
    return value - units * unit, value + units * unit


def duration_s(text: bytes) -> float | None:
    """Return seconds of a clock text such as `0:14:31.66`, `14:32` or `1 day, 2:03:04`; None when it is none."""
    found = re.fullmatch(rb"(?:(\d+) days?, )?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text.strip())
    if not found:
        return None
    days, hours, minutes, seconds = (float(part) if part else 0.0 for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def in_unit(name: str, value: float) -> tuple[str, float]:
    """Return the quantity that `name` stands for and `value` in its unit (`elapsed_ms`, 250.0 is `elapsed_s`, 0.25).

    `iterations_per_second` becomes `elapsed_s`, its inverse.
    """
    if name == "iterations_per_second":
        return "elapsed_s", 1 / value if value else float("inf")
    quantity, divisor = UNITS.get(name, (name, 1.0))
    return quantity, value / divisor if divisor != 1.0 else value


def numbers(texts: Iterable[tuple[str, bytes | None]]) -> dict[str, float]:
    """Return the quantities whose texts are numbers, in their units; texts of others, missing ones too, say nothing."""
    found = ((name, number(text)) for name, text in texts if text)
    return dict(in_unit(name, value) for name, value in found if value is not None)


_LARGEST = 1e18


class Bracket:
    """What is still possible for one number after all that was read of it."""

    def __init__(self, low: float = 0.0, high: float = math.inf) -> None:
        self.low, self.high = low, high

    def narrow(self, low: float, high: float) -> None:
        """Leave only what lies from `low` to `high`; bounds that contradict each other leave nothing."""
        self.low, self.high = max(self.low, low), min(self.high, high)

    def with_(self, other: Bracket) -> Bracket:
        """Return what both leave."""
        return Bracket(max(self.low, other.low), min(self.high, other.high))

    def ratio(self, above: tuple[float, float] | None, below: tuple[float, float] | None) -> None:
        """Leave only what may be the quotient of two rounded numbers, given by their bounds; None says nothing."""
        if above and below and below[0] > 0:
            self.narrow(above[0] / below[1], above[1] / below[0])

    @property
    def _ends(self) -> tuple[int, int]:
        """The least and the greatest whole number left; what is counted in a training is never larger than _LARGEST, a torn exponent is."""
        if not (math.isfinite(self.low) and self.high < _LARGEST):
            return 1, 0
        return max(1, math.ceil(self.low)), math.floor(self.high)

    @property
    def whole(self) -> int | None:
        """The only whole number that is left, None where none or several are."""
        low, high = self._ends
        return low if low == high else None

    @property
    def roundest(self) -> int | None:
        """The whole number left that the highest power of two divides, as batches and sequences are chosen."""
        low, high = self._ends
        power = 1
        while -(-low // (2 * power)) * 2 * power <= high:
            power *= 2
        return -(-low // power) * power if low <= high else None


class Counted(Bracket):
    """A whole number that many lines bound and no line states; told as a fact at the end."""

    def __init__(self, name: str = "num_devices") -> None:
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
