"""The log on stdout and, below it on a terminal, one line of progress on stderr that gives way to each log line."""

import os
import sys
from typing import TextIO

from nlp_bench.seal import LogSeal


class Console:
    """Writes both, so that they do not run into each other."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        """Use these streams; default: stdout and stderr."""
        self._out, self._err = out or sys.stdout, err or sys.stderr
        self.seal = LogSeal()
        """What was said so far, for the line that closes the log."""
        self.is_terminal = self._err.isatty()
        self._width = 0

    def say(self, text: str) -> None:
        """Print lines of the log, in one write: torchrun's `--tee` passes on what it finds, whole or not."""
        self.wipe()
        self.seal.take(text)
        self._out.write(f"{text}\n")
        self._out.flush()

    def show(self, text: str) -> None:
        """Put `text` in place of the last progress; without a terminal it is a line of its own."""
        if self.is_terminal:
            text = text[: max(self._columns() - 1, 1)]  # a line that wraps could not be wiped away
            self._err.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._err.write(text + "\n")
        self._err.flush()

    def wipe(self) -> None:
        """Take the progress away."""
        if self._width:
            self._err.write("\r" + " " * self._width + "\r")
            self._err.flush()
            self._width = 0

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._err.fileno()).columns or 80
        except (OSError, ValueError):
            return 80
