"""The words of the command line that several subcommands take: how they are read, and what is said of wrong ones."""

import argparse

MAX_COUNT = 10**18
"""No training has more tokens; whole numbers above have no exact place in the arithmetic."""


def count(text: str) -> int:
    """Read a whole number above 0 and at most MAX_COUNT."""
    try:
        value = int(text.replace("_", ""))
    except ValueError:
        value = 0
    if not 0 < value <= MAX_COUNT:
        rule = "is no whole number above 0 and at most 10^18; write all digits, as 20000000"
        raise argparse.ArgumentTypeError(f"{text[:40]!r} {rule}")
    return value


def tokens(text: str) -> int:
    """Read a count of tokens, also as 20M, 300B or 1.5T (powers of ten)."""
    zeros = {"M": 6, "B": 9, "T": 12}.get(text[-1:].upper(), 0)
    whole, point, part = text[: -1 if zeros else None].partition(".")
    if not zeros or (point and not part.isdigit()) or len(part) > zeros:
        return count(text)
    return count(whole + part + "0" * (zeros - len(part)))


def seconds(text: str) -> float:
    """Read a number of seconds above 0; a unit behind it is refused."""
    try:
        value = float(text)
    except ValueError:
        number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
        rule = "write the seconds without a unit" if number[-1:].isdigit() and number != text else "write 560"
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number of seconds; {rule}") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number of seconds above 0")
    return value


def hours(text: str) -> float:
    """Read a number of hours above 0."""
    return _above_zero(text, "no number of hours above 0, such as 24 or 0.5")


def days(text: str) -> float:
    """Read a number of days above 0."""
    return _above_zero(text, "no number of days above 0")


def _above_zero(text: str, wrong: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is {wrong}")
    return value


def price(text: str) -> float:
    """Read the price of one kWh, 0 or above."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no price of one kWh from 0 to a million, such as 0.25")
    return value
