"""The ranks of this node as processes: which there are, and in which order they end.

torchrun blames the first rank that *fails*: one that leaves early with status 0 makes its peers fail, and is not named.
"""

import contextlib
import datetime as dt
import os
import select
import time
from pathlib import Path

SCAN_S = 1.0
"""Seconds between two searches while ranks are missing; a process table of thousands takes some milliseconds."""


class Ranks:
    """The children of torchrun that are ranks, watched through their pidfds (Linux 5.3), which tell the order exactly."""

    def __init__(self, agent: int, expected: int) -> None:
        self.agent, self.expected = agent, expected
        self.handles: dict[int, int] = {}  # pidfd: rank
        self.pids: dict[int, int] = {}  # rank: process
        self.ended: list[tuple[int, float]] = []
        self.next_scan = 0.0
        self.poll = select.poll()

    def wait(self, timeout_s: float) -> None:
        """Sleep for at most `timeout_s`, less when a rank ends, and note the ends."""
        if len(self.pids) < self.expected and time.monotonic() >= self.next_scan:
            self._scan()
        if not self.handles:
            time.sleep(timeout_s)
            return
        ready, now = self.poll.poll(timeout_s * 1000), time.time()  # of several at once nobody knows the order
        for handle, _ in ready:
            self.poll.unregister(handle)
            self.ended.append((self.handles.pop(handle), now))
            os.close(handle)

    def alive(self) -> list[int]:
        """Return the processes of the ranks that have not ended."""
        gone = {rank for rank, _ in self.ended}
        return [pid for rank, pid in self.pids.items() if rank not in gone]

    def order(self) -> str | None:
        """Return the sentence that `launch.end.evidence` reads: which rank ended when; None unless all ranks were seen.

        One that ended before it was seen would have been the first.
        """
        if not self.ended or len(self.ended) + len(self.handles) < self.expected:
            return None
        first_s = self.ended[0][1]
        words = [f"{rank} (+{at - first_s:.2f} s)" for rank, at in self.ended]
        begin = dt.datetime.fromtimestamp(first_s, tz=dt.timezone.utc).isoformat(timespec="microseconds")
        together = [str(rank) for rank, at in self.ended if at == first_s]
        also = f"; within one look: {' '.join(together)}" if len(together) > 1 else ""
        return f"nlp-bench: ranks ended in the order {', '.join(words)}; the first at {begin}{also}"

    def _scan(self) -> None:
        self.next_scan = time.monotonic() + SCAN_S
        for pid in children(self.agent):
            if pid in self.pids.values():
                continue
            rank = _rank(pid)
            if rank is None or rank in self.pids:
                continue
            self.pids[rank] = pid
            with contextlib.suppress(
                OSError, AttributeError
            ):  # an older Linux, or it has ended already: no order is told
                handle = os.pidfd_open(pid)
                self.handles[handle] = rank
                self.poll.register(handle, select.POLLIN)


def children(parent: int) -> list[int]:
    """Return the child processes of `parent`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if len(words) > 1 and int(words[1]) == parent and words[0] != "Z":
            found.append(int(path.parent.name))
    return found


def _rank(pid: int) -> int | None:
    """Return the rank that torchrun gave a process; None where it has none, or has not become the rank's program yet."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    values = dict(word.split(b"=", 1) for word in words if b"=" in word)
    text = values.get(b"RANK", b"")
    return int(text) if text.isdigit() and b"TORCHELASTIC_RUN_ID" in values else None
