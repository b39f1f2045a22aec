"""Readers of the values of options: counts, sizes, times, words. The error of each shows the forms that it accepts.

The readers raise `argparse.ArgumentTypeError`, to which the parser adds the option.
"""

import argparse
import math
import re
import shlex
from collections.abc import Callable
from typing import Any

from nlp_bench.errors import nearest
from nlp_bench.immutable import immutable

UNSET = ("default",)  # the value by which JUBE's parameters mean: as in the data files
MAX_COUNT = 10**18  # no training has more tokens; whole numbers above are not exact in the arithmetic
MAX_SIZE = 10**9 - 1  # more nodes, samples or layers are a typing error, and their products would overflow 64 bits
FACTORS = {
    "": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
TIMELIMIT = re.compile(r"(?:([0-9]+)-)?([0-9]{1,2}):([0-5][0-9]):([0-5][0-9])")
_COUNT = re.compile(r"([0-9][0-9_]*)(?:\.([0-9]+))?(?:e\+?([0-9]{1,2}))? ?([kmbgt]i?)?", re.IGNORECASE)
_NUMBER = r"[0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?"
_TIME = re.compile(rf"(?:{_NUMBER} ?(?:{'|'.join(sorted(SECONDS, key=len, reverse=True))}) ?)+")
_SIZE_FORMS = "write all digits, or 2Ki for 2048"
_COUNT_FORMS = "write 20000000, 20_000_000, 20M, 1.5B or 300B (k, M, B, T are powers of ten; Ki, Mi, Gi of 1024)"


def count(text: str) -> int:
    """Read a whole number from 1 to MAX_COUNT: 20000000, 20_000_000, 20M, 1.5B, 2e7; 2Ki is 2048."""
    value, _ = _whole(text)
    return _within(text, value, MAX_COUNT, _COUNT_FORMS)


def size(text: str) -> int:
    """Read a whole number from 1 to MAX_SIZE of what often is a power of two: 2048, 2_048 or 2Ki.

    2k is refused: by SI it is 2000, but a context of 2k is 2048, and a wrong one would be a wrong number of tokens.
    """
    value, suffix = _whole(text)
    if value and suffix in {"k", "m", "b", "g", "t"}:
        binary = value * FACTORS[suffix.replace("b", "g") + "i"] // FACTORS[suffix]
        raise argparse.ArgumentTypeError(f"{text[:40]!r} may mean {value} or {binary}; {_SIZE_FORMS}")
    return _within(text, value, MAX_SIZE, _SIZE_FORMS)


def _whole(text: str) -> tuple[int, str]:
    """Return the number, 0 where it is none, and its suffix."""
    found = _COUNT.fullmatch(text.strip()[:60])
    if not found:
        return 0, ""
    whole, part, power, suffix = (group or "" for group in found.groups())
    value, rest = divmod(int(whole + part) * FACTORS[suffix.lower()] * 10 ** int(power or 0), 10 ** len(part))
    return (0 if rest else value), suffix.lower()


def _within(text: str, value: int, most: int, forms: str) -> int:
    if not value:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number above 0; {forms}")
    if value > most:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is more than {most:,}".replace(",", "_"))
    return value


def duration(unit: str, *, least: float | None = None) -> Callable[[str], float]:
    """Return a reader of times above 0 (from `least` up, where it is given) that returns them in `unit` ("s", "min", "h", "d").

    It takes a bare number in that unit, numbers with units (560s, 10min, 1h 30min, 2d) and HH:MM:SS or D-HH:MM:SS.
    """

    def read(text: str) -> float:
        seconds = seconds_of(text, unit)
        if seconds is None or not (0 < seconds < float("inf") or (seconds == least)):
            above = "above 0" if least is None else f"from {least:g} up"
            forms = f"write 560{unit}, 10min, 1.5h or 00:09:20; a number without a unit is in {unit}"
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a time {above}; {forms}")
        return seconds / SECONDS[unit]

    return read


def seconds_of(text: str, bare: str | None = None) -> float | None:
    """Return a time in seconds, None where it is none; `bare` is the unit of a number without one, None: it needs one."""
    text = text.strip()
    if clock := TIMELIMIT.fullmatch(text):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if bare and re.fullmatch(_NUMBER, text, re.IGNORECASE):
        return float(text) * SECONDS[bare]
    if not _TIME.fullmatch(text):
        return None
    parts = re.findall(rf"({_NUMBER}) ?([a-z]+)", text)
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def time_limit(text: str) -> str:
    """Read a time limit of a job for Slurm: HH:MM:SS, D-HH:MM:SS, or a time with its units; a bare number is minutes to Slurm alone."""
    seconds = seconds_of(text)
    if seconds and TIMELIMIT.fullmatch(text):
        return text
    if not seconds or not seconds < SECONDS["d"] * 1000:
        zero = " above zero, which is no limit to Slurm" if seconds == 0 else ""
        raise argparse.ArgumentTypeError(
            f'{text[:40]!r} is not a time limit; write HH:MM:SS, D-HH:MM:SS, 90min or 2h{zero} (in YAML in quotes: "00:30:00")'
        )
    return clock(max(1, round(seconds)))


def clock(seconds: int) -> str:
    """Return a time as Slurm writes it: HH:MM:SS, or D-HH:MM:SS from one day on."""
    days, rest = divmod(seconds, SECONDS["d"])
    return f"{f'{days}-' if days else ''}{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def number(said: str, fits: Callable[[float], bool], sign: str = "") -> Callable[[str], float]:
    """Return a reader of the numbers that `fits` takes; `said` is the error, and the pattern `sign` may follow a number."""

    def read(text: str) -> float:
        found = re.fullmatch(rf"({_NUMBER}) ?{sign}", text.strip())
        if not found or not fits(float(found[1])):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is {said}")
        return float(found[1])

    return read


percent_from_0 = number("not a percentage from 0 up; write 3 or 3%", math.isfinite, "%?")
percent_below_100 = number("not a percentage above 0 and below 100; write 3 or 3%", lambda value: 0 < value < 100, "%?")
price = number("no price of one kWh from 0 to a million, such as 0.25", lambda value: value < 1e6)


def words(text: str) -> tuple[str, ...]:
    """Read words as a shell splits them."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be split into words: {error}") from error


def switch(text: str) -> bool:
    """Read a word like true or off."""
    if text.lower() in {"true", "on", "yes", "1"}:
        return True
    if text.lower() in {"false", "off", "no", "0"}:
        return False
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is neither true nor false")


class OneOf:
    """A reader of one of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __call__(self, text: str) -> str:
        """Return the word, or raise an error that lists them."""
        if text not in self.words:
            near = nearest(text, list(self.words), listed=False)
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not one of {', '.join(self.words)}{near}")
        return text


@immutable(kw_only=False)
class UnlessDefault:
    """A reader of the value that JUBE passes for each of its parameters: None where that is "default"."""

    read: Callable[[str], Any]  # the reader of any other value

    def __call__(self, text: str) -> Any:
        """Return the value, or None."""
        if not text:
            raise argparse.ArgumentTypeError(
                "the value is empty: a misspelt $name in JUBE's file or a variable of the shell that is not set; "
                'give a value, or the word "default"'
            )
        return None if text in UNSET else self.read(text)
