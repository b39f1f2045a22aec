"""Whether the clock is right.

Linux's adjtimex(2), asked with modes = 0: STA_UNSYNC (0x0040) means that no time service disciplines the clock, maxerror is the
kernel's own bound in microseconds. The file server's clock shows in the time of change of a file that is written now.
"""

import contextlib
import ctypes
import os
import tempfile
import time
from pathlib import Path

from nlp_bench.doctor.finding import Finding, ok, together, warning
from nlp_bench.doctor.folders import written_folders
from nlp_bench.doctor.place import Place

STA_UNSYNC = 0x0040
MAX_SKEW_S = 2.0
"""Records of nodes and of the file server are compared in whole seconds; more than this makes a run look ended or stale."""


class Timex(ctypes.Structure):
    """The beginning of struct timex of <sys/timex.h>, with room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 40),
    )


def check(place: Place) -> Finding:
    """Warn of a clock that nobody sets, and of one that differs from the file server's."""
    folder = written_folders(place)["runs"]
    return together([*_kernel(), *_server(folder)], "synchronised, and as the file server's")


def _kernel() -> list[Finding]:
    state = Timex()
    try:
        code = ctypes.CDLL(None).adjtimex(ctypes.byref(state))
    except (OSError, AttributeError):
        return []
    if code < 0:
        return []  # a sandbox that forbids the question
    if state.status & STA_UNSYNC:
        return [
            warning(
                "no time service keeps this clock",
                "adjtimex: STA_UNSYNC",
                remedy="chronyc tracking, or timedatectl; ask the site to start chrony",
            )
        ]
    return [ok("", f"adjtimex: at most {state.maxerror / 1e6:.3f} s off")]


def _server(folder: Path) -> list[Finding]:
    try:
        handle, name = tempfile.mkstemp(prefix=".nlp-bench-clock.", dir=folder)
    except OSError:
        return []  # `writable` says so
    try:
        before = time.time()
        os.write(handle, b"\n")
        os.fsync(handle)
        changed, after = os.fstat(handle).st_mtime, time.time()
    except OSError:
        return []
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):
            Path(name).unlink()
    skew = max(before - changed, changed - after, 0.0)
    if skew > MAX_SKEW_S:
        return [
            warning(
                f"the file server of {folder} is {skew:.1f} s off this node's clock",
                remedy="date; chronyc tracking; tell the site",
            )
        ]
    return [ok("", f"the file server of {folder} is {skew:.2f} s off")]
