"""How far the preparation has come: one line that is rewritten on a terminal, a plain line every 30 s elsewhere."""

import os
import sys
import threading
import time
from typing import TextIO

TERMINAL_STEP_S = 0.2
PLAIN_STEP_S = 30.0
QUIET_S = 1.0
"""Nothing is said before this time: short work needs no progress."""


class Progress:
    """Counts what the shards report, from several threads, and shows it."""

    def __init__(self, *, num_shards: int, num_bytes: int, stream: TextIO | None = None) -> None:
        """Begin; `num_bytes` is the size of all shards on disk."""
        self.num_shards, self.num_bytes = num_shards, num_bytes
        self.stream = stream or sys.stderr
        self.is_terminal = self.stream.isatty()
        self.started_s = time.monotonic()
        self.next_s = self.started_s + (QUIET_S if self.is_terminal else PLAIN_STEP_S)
        self.width = 0
        self.lock = threading.Lock()
        self.begun: dict[int, int] = {}
        self.read: dict[int, int] = {}
        self.num_done = self.num_documents = self.text_bytes = 0

    def begin(self, shard: int, position: int) -> None:
        """Say that work on a shard begins at `position` in its file: what lies before was done in an earlier run."""
        with self.lock:
            self.begun[shard] = self.read[shard] = position

    def add(self, shard: int, *, position: int, text_bytes: int, documents: int) -> None:
        """Say what was done since the last call, and how far the shard's file is read."""
        with self.lock:
            self.read[shard] = position
            self.text_bytes += text_bytes
            self.num_documents += documents

    def end(self, shard: int, size: int) -> None:
        """Say that a shard is done."""
        with self.lock:
            self.begun.setdefault(shard, size)
            self.read[shard] = size
            self.num_done += 1

    def show(self) -> None:
        """Say how far it is, if it is time to say something."""
        now_s = time.monotonic()
        if now_s < self.next_s:
            return
        self.next_s = now_s + (TERMINAL_STEP_S if self.is_terminal else PLAIN_STEP_S)
        self._write(self.text(now_s - self.started_s))

    def text(self, elapsed_s: float) -> str:
        """Return the line after a time of work."""
        with self.lock:
            done = sum(self.read.values())
            fresh = done - sum(self.begun.values())
            documents, text, shards = self.num_documents / elapsed_s, self.text_bytes / elapsed_s, self.num_done
        part = min(done / max(self.num_bytes, 1), 1.0)
        left = [f"{_time((self.num_bytes - done) / fresh * elapsed_s)} left"] if fresh > 0 and part < 1 else []
        amount = [
            f"{shards}/{self.num_shards} shards",
            f"{documents:.0f} documents/s",
            f"{text / 1e6:.1f} MB/s of text",
        ]
        return "nlp-bench: preparing " + ", ".join([f"{100 * part:.1f} %", *amount, *left])

    def close(self) -> None:
        """Wipe the line on a terminal away."""
        if self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
            self.width = 0

    def _write(self, text: str) -> None:
        if self.is_terminal:
            text = text[: max(_columns(self.stream) - 1, 1)]  # a line that wraps could not be wiped away
            self.stream.write("\r" + text.ljust(self.width))
            self.width = len(text)
        else:
            self.stream.write(text + "\n")
        self.stream.flush()


def _time(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
