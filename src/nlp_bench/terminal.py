"""What is said on a terminal: messages, and a status line that is redrawn in place and wiped before other lines."""

import os
import sys
from typing import TextIO

from nlp_bench.escape import visible


def say(*lines: str) -> None:
    """Print messages on standard error, one line each; what in them would steer the terminal (a name, a log) is written out."""
    for line in lines:
        text = visible(line).replace("\r", "[U+000D]")
        print(f"nlp-bench: {text}", file=sys.stderr, flush=True)


class StatusLine:
    """The last line of a stream; without a terminal each text is a line of its own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.is_terminal, self._width = stream, stream.isatty(), 0

    def show(self, text: str) -> None:
        """Draw `text` in place of the last text."""
        if self.is_terminal:
            text = text[: max(self._columns() - 1, 1)]  # a line that wraps could not be wiped away
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def wipe(self) -> None:
        """Leave an empty line."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80


def duration_text(seconds: float) -> str:
    """Return a remaining time as text: 119 s, 2 min, 2 h 05 min."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{round(whole / 60)} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60:02d} min"
