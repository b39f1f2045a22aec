"""Whom the loop tells of its events, and what it tells."""

from collections.abc import Callable
from dataclasses import dataclass

from nlp_bench.train.logline import Interval

Say = Callable[[str], None]
"""Prints lines of the log; does nothing on ranks that do not log."""
Scalars = dict[str, float]
"""Numbers of one interval by the tag under which they are drawn."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the training ended; the same on every rank."""

    iteration: int
    """Last iteration, counted from 1 over all jobs of a chain."""
    code: int
    """Exit code: 0, or that of a loss that is not finite."""
    text: str
    """One sentence for the log."""


class Watcher:
    """Is told of each event of the training, in the order of the list; overrides what it wants to know.

    A watcher that talks with other ranks stands in the list of every rank. The time of `before`, `after` and `interval`
    counts: it is part of the run.
    """

    def before(self, iteration: int) -> None:
        """Hear that `iteration` begins."""

    def after(self, iteration: int) -> None:
        """Hear that the weights are updated; the time until this returns belongs to `iteration`."""

    def interval(self, interval: Interval, scalars: Scalars) -> None:
        """Hear that a log line was printed; `scalars` may be added to for the watchers that follow."""

    def end(self, ending: Ending) -> None:
        """Hear that all ranks have stopped in good order."""

    def close(self) -> None:
        """Keep what is not on disk yet: called at every end, also after an error, without the other ranks."""
