"""The time of day, as records and folder names carry it."""

import datetime as dt


def now() -> str:
    """Return the local time with its offset, ISO 8601, to the second."""
    return dt.datetime.now(dt.timezone.utc).astimezone().isoformat(timespec="seconds")


def stamp() -> str:
    """Return the local time as it stands in a folder's name, for example 20261120-054210."""
    return dt.datetime.now(dt.timezone.utc).astimezone().strftime("%Y%m%d-%H%M%S")
