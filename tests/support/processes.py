"""Which processes of this machine are of a test."""

import contextlib
import time
from pathlib import Path

HEARING = ("env", "--default-signal")
"""Words before a command that must heed every signal: a run of the tests under nohup or behind `&` hands down that some are ignored."""


def processes_with(text: str) -> dict[int, str]:
    """Return number and command line of the processes whose command line contains `text`."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found[int(path.parent.name)] = path.read_text(errors="replace").replace("\0", " ").strip()
    return {number: line for number, line in found.items() if text in line}


def gone(text: str, within_s: float = 20.0) -> bool:
    """Wait until no command line contains `text`: a process that was just ended may still be seen."""
    until = time.monotonic() + within_s
    while processes_with(text) and time.monotonic() < until:
        time.sleep(0.05)
    return not processes_with(text)
