"""When a line was written: time stamps finer than a second."""

import re
from datetime import datetime, timezone

_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)[.,](\d{3,6})\d*(?:(Z)|([+-])(\d\d):?(\d\d))?")


def stamp_s(text: bytes) -> float | None:
    """Return the first time stamp in `text` that has fractions of a second, as seconds since 1970; None if there is none.

    A stamp without a zone counts as UTC: only differences within one log mean anything.
    """
    found = _STAMP.search(text)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    shift = (int(found[10]) * 3600 + int(found[11]) * 60) * (-1 if found[9] == b"-" else 1) if found[9] else 0
    return moment.timestamp() + int(found[7]) / 10.0 ** len(found[7]) - shift
