"""How long it takes from the start of the process to the end of the first iteration, and what with."""

import os
import time
from pathlib import Path

LEAST_S = 0.05  # shorter parts are not named; they are in the sum


def now_s() -> float:
    """Return the seconds since this machine was started, sleep included: the clock of `process_start_s`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start_s(pid: int) -> float | None:
    """Return when a process was started in seconds since the machine was, None where the system does not tell.

    Source: proc(5), /proc/PID/stat, field 22 (starttime, in clock ticks); the name in field 2 may hold blanks and brackets.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


class StartUp:
    """The parts of the time since the process started, each ended by a call of `mark`."""

    def __init__(self, started_s: float | None = None) -> None:
        """Begin at `started_s`, or now where that is not known."""
        self.started_s = self._last_s = now_s() if started_s is None else started_s
        self.parts: dict[str, float] = {}

    def mark(self, part: str) -> None:
        """Say that everything since the last mark was `part`."""
        now = now_s()
        self.parts[part] = self.parts.get(part, 0.0) + now - self._last_s
        self._last_s = now

    def text(self, launcher_s: float | None = None) -> str:
        """Return the fact for the log; `launcher_s` is when torchrun was started."""
        parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.parts.items() if seconds >= LEAST_S)
        total_s = sum(self.parts.values())
        earlier = "" if launcher_s is None else f"; torchrun was started {self.started_s - launcher_s:.1f} s earlier"
        return f" > start-up: {total_s:.1f} s from process start to the end of the first iteration ({parts}){earlier}"


STARTUP = StartUp(process_start_s(os.getpid()))  # of this process; its parts end in files that do not know each other
RAN: dict[str, str] = {}
"""Torch's attention kernels that have run in this process, by the name of the autograd node behind their result; train/attention.py."""
