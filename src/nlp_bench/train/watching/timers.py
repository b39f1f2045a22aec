"""Timers that megatron-core starts and stops by itself (`config.timers`), without waiting for the GPU.

megatron-core's own (megatron/core/timers.py) synchronise the GPU and may wait for all ranks at each start and stop, which slows
the training that they measure. These record CUDA events in the stream instead and read them once they have passed. Between two
events lies what the stream did or waited for: a receive that stalls it, a batch that comes late.
"""

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class HostTimer:
    """Seconds between start and stop by the clock of the host, which on the CPU is the time of the work."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since_s = 0.0

    def start(self, barrier: bool = False) -> None:  # noqa: ARG002  # megatron-core's signature; nobody is waited for
        """Begin."""
        self._since_s = time.perf_counter()

    def stop(self, barrier: bool = False) -> None:  # noqa: ARG002
        """End."""
        self.seconds += time.perf_counter() - self._since_s

    def settle(self) -> None:
        """Add what has passed: everything."""


class StreamTimer:
    """Seconds that the GPU's current stream took between start and stop."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun: Any = None
        self._open: deque[tuple[Any, Any]] = deque()
        self._free: list[Any] = []

    def start(self, barrier: bool = False) -> None:  # noqa: ARG002
        """Put an event into the stream."""
        self._begun = self._event()

    def stop(self, barrier: bool = False) -> None:  # noqa: ARG002
        """Put a second one."""
        self._open.append((self._begun, self._event()))

    def settle(self) -> None:
        """Add the spans whose end the GPU has passed; the others wait for the next call."""
        while self._open and self._open[0][1].query():
            begin, end = self._open.popleft()
            self.seconds += begin.elapsed_time(end) / 1000  # milliseconds
            self._free += [begin, end]

    def _event(self) -> Any:
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


class Timers:
    """The timers of one rank by name: what megatron-core calls as `config.timers(name, log_level=2).start()`."""

    def __init__(self, device: torch.device) -> None:
        """Begin without timers."""
        self._kind = StreamTimer if device.type == "cuda" else HostTimer
        self._timers: dict[str, HostTimer | StreamTimer] = {}

    def __call__(self, name: str, log_level: int | None = None) -> HostTimer | StreamTimer:  # noqa: ARG002  # all are kept
        """Return the timer of this name."""
        if name not in self._timers:
            self._timers[name] = self._kind()
        return self._timers[name]

    def settle(self) -> None:
        """Let each timer add what has passed."""
        for timer in self._timers.values():
            timer.settle()

    def take(self) -> dict[str, float]:
        """Return the seconds since the last call by name; on a GPU the caller has synchronised."""
        self.settle()
        seconds = {name: timer.seconds for name, timer in self._timers.items()}
        for timer in self._timers.values():
            timer.seconds = 0.0
        return seconds

    def timed(self, name: str, items: Iterator[T]) -> Iterator[T]:
        """Yield from `items`, timing how long each is waited for."""
        timer = self(name)
        while True:
            timer.start()
            try:
                item = next(items)
            except StopIteration:
                return
            timer.stop()
            yield item
