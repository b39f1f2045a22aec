"""The quantities of all dialects, each with one name and one unit, and how their numbers are written.

A quantity is a field of `record.LogRecord`, or one with another unit at its end (`elapsed_ms`), which is converted when the value is read.
Exact counts are derived from rounded numbers: a count is an integer, and the bounds of several rounded numbers may leave only one.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nlp_bench.logs.dialect import Findings
    from nlp_bench.logs.scan import Line

RATES = (
    "elapsed_s",
    "tokens_per_second",
    "tokens_per_second_per_device",
    "samples_per_second",
    "samples_per_second_per_device",
)
"""A record needs one of these, or the training's clock, to be of use; none of them can be 0."""
SMALLEST, LARGEST = 1e-9, 1e18  # bounds of a time or rate of a training; LARGEST also of a count

FACTS = (
    "sequence_length", "global_batch_size", "num_devices", "tokens", "log_interval", "micro_batches", "parameters",
    "device",
)  # fmt: skip
"""What a log states once: `tokens` per iteration of the whole machine, `micro_batches` per iteration, `parameters` of the model,
`device` the name of the accelerator ("cpu", "NVIDIA H100 80GB HBM3")."""

COUNTS_ELSE = "counted_by_rate"
"""Fact of a dialect, a text: what the tokens per second of its lines count, where these are not all tokens of an iteration. Such a rate is
never taken, whatever the command line adds."""

UNNUMBERED = "unnumbered"  # fact: the log does not number its iterations; those of the records are intervals of logging

OPTIONS = {
    "sequence_length": "--sequence-length",
    "global_batch_size": "--global-batch-size",
    "num_devices": "--num-gpus",
}
"""The command line options that supply a fact."""

UNITS = {
    "elapsed_ms": ("elapsed_s", 1000.0),
    "elapsed_us": ("elapsed_s", 1e6),
    "elapsed_min": ("elapsed_s", 1 / 60),
    "elapsed_h": ("elapsed_s", 1 / 3600),
    "clock_us": ("clock_s", 1e6),
    "clock_ms": ("clock_s", 1000.0),
    "clock_min": ("clock_s", 1 / 60),
    "clock_h": ("clock_s", 1 / 3600),
}
"""Names with another unit: the quantity, and the divisor to its unit."""
OTHER_NAMES = {"elapsed_clock": "elapsed_s", "clock_clock": "clock_s", "iterations_per_second": "elapsed_s"}
"""Names of what is written otherwise: a quantity as a clock text, or as its inverse."""
_SUFFIXES = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_NUMBER = re.compile(rb"([-+]?)(\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)((?:[eE][-+]?\d+)?) ?([KkMGBT]?)")
_PLAIN = re.compile(rb"\d+(?:\.\d*)?")
_NOT_FINITE = re.compile(rb"[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
_CLOCK = re.compile(rb"(?:(\d+) days?, )?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_UNITS_OF_TIME = re.compile(rb"(?:(\d{1,6})d\s?)?(?:(\d{1,6})h\s?)?(?:(\d{1,6})m\s?)?(?:(\d{1,6})s)?")


def number(text: bytes) -> float | None:
    """Return the number in `text`, None when it is none.

    Thousands commas (`45,538`), exponents (`2e+3`), a suffix (`4.71K`, `85.8G`), nan and inf in any case are read.
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
    """Return the least and greatest number that may have been printed as `text`, None when it is no number.

    `units` is the error in units of the last digit: 0.5 where the program rounds, 1 where it may truncate.
    """
    found = _NUMBER.fullmatch(text.strip())
    value = number(text)
    if not found or value is None or not math.isfinite(value):
        return None
    _, digits, exponent, suffix = found.groups()
    unit = _SUFFIXES[suffix.decode()] * float(b"1e" + (exponent[1:] or b"0")) / 10.0 ** len(digits.partition(b".")[2])
    return value - units * unit, value + units * unit


class Rounded(NamedTuple):
    """A number as it was printed."""

    value: float
    error: float  # half a unit of its last digit; 0 for a whole number with all its digits


def rounded(text: bytes) -> Rounded | None:
    """Return the number in `text` with its error, 500 for `2.022e+06`; None when it is none."""
    if text.isdigit():
        return Rounded(float(text), 0.0)
    value, between = number(text), bounds(text)
    error = (between[1] - between[0]) / 2 if between else 0.0
    return None if value is None else Rounded(value, 0.0 if error <= 0.5 and value % 1 == 0 else error)


def duration_s(text: bytes) -> float | None:
    """Return the seconds of a clock text such as `0:14:31.66`, `14:32`, `1 day, 2:03:04` or `1h 2m 3s`; None when it is none."""
    text = text.strip()
    found = _CLOCK.fullmatch(text) or (_UNITS_OF_TIME.fullmatch(text) if text else None)
    if not found:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def quantity_of(name: str) -> tuple[str, float, str]:
    """Return the quantity that a name means, the divisor to its unit, and "clock", "inverse" (`OTHER_NAMES`) or ""."""
    if name in OTHER_NAMES:
        return OTHER_NAMES[name], 1.0, "clock" if name.endswith("_clock") else "inverse"
    return (*UNITS.get(name, (name, 1.0)), "")


def in_unit(name: str, value: float) -> tuple[str, float]:
    """Return the quantity of `name` and `value` in its unit (`elapsed_ms`, 250.0 is `elapsed_s`, 0.25).

    `iterations_per_second` becomes `elapsed_s`, its inverse.
    """
    quantity, divisor, how = quantity_of(name)
    if how == "inverse":
        return quantity, 1 / value if value else math.inf
    return quantity, value / divisor


def numbers(texts: Iterable[tuple[str, bytes | None]]) -> dict[str, float]:
    """Return the quantities whose texts are numbers, in their units; others, also missing ones, are left out."""
    found = ((name, number(text)) for name, text in texts if text)
    return dict(in_unit(name, value) for name, value in found if value is not None)


class Bracket:
    """Bounds of one number, narrowed by each statement about it."""

    def __init__(self, low: float = 0.0, high: float = math.inf) -> None:
        self.low, self.high = low, high

    def narrow(self, low: float, high: float) -> None:
        """Intersect with `low` to `high`; contradicting bounds leave nothing."""
        self.low, self.high = max(self.low, low), min(self.high, high)

    def with_(self, other: Bracket) -> Bracket:
        """Return the intersection of both."""
        return Bracket(max(self.low, other.low), min(self.high, other.high))

    def ratio(self, above: tuple[float, float] | None, below: tuple[float, float] | None) -> None:
        """Intersect with the quotient of two rounded numbers, given by their bounds; nothing changes where one is None."""
        if above and below and below[0] > 0:
            self.narrow(above[0] / below[1], above[1] / below[0])

    @property
    def whole(self) -> int | None:
        """The only integer left, None where none or several are."""
        number = self._multiple_of(1)
        return number if number and number + 1 > self.high else None

    @property
    def roundest(self) -> int | None:
        """The integer left that the highest power of two divides: usual for batch sizes and sequence lengths."""
        powers = (1 << exponent for exponent in range(60, -1, -1))
        return next(filter(None, map(self._multiple_of, powers)), None)

    def _multiple_of(self, step: int) -> int | None:
        """Return the least multiple above 0, None where there is none; above LARGEST is no count, but a torn exponent."""
        if not (math.isfinite(self.low) and self.high < LARGEST):
            return None
        least = step * max(1, math.ceil(self.low / step))
        return least if least <= self.high else None


class Counted(Bracket):
    """The devices, which no line states and the numbers of many lines bound; reported as a fact at the end."""

    line: Line | None = None

    def quotient(self, line: Line, above: bytes | None, below: bytes | None) -> None:
        """Narrow the count to the quotient of two rounded numbers as they are written on `line`."""
        self.line = line
        self.ratio(bounds(above or b""), bounds(below or b""))

    def report(self, findings: Findings) -> None:
        """Report the count, if only one is possible."""
        if self.whole and self.line:
            findings.fact("num_devices", self.whole, self.line)
