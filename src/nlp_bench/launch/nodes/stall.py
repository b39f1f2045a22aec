"""Whether a training still moves, by the growth of its log: a rank that hangs outside a collective has no time-out of its own."""

import contextlib
import re
from pathlib import Path

from nlp_bench.config.limits import Limits

ITERATION = re.compile(rb"iteration +(\d+)/ *(\d+)")
BLOCK_BYTES = 1 << 20


class LogWatch:
    """The silence of one growing log, in seconds for which this process was awake.

    A job that Slurm suspends, or a machine that sleeps, is silent without a fault: that time is not counted, because the watch
    sleeps with it.
    """

    def __init__(self, path: Path, limits: Limits, *, saves: bool) -> None:
        """Watch `path` from its present end on: what stands there is of an earlier start. `saves`: checkpoints are written."""
        self.path, self.limits, self.saves = path, limits, saves
        self.offset = self._size() or 0
        self.silent_s = 0.0
        self.since_line_s = 0.0
        self.longest_s = 0.0
        self.iteration: int | None = None
        self.num_lines = 0
        self.is_last = False

    def look(self, awake_s: float) -> str | None:
        """Read what has been added, `awake_s` after the last look; return a sentence once the silence is a stall."""
        self.silent_s += awake_s
        self.since_line_s += awake_s
        size = self._size()
        if size is None or self.limits.stall_factor == 0:
            return None
        if size != self.offset:
            self.silent_s = 0.0
            with contextlib.suppress(OSError):  # a file server that stumbles: read at the next look
                self._read(size)
        limit_s = self.limit_s()
        if self.silent_s <= limit_s:
            return None
        where = f"stalled after iteration {self.iteration}" if self.iteration else "stalled before the first iteration"
        return f"{where}, silent for {self.silent_s:.0f} s (limit {limit_s:.0f} s, longest interval {self.longest_s:.1f} s)"

    def limit_s(self) -> float:
        """Return the silence that is allowed now; the first interval holds the start and says nothing of the others."""
        return self.limits.silence_s(self.longest_s, has_pauses=self.num_lines < 2 or self.is_last or self.saves)

    def _read(self, size: int) -> None:
        begin = self.offset if self.offset <= size else 0  # truncated, or another file
        with self.path.open("rb") as stream:
            stream.seek(max(begin, size - BLOCK_BYTES))
            text = stream.read(BLOCK_BYTES)
        self.offset = size
        found = ITERATION.findall(text)
        if not found:
            return
        if self.iteration is not None:
            self.longest_s = max(self.longest_s, self.since_line_s / len(found))
        self.iteration, self.since_line_s = int(found[-1][0]), 0.0
        self.is_last = found[-1][0] == found[-1][1]
        self.num_lines += len(found)

    def _size(self) -> int | None:
        try:
            return self.path.stat().st_size
        except OSError:
            return None
