"""What terminals, launchers and loggers add to a line of a training: removed are colours, wrappers and line breaks, read are time stamps.

Of the date and time at the head of a line only differences within one log are meaningful: a stamp without a zone counts as UTC, one
without a year as in 2000, where 1 March follows 28 February: of a leap year the clock is set back once, as at the end of each year.
"""

import re
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING

from nlp_bench.files import parse_json

if TYPE_CHECKING:
    from nlp_bench.logs.scan import Line

# How an escape may be written: itself, as a caret, as an escape of JSON, C or Python, as its Unicode picture.
_ESC = rb"(?:\x1b|\^\[|\\u001[bB]|\\x1[bB]|\\033|\\e(?=\[)|\xe2\x90\x9b)"
_ANSI = re.compile(
    _ESC + rb"(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[()][0-9A-B]|[@-Z\\-_=>78])"
)
# Colours without their ESC: `[36mstep`, `[39m`, `[0;1m`. Only numbers that are colours, and no text of a log such as
# `[10ms]`, `[5m]`, `[1m30s]`, `[30min]` or `[mpi]`.
_CODE = rb"(?:0?[1-9]|2[1-9]|[34]\d|9[0-7]|10[0-7])"
_LOST = re.compile(
    rb"\[0{1,2}(?:;\d{1,3}){0,8}m|\[m(?![A-Za-z\]])"
    rb"|\[" + _CODE + rb"(?:;\d{1,3}){0,8}m(?![\],/]|s(?![A-Za-z])|in(?:s|utes?)?(?![a-z])| ?\d{1,2}s(?![a-z]))"
)
_STAMP = re.compile(
    rb"\[?\d{4}[-/]\d\d[-/]\d\d[T ,_-]?\s?\d\d:\d\d:\d\d(?:[.,:]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"
    rb"|\[?\d\d[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\]?"
    rb"|\[?\d{8}[ T_-]\d\d:?\d\d:?\d\d(?:[.,]\d+)?\]?"
    rb"|\d\d/\d\d/\d{4} \d\d:\d\d:\d\d|\d\d/\d\d \d\d:\d\d:\d\d|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
)


def pieces(raw: bytes) -> list[bytes]:
    """Return the texts of one line without colours, split at carriage returns, after which a terminal overwrites the line."""
    text = carried(raw) if raw.startswith(b"{") else raw
    # One byte of each way to write an escape: most lines have none of them.
    if b"\x1b" in text or b"\\" in text or b"^" in text or b"\x90" in text:
        text = _ANSI.sub(b"", text)
    if b"m" in text and b"[" in text:
        text = _LOST.sub(b"", text)
    return [piece for piece in text.split(b"\r") if piece] if b"\r" in text else [text]


_CARRIED = re.compile(rb'"(?:log|message|MESSAGE|msg|textPayload|line|_raw)": ?("[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL)
"""The line of a program in an object of Docker's json-file driver, Fluent Bit, Elasticsearch, journald, Loki or a cloud."""


def carried(raw: bytes) -> bytes:
    """Return the text in a JSON object of a log's collector, else the line."""
    found = max(_CARRIED.finditer(raw), key=lambda found: len(found[1]), default=None)
    # A record of a training that is itself an object may have a message, too.
    if not found or b'loss"' in raw[: found.start()] or b'loss"' in raw[found.end() :]:
        return raw
    try:
        return str(parse_json(found[1])).rstrip("\r\n").encode("utf-8", "replace")
    except ValueError:
        return raw


def label_of(prefix: bytes) -> bytes:
    """Return the label of the process that wrote a record: the prefix of the line without time stamps and extra blanks."""
    return b" ".join(_STAMP.sub(b"", prefix).split()) if prefix else b""


def first_piece(raw: bytes) -> bytes:
    """Return the first text of a line, stripped of colours and blanks."""
    return next(iter(pieces(raw)), b"").strip()


_MAX_WRAPPED = 4


def unwrapped(line: "Line", text: bytes, head: bytes, end: re.Pattern[bytes]) -> bytes:
    """Return `text`, joined with as many of the next lines as complete its record, which goes from `head` as far as `end`.

    As it is where it has none, or where none complete it. A line with `head` in it is the first of the next record.
    """
    begin = text.find(head)
    if begin < 0 or end.search(text, begin) or not line.is_ended:
        return text
    parts = [text]
    for raw in line.following(_MAX_WRAPPED):
        following = b"".join(pieces(raw))
        if head in following:
            break
        parts.append(following)
        whole = b"".join(part.rstrip(b"\r") for part in parts)  # wrapped anywhere, even inside a key
        if end.search(whole, begin):
            return whole
    return text


HEAD_BYTES = 96  # bytes at the beginning of a line that may hold a logger's time; a later date is part of the message
_HALF = rb" ?(?:[AP]M|[ap]m)(?![\w-])"  # of a day of 2 x 12 hours
_CLOCK = rb"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:[.,](\d{1,9}))?(" + _HALF + rb")?(?:(Z)|([+-])(\d\d):?(\d\d)(?!\d))?"
_DATED = re.compile(
    rb"(?<!\d)(?:(\d{4}[-/.]\d\d[-/.]\d\d)(?:[T_-]|,?\s{1,2})|(\d{8})[ T_-]|(\d\d/\d\d/(?:\d{4}|\d\d)),? |[IWEF](\d{4}) |(\d\d/\d\d) )"
    + _CLOCK
)
_CLOCK_ALONE = re.compile(rb"\d\d:\d\d:\d\d")
PLAIN_STAMP = rb"(?<!\d)\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?![.,]?\d|[:Z+-]|" + _HALF + rb")"
"""The form that the scanner reads itself, and leaves out of `scan.label_of`."""
_PLAIN = re.compile(PLAIN_STAMP)
_MLLOG = re.compile(rb'"time_ms": ?(\d{13})(?!\d)')
_DAY_S = 86400
_DATE_BYTES = 11


def stamp_s(text: bytes, *, is_fine: bool = False) -> float | None:
    """Return the first date with a time of day at the head of `text`, as seconds since 1970; None if there is none.

    With `is_fine` only one with milliseconds or finer. MLPerf's lines state the milliseconds since 1970.
    """
    if b":" not in text:
        return None
    for dated in _DATED.finditer(text, 0, HEAD_BYTES):
        days = _days(next(group for group in dated.groups()[:5] if group))
        hour, minute, second, fraction, half, _, sign, shift_h, shift_min = dated.groups(b"")[5:]
        if days is None or (is_fine and len(fraction) < 3):
            continue
        shift_s = (int(shift_h) * 3600 + int(shift_min) * 60) * (-1 if sign == b"-" else 1) if sign else 0
        hours = int(hour) % 12 + 12 * (b"P" in half.upper()) if half else int(hour)
        seconds = days * _DAY_S + hours * 3600 + int(minute) * 60 + int(second) - shift_s
        return seconds + int(fraction) / 10.0 ** len(fraction) if fraction else float(seconds)
    found = _MLLOG.search(text, 0, HEAD_BYTES) if b'"time_ms"' in text else None
    return int(found[1]) / 1000 if found else None


def has_zone(text: bytes) -> bool:
    """Return whether the time that `stamp_s` reads in `text` is known to be of a zone; any other is that of a clock on a wall."""
    dated = _DATED.search(text, 0, HEAD_BYTES)
    return dated is None or any(dated.groups()[10:12])


def row_stamp_s(prefix: bytes) -> float | None:
    """Return the stamp in the text before a clean record, NaN where it has no time of day.

    None where its time of day is not in the plain form, `2026-01-31 23:59:59` with any fraction: then the line needs `stamp_s`.
    The compiled scanner does the same.
    """
    clock = _CLOCK_ALONE.search(prefix)
    if clock is None:
        return float("nan")
    found = _PLAIN.search(prefix)
    return stamp_s(found[0]) if found and found.start() + _DATE_BYTES == clock.start() else None


@lru_cache(maxsize=256)
def _days(text: bytes) -> int | None:
    """Return the days since 1970 of `2026-01-31`, `20260131`, `01/31/2026`, `01/31/26`, `01/31` or `0131`, None for no date."""
    digits = text.translate(None, b"-/.")
    if text[2:3] == b"/":  # month first, as these loggers print it, unless it is above 12
        month, day, year = int(digits[:2]), int(digits[2:4]), int(b"2000"[: 8 - len(digits)] + digits[4:])
        month, day = (day, month) if month > 12 else (month, day)
    else:
        year, month, day = int(digits[:-4] or 2000), int(digits[-4:-2]), int(digits[-2:])
    is_after_february = len(digits) == 4 and month > 2  # of an unknown year
    try:
        return date(year, month, day).toordinal() - is_after_february - date(1970, 1, 1).toordinal()
    except ValueError:
        return None
