"""Whether a run proves that it stays under a limit of the report time."""

from nlp_bench.measure.entry import RunEntry

PASS, FAIL, NOT_PROVEN = "PASS", "FAIL", "NOT PROVEN"


def verdict(entry: RunEntry, tokens: int, limit_s: float) -> str:
    """Return PASS when the whole 95 % interval of the time is at or below `limit_s`, FAIL when all of it is above.

    Anything else is NOT PROVEN: an interval on both sides of the limit, no interval, no number.
    """
    interval = entry.time_ci95_s(tokens)
    if interval is None:
        return NOT_PROVEN
    low, high = interval
    return PASS if high <= limit_s else FAIL if low > limit_s else NOT_PROVEN
