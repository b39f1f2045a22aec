"""When a training stops before its last iteration: all ranks must find the same answer, or those that go on wait for ever."""

import signal
import time

from nlp_bench.train.settings import Settings


class Stop:
    """Time limit, signal and exit interval of one rank."""

    def __init__(self, settings: Settings, started_s: float) -> None:
        """Watch from `started_s` (time.monotonic) on; with --exit-signal-handler SIGTERM no longer ends this process."""
        self._settings, self._started_s = settings, started_s
        self._signalled = False
        if settings.exit_signal_handler:
            signal.signal(signal.SIGTERM, self._take)

    def asks(self) -> tuple[bool, ...]:
        """Return whether a signal came to this rank and whether its time is over; nothing where neither is watched."""
        limit = self._settings.exit_duration_in_mins
        if limit is None and not self._settings.exit_signal_handler:
            return ()
        return self._signalled, limit is not None and time.monotonic() - self._started_s > 60 * limit

    def reason(self, iteration: int, votes: tuple[bool, ...]) -> str | None:
        """Return what ends the training after this iteration, None when it goes on; `votes` are the answers of all ranks to `asks`.

        One rank that is late or was told to stop is enough: one clock, or a signal to one node, must not end only some of them.
        """
        s, (signalled, late) = self._settings, votes or (False, False)
        if signalled:
            return "exit-signal-handler: SIGTERM came"
        if late:
            return f"exit-duration-in-mins {s.exit_duration_in_mins}"
        if s.exit_interval and iteration % s.exit_interval == 0:
            return f"exit-interval {s.exit_interval}"
        return None

    def _take(self, _number: int, _frame: object) -> None:
        self._signalled = True
