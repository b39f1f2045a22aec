"""The dicts that Hugging Face's Trainer and its children print: `{'loss': 2.1, 'learning_rate': 5e-05, 'epoch': 0.1}`.

Python's or JSON's quotes, numbers bare or quoted (transformers 5), several dicts on a line, the last one perhaps cut.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from nlp_bench.logs.quantity import duration_s, number

_DICT = re.compile(rb"\{([^{}]{10,20000})(?:\}|$)")
# A pair ends with a comma or the brace: what ends with the line may be cut.
_PAIR = re.compile(
    rb"""(['"])([^'"{}]{1,80})\1\s{0,4}:\s{0,4}(?:(['"])([^'"{}]{0,80})\3|([-+]?[\w.][-+\w.]{0,39}))(?=\s{0,4}[,}])"""
)
# A pair whose value is no number and no plain text may stand between two that are read.
_OTHER_PAIR = re.compile(rb"""[\s,]{0,8}(?:$|(['"])[^'"]{1,80}\1\s{0,4}:)""")
_WORDS = re.compile(rb"(?:(\d{1,6})d\s?)?(?:(\d{1,6})h\s?)?(?:(\d{1,6})m\s?)?(?:(\d{1,6})s)?")


def dicts(text: bytes) -> Iterator[Mapping[bytes, bytes]]:
    """Return every dict of a line that has pairs: key to the text of its value, without quotes.

    One that has a key twice is the halves of two dicts and left out.
    """
    for found in _DICT.finditer(text):
        pairs: dict[bytes, bytes] = {}
        is_torn, end = False, 1
        for pair in _PAIR.finditer(found[0]):
            if pair.start() > end + 2:
                between = found[0][end : pair.start()]
                is_torn |= between.count(pair[1]) % 2 == 1 or not _OTHER_PAIR.match(between)
            end = pair.end()
            value = pair[4] if pair[3] else pair[5]
            is_torn |= pair[2] in pairs
            pairs[pair[2]] = value
        if pairs and not is_torn:
            yield pairs


def is_joined(key: bytes, names: Iterable[bytes]) -> bool:
    """Say whether `key` is the beginning of one of `names` and the end of another: what a cut through two lines leaves."""
    others = [name for name in names if name != key]
    places = [at for at in range(1, len(key)) if any(name.startswith(key[:at]) for name in others)]
    return any(name.endswith(key[at:]) for at in places for name in others)


def elapsed_s(text: bytes) -> float | None:
    """Return the seconds of `4m 34s`, `1h 2m 3s`, `0:04:34` or `1 day, 2:03:04`; None when it is none of them."""
    clock = duration_s(text)
    found = _WORDS.fullmatch(text.strip())
    if clock is not None or not found or not text.strip():
        return clock
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def count_with_error(text: bytes) -> tuple[float, float] | None:
    """Return a count and half the unit of its last digit: `2.022e+06` is known to 500, `2022508` exactly."""
    value = number(text)
    if value is None or not 0 <= value < 1e18:
        return None
    if text.isdigit():
        return value, 0.0
    digits, _, exponent = text.strip().lower().partition(b"e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(b".")[2]))
    return value, unit / 2 if unit > 1 else 0.0
