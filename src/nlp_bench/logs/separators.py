"""Numbers in the formats of other locales: `1,012.3`, `1.012,3`, `1'012.3`, `1 012,3`; all become `1012.3`.

A program prints all numbers of a line in one locale, so an unambiguous number decides the ambiguous ones of its line. Only numbers
after a name count (`loss: 3,4`, `time 1,012.30ms`): dates, versions and lists of devices are no values.
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.record import Log, Refusal
from nlp_bench.logs.scan import Line

MAX_BYTES = 4096  # of a line, which are searched


class Style(Enum):
    """How a number is written; the value is the description in remarks."""

    COMMA_GROUPS = "commas between thousands"
    DECIMAL_COMMA = "decimal commas, and points between thousands"
    MARKED_GROUPS = "blanks, apostrophes or underscores between thousands"
    OPEN = "a comma before three digits"  # `1,012`: thousands or decimals
    POINT = "decimal points"
    OPEN_POINT = "a point before three digits"  # `1.012`: decimals, unless the line has decimal commas


# Separators that are no blanks: no-break, thin and narrow no-break space; apostrophes straight and typographic; ISO 8859-1.
_MARK = rb"(?:['_]|\xe2\x80[\x89\x99\xaf]|\xc2?\xa0)"
_OTHERS = _MARK + rb"| (?=\d{3}[ .,|])"
# The milliseconds of a time of day do not count.
_SUSPECT = re.compile(rb"(?<!:\d)\d(?:,|" + _OTHERS + rb")\d")
_CERTAIN = re.compile(rb"(?<!:\d)\d(?:,(?!\d{3}(?![\d.,]))|" + _OTHERS + rb")\d")
_RUN = re.compile(rb"\d[\d.,'_\x80-\xff]*\d")
_POINTED = re.compile(rb"\d+\.\d+")
_BLANKS = re.compile(rb"(?<=[:=]) {0,12}(\d{1,3}(?: \d{3}){1,4}(?:[.,]\d{1,12})?)(?= {0,4}\|)")
_NAME_ENDS = tuple(b"%c" % c for c in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ)]%_\"'")
_HEAD_BYTES = 40
_STYLES = {
    Style.OPEN: re.compile(rb"[1-9]\d{0,2},\d{3}"),
    Style.OPEN_POINT: re.compile(rb"[1-9]\d{0,2}\.\d{3}"),
    Style.POINT: re.compile(rb"\d+\.\d+"),
    Style.COMMA_GROUPS: re.compile(rb"\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,}"),
    Style.DECIMAL_COMMA: re.compile(rb"\d{1,3}(?:\.\d{3})+,\d+|\d+,\d+"),
    Style.MARKED_GROUPS: re.compile(rb"\d{1,3}(?:" + _MARK + rb"\d{3})+(?:[.,]\d+)?"),
}
_SCIENTIFIC = {Style.OPEN: Style.DECIMAL_COMMA, Style.OPEN_POINT: Style.POINT}
_CHANGED = {Style.COMMA_GROUPS, Style.DECIMAL_COMMA, Style.MARKED_GROUPS}
_MARKS = re.compile(_MARK + rb"| ")
_MOST = 4096
_FEWEST = 3


class Number(NamedTuple):
    """A number whose format may need a change."""

    begin: int  # its index in the line
    text: bytes  # as it is written
    style: Style  # its format, OPEN or OPEN_POINT where it is ambiguous


class Separators:
    """Rewrites the numbers of one log plainly, and remembers their formats."""

    def __init__(self) -> None:
        self.first: dict[Style, tuple[int, bytes]] = {}
        """Each style found: line number and text of its first number."""
        self.lines: dict[int, set[Style]] = {}
        """Number of each line that was changed, up to _MOST, to its styles."""

    def plain(self, line: Line, *, reads_commas: bool) -> Line:
        """Return the line with plain numbers; see `plain_numbers`."""
        has_decimal_commas = Style.DECIMAL_COMMA in self.first
        text, found = plain_numbers(line.text, has_decimal_commas=has_decimal_commas, reads_commas=reads_commas)
        if not found:
            return line
        for number in found:
            self.first.setdefault(number.style, (line.number, number.text))
        if len(self.lines) < _MOST:
            self.lines[line.number] = {number.style for number in found}
        return line._replace(text=text)

    def remarks(self, log: Log, dialect: Dialect) -> tuple[str, ...]:
        """Return the formats of the records' numbers as sentences, without thousands commas where the dialect prints them."""
        numbers = {int(number) for attempt in log.attempts for number in attempt.records.numbers[:_MOST]}
        styles = {style for number in numbers & self.lines.keys() for style in self.lines[number]}
        if dialect.prints_commas:
            styles.discard(Style.COMMA_GROUPS)
        return tuple(
            f"numbers are written with {style.value}: {text.decode(errors='replace')} (line {number}) is read as "
            f"{_written(text, style).decode()}"
            for style, (number, text) in self.first.items()
            if style in styles
        )


def misread_points(log: Log) -> Refusal | None:
    """Return why the times of a log are ambiguous, where some seem to have points between thousands (`1.012` next to `987`).

    By itself such a point looks like a decimal point. It shows in whole numbers below a thousand, above which the numbers are a
    thousand times too small and have three decimals. A comma in another number of such a line would have decided.
    """
    for attempt in log.attempts:
        elapsed_s = attempt.records.column("elapsed_s")
        known = elapsed_s[elapsed_s > 0]
        if len(known) < 2 * _FEWEST or known.max() < 99 * known.min():  # of nearly every log: see _is_grouped
            continue
        ordered = np.sort(known)
        at = int(np.argmax(ordered[1:] / ordered[:-1])) + 1
        small, large = ordered[:at], ordered[at:]
        if min(len(small), len(large)) < _FEWEST or not any(
            _is_grouped(small / unit, large / unit) for unit in (1e-3, 1.0)
        ):
            continue
        number = int(attempt.records.numbers[int(np.argmax(elapsed_s <= small[-1]))])
        return Refusal(
            f"elapsed time per iteration: {len(small)} of {len(ordered)} lines state a thousandth of the others' times (the first is line "
            f"{number}), as if points stood between thousands; whether 1.012 is a little more than one or than a thousand cannot be "
            "told: give the log with plain numbers (1012)"
        )
    return None


def _is_grouped(small: NDArray[np.float64], large: NDArray[np.float64]) -> bool:
    """Say whether `large` are whole numbers below 1000, and `small` continue them above 1000, divided by 1000."""
    is_whole = all(np.all(np.abs(v - np.round(v)) < 1e-6 * np.maximum(v, 1.0)) for v in (large, 1000 * small))
    return bool(is_whole and small.min() >= 1 and large.max() < 1000 and 1000 * small.max() < 10 * large.max())


def may_be_odd(shape: bytes) -> bool:
    """Say whether `plain_numbers` may change a line, by its text with any digits, unless another line has decimal commas."""
    return _SUSPECT.search(shape, 0, MAX_BYTES) is not None


def plain_numbers(
    text: bytes, *, has_decimal_commas: bool = False, reads_commas: bool = False
) -> tuple[bytes, list[Number]]:
    """Return the line with plain numbers, and those that were changed, each with its style.

    An ambiguous number stays as it is, unless its line or another one of the log (`has_decimal_commas`) decides. `reads_commas`:
    the parsers of the line read thousands commas themselves, so a line with ambiguous numbers only is not changed.
    """
    if not (has_decimal_commas or (_CERTAIN if reads_commas else _SUSPECT).search(text, 0, MAX_BYTES)):
        return text, []
    runs = [found for found in _RUN.finditer(text, 0, MAX_BYTES) if not found[0].isdigit()]
    blanks = _BLANKS.finditer(text, 0, MAX_BYTES) if b"|" in text else ()
    odd = [Number(found.start(1), found[1], Style.MARKED_GROUPS) for found in blanks]
    odd += _numbers(text, [run for run in runs if not _POINTED.fullmatch(run[0])])
    if not (odd or has_decimal_commas):
        return text, []
    styles = {number.style for number in odd}
    pointed = _numbers(text, [run for run in runs if _POINTED.fullmatch(run[0])])
    if Style.DECIMAL_COMMA in styles or has_decimal_commas:
        odd = sorted([*odd, *pointed])
        styles = {number.style for number in odd}
        is_point = not styles.isdisjoint({Style.POINT, Style.COMMA_GROUPS})
        meaning = {} if is_point else {Style.OPEN: Style.DECIMAL_COMMA, Style.OPEN_POINT: Style.DECIMAL_COMMA}
    else:
        is_point = Style.COMMA_GROUPS in styles or any(number.style is Style.POINT for number in pointed)
        meaning = {Style.OPEN: Style.COMMA_GROUPS} if is_point else {}
    found = [number._replace(style=meaning.get(number.style, number.style)) for number in odd]
    found = [number for number in found if number.style in _CHANGED]
    parts: list[bytes] = []
    end = 0
    for number in found:
        parts += [text[end : number.begin], _written(number.text, number.style)]
        end = number.begin + len(number.text)
    return (b"".join([*parts, text[end:]]), found) if found else (text, [])


def _numbers(text: bytes, runs: list[re.Match[bytes]]) -> Iterator[Number]:
    for found in runs:
        run, behind = found[0], text[found.end() : found.end() + 2]
        style = next((style for style, form in _STYLES.items() if form.fullmatch(run)), None)
        if style and behind[:1] != b":" and _is_named(text, found.start()):
            # A number with an exponent, `4.438E-07`, has no thousands separators.
            has_exponent = len(behind) == 2 and behind[:1] in b"eE" and behind[1:] in b"+-0123456789"
            yield Number(found.start(), run, _SCIENTIFIC.get(style, style) if has_exponent else style)


def _is_named(text: bytes, begin: int) -> bool:
    """Say whether a name precedes, with a colon, an equals sign or a blank between."""
    head = text[max(0, begin - _HEAD_BYTES) : begin]
    head = head[:-1] if head[-1:] in {b"-", b"+"} else head
    name = head.rstrip(b" ")
    name = name[:-1].rstrip(b" ") if name[-1:] in {b":", b"="} else name
    return len(name) < len(head) and name.endswith(_NAME_ENDS)


def _written(text: bytes, style: Style) -> bytes:
    if style is Style.COMMA_GROUPS:
        return text.replace(b",", b"")
    if style is Style.MARKED_GROUPS:
        return _MARKS.sub(b"", text).replace(b",", b".")
    return text.replace(b".", b"").replace(b",", b".")
