"""The time of day, as records and folder names carry it."""

import datetime as dt


def now() -> str:
    """Return the local time with its offset, ISO 8601, to the second."""
    return _local().isoformat(timespec="seconds")


def stamp() -> str:
    """Return the local time for a folder's name, for example 20261120-054210."""
    return _local().strftime("%Y%m%d-%H%M%S")


def _local() -> dt.datetime:
    present = dt.datetime.now(dt.timezone.utc)
    try:
        return present.astimezone()
    except ValueError:  # a TZ that is a day or more away from UTC
        return present
