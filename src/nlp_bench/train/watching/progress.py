"""How far the training is and how long it still takes, for a person at a terminal."""

import time
from collections.abc import Callable

from nlp_bench.train.layout import Layout
from nlp_bench.train.logline import Interval
from nlp_bench.train.settings import Settings
from nlp_bench.train.watching.console import Console
from nlp_bench.train.watching.watcher import Scalars, Watcher

STEP_S = 0.2
"""Shortest time between two drawings."""


class Progress(Watcher):
    """Redraws one line on a terminal; elsewhere, when it is asked for, prints a line with each log line."""

    def __init__(
        self, console: Console, settings: Settings, layout: Layout, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin before the first iteration."""
        self._console, self._clock = console, clock
        self._tokens = layout.global_batch_size * settings.seq_length
        self._last_iteration = layout.train_iters
        self._first: tuple[int, float] | None = None
        self._drawn_s = float("-inf")

    def after(self, iteration: int) -> None:
        """Draw, if the last drawing is not too fresh."""
        now_s = self._clock()
        self._first = self._first or (iteration, now_s)  # the first iteration takes longer than the others
        if self._console.is_terminal and now_s - self._drawn_s >= STEP_S:
            self._drawn_s = now_s
            self._console.show(self.text(iteration, now_s))

    def interval(self, interval: Interval, scalars: Scalars) -> None:  # noqa: ARG002
        """Draw again below the log line."""
        self._console.show(self.text(interval.iteration, self._clock()))

    def close(self) -> None:
        """Leave nothing behind."""
        self._console.wipe()

    def text(self, iteration: int, now_s: float) -> str:
        """Return "iteration 34 of 40, 85 %, 12345 tokens/s, 8 s left"; the rate is known from the second iteration on."""
        words = [f"iteration {iteration} of {self._last_iteration}", f"{100 * iteration // self._last_iteration} %"]
        first, since_s = self._first or (iteration, now_s)
        if iteration > first and now_s > since_s:
            seconds = (now_s - since_s) / (iteration - first)
            left = f"{_time((self._last_iteration - iteration) * seconds)} left"
            words += [f"{self._tokens / seconds:.0f} tokens/s", left]
        return ", ".join(words)


def _time(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{round(whole / 60)} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60:02d} min"
