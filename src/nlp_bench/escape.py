"""Untrusted text (file names, log lines, model names) escaped for terminals, markdown and CSV, and shortened for tables.

On a page its invisible characters are replaced (`visible`), and Jinja escapes it as HTML (show/page.py).
"""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]"
)
"""Control characters, and those that reorder or hide the text around them (Unicode TR 36, bidirectional text spoofing)."""
_NOT_IN_A_LINE = re.compile(rf"(?:[\t\n\r]|{_UNSEEN.pattern})+")
_MARKDOWN_SPECIAL = "\\`*_[]<>|#~"
_FORMULA = {"=", "+", "-", "@", "\t", "\r"}
_MONTH = "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
_CHANGED = re.compile(
    rf"0\d+|\d{{16,}}|\d+(?:\.\d+)?e[+-]?\d+|\d+(?:[-/:]\d+)+|\d+(?:\.\d+){{2,}}|\d+[-/ ]?{_MONTH}(?:[-/ ]?\d+)?|{_MONTH}[-/ ]\d+",
    re.IGNORECASE,
)
"""Texts that a spreadsheet takes for a number or a date and shows as another: 007, 16 digits, 1e5, 3-5, 1:02, 1.2.3, 5-Mar."""
_KEPT = 12  # letters of a common end that show where it begins


def one_line(text: object) -> str:
    """Return `text` in one line, without control and invisible characters: it may come from a log or a file name."""
    return inert(str(text)).strip()


def inert(text: str) -> str:
    """Return `text` with a blank in place of what `one_line` would not keep; blanks around it stay."""
    if text.isascii() and text.isprintable():
        return text
    return _NOT_IN_A_LINE.sub(" ", text.encode("utf-8", "replace").decode())


def end_of(text: str, most: int) -> str:
    """Return the last `most` characters, after three dots where there are more: the end of a path distinguishes runs."""
    return text if len(text) <= most else "..." + text[3 - most :]


def ends_of(texts: Sequence[str], most: int) -> list[str]:
    """Return `end_of` each text; of texts that end alike what stands before their common end, with three dots behind it."""
    short = [end_of(text, most) for text in texts]
    for same in set(short):
        alike = [index for index, one in enumerate(short) if one == same]
        if len({texts[index] for index in alike}) > 1:
            backwards = zip(*(reversed(texts[index]) for index in alike), strict=False)
            common = len([*takewhile(lambda letters: len({*letters}) == 1, backwards)]) - _KEPT
            heads = ends_of([texts[index][:-common] for index in alike], most - 3)
            for index, head in zip(alike, heads, strict=True):
                short[index] = head + "..."
    return short


def shortened(text: str, most: int) -> str:
    """Return the first `most` characters, with three dots after them where there are more."""
    return text if len(text) <= most else text[: most - 3].rstrip() + "..."


def some(texts: Iterable[object], most: int, between: str = ", ") -> str:
    """Return `a, b and 3 more`: the first `most` of the texts and how many there are besides."""
    listed = list(map(str, texts))
    more = f"{between.strip(', ')} and {len(listed) - most} more" if len(listed) > most else ""
    return between.join(listed[:most]) + more


def from_to(what: str, first: int, last: int) -> str:
    """Return `line 3`, or `lines 3 to 5`."""
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


def escaped_markdown(text: str) -> str:
    """Return `text` so that no markdown reader takes any of it for markup."""
    return "".join(f"\\{character}" if character in _MARKDOWN_SPECIAL else character for character in inert(text))


def inert_cell(value: object) -> object:
    """Return `value` so that no spreadsheet takes a text for a formula, or for another number or date than it is."""
    if not isinstance(value, str):
        return value
    text = inert(value)
    return f"'{text}" if text[:1] in _FORMULA or _CHANGED.fullmatch(text.strip()) else text


def visible(text: str) -> str:
    """Return `text` with each invisible character replaced by its code; not yet escaped."""
    if text.isascii() and text.isprintable():
        return text
    whole = text.encode("utf-8", "replace").decode()
    return _UNSEEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", whole)
