"""Time stamps: the date and time that programs, loggers and launchers print at the head of a line.

Only differences within one log are meaningful: a stamp without a zone counts as UTC, one without a year as in 2000,
where 1 March follows 28 February: of a leap year the clock is set back once, as at the end of each year.
"""

import re
from datetime import date
from functools import lru_cache

HEAD_BYTES = 96  # bytes at the beginning of a line that may hold a logger's time; a later date is part of the message
_HALF = rb" ?(?:[AP]M|[ap]m)(?![\w-])"  # of a day of 2 x 12 hours
_CLOCK = rb"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(" + _HALF + rb")?(?:(Z)|([+-])(\d\d):?(\d\d)(?!\d))?"
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
_FINE_BYTES = 23  # with milliseconds


def stamp_s(text: bytes, *, is_fine: bool = False) -> float | None:
    """Return the first date with a time of day at the head of `text`, as seconds since 1970; None if there is none.

    With `is_fine` only one with milliseconds or finer. MLPerf's lines state the milliseconds since 1970.
    """
    if b":" not in text:
        return None
    plain = _PLAIN.search(text, 0, HEAD_BYTES)
    if plain and (stamp := _plain_s(plain[0])) is not None and not (is_fine and len(plain[0]) < _FINE_BYTES):
        return stamp
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
    return _plain_s(found[0]) if found and found.start() + _DATE_BYTES == clock.start() else None


def _plain_s(text: bytes) -> float | None:
    """Return the seconds since 1970 of a plain stamp, None for an impossible day or time."""
    minute_s, second, fraction = _minute_s(text[:16]), text[17:19], text[20:]
    if minute_s is None or second > b"59":
        return None
    seconds = minute_s + int(second)
    return seconds + int(fraction) / 10.0 ** len(fraction) if fraction else float(seconds)


@lru_cache(maxsize=256)
def _minute_s(text: bytes) -> int | None:
    days, hour, minute = _days(text[:10]), text[11:13], text[14:]
    if days is None or hour > b"23" or minute > b"59":
        return None
    return days * _DAY_S + int(hour) * 3600 + int(minute) * 60


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
