"""The time of day, as records and folder names carry it."""

import datetime as dt
import time

_BEGAN_UNIX_S, _BEGAN_S = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)


def now() -> str:
    """Return the local time with its offset, ISO 8601, to the second."""
    return _local().isoformat(timespec="seconds")


def stamp() -> str:
    """Return the local time for a folder's name, for example 20261120-054210."""
    return _local().strftime("%Y%m%d-%H%M%S")


def unix_s() -> float:
    """Return the seconds since 1970, by the time of day at which this process began: a clock that is set meanwhile changes no difference.

    The time in which the machine was suspended counts. The trainer's lines and the recorder's samples are both stamped so, to be compared with each other.
    """
    return _BEGAN_UNIX_S + (time.clock_gettime(time.CLOCK_BOOTTIME) - _BEGAN_S)


def _local() -> dt.datetime:
    present = dt.datetime.now(dt.timezone.utc)
    try:
        return present.astimezone()
    except ValueError:  # a TZ that is a day or more away from UTC
        return present
