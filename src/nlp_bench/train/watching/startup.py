"""The time from the start of the process to the end of the first iteration, by parts."""

import os
import time

from nlp_bench.orphans import stat_of

LEAST_S = 0.05  # shorter parts are not listed, but in the sum


def now_s() -> float:
    """Return the seconds since this machine was booted, sleep included: the clock of `process_start_s`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start_s(pid: int) -> float | None:
    """Return the start of a process in seconds since the machine was booted, None where it is unknown."""
    try:
        return int(stat_of(pid)[19]) / os.sysconf("SC_CLK_TCK")  # field 22: starttime, in clock ticks
    except (OSError, ValueError, IndexError):
        return None


class StartUp:
    """The parts of the time since the start of the process, each ended by a call of `mark`."""

    def __init__(self, started_s: float | None = None) -> None:
        """Start at `started_s`, or now where that is not known."""
        self.started_s = self._last_s = now_s() if started_s is None else started_s
        self.parts: dict[str, float] = {}

    def mark(self, part: str) -> None:
        """Assign the time since the last mark to `part`."""
        now = now_s()
        self.parts[part] = self.parts.get(part, 0.0) + now - self._last_s
        self._last_s = now

    def text(self, launcher_s: float | None = None) -> str:
        """Return the line for the log; `launcher_s` is the start of torchrun."""
        parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.parts.items() if seconds >= LEAST_S)
        total_s = sum(self.parts.values())
        earlier = "" if launcher_s is None else f"; torchrun was started {self.started_s - launcher_s:.1f} s earlier"
        return f" > start-up: {total_s:.1f} s from process start to the end of the first iteration ({parts}){earlier}"


STARTUP = StartUp(process_start_s(os.getpid()))  # of this process; global, as its parts end in several modules
RAN: dict[str, str] = {}  # autograd node to torch's attention kernel that has run here; set by train/attention.py
