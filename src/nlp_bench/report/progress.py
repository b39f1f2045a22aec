"""One line that tells how far a long reading has come.

Written here and not with tqdm: that takes 44 ms to import (measured; the whole report on a small log takes 150), would be a
dependency for one line of text, and counts one thing where here files and bytes count together.
"""

import os
import sys
import time
from types import TracebackType
from typing import TextIO

QUIET_S = 1.0
STEP_S = 0.1
_BAR_WIDTH = 20


class ProgressLine:
    """Appears on a terminal's standard error after a second of work, and leaves nothing behind. No colours, no escapes."""

    def __init__(self, *, num_files: int, num_bytes: int | None, stream: TextIO | None = None) -> None:
        """Begin; `num_bytes` is the size of all files, None where it is not known."""
        self.num_files, self.num_bytes = num_files, num_bytes
        self.stream = stream or sys.stderr
        self.is_on = self.stream is not None and self.stream.isatty()
        self.started_s = time.monotonic()
        self.next_s = self.started_s + QUIET_S
        self.width = 0

    def __enter__(self) -> "ProgressLine":  # noqa: PYI034  # typing.Self is not in Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.write("")

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.started_s

    def show(self, files: int, read_bytes: int) -> None:
        """Say how much was read, if it is time to say something."""
        now_s = time.monotonic()
        if self.is_on and now_s >= self.next_s:
            self.next_s = now_s + STEP_S
            self.write(self.text(files, read_bytes, now_s - self.started_s))

    def text(self, files: int, read_bytes: int, elapsed_s: float) -> str:
        """Return the line for a moment."""
        num_files = [f"{files} of {self.num_files} files"] if self.num_files > 1 else []
        speed = read_bytes / elapsed_s
        total = f" of {self.num_bytes / 1e6:.2f}" if self.num_bytes else ""
        amount = [*num_files, f"{read_bytes / 1e6:.2f}{total} MB", f"{speed / 1e6:.2f} MB/s"]
        if not self.num_bytes:
            return "reading " + ", ".join(amount)
        part = min(read_bytes / self.num_bytes, 1.0)
        left = [f"{(self.num_bytes - read_bytes) / speed:.0f} s left"] if 0 < part < 1 else []
        bar = "#" * int(part * _BAR_WIDTH)
        return f"reading [{bar:<{_BAR_WIDTH}}] " + ", ".join([f"{100 * part:.0f} %", *left, *amount])

    def write(self, text: str) -> None:
        """Put `text` in the place of what stands there."""
        if not self.width and not text:
            return
        # A line that wraps could not be wiped away.
        text = text[: max(_columns(self.stream) - 1, 1)]
        self.stream.write("\r" + text.ljust(self.width) + ("" if text else "\r"))
        self.stream.flush()
        self.width = len(text)


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
