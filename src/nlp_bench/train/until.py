"""Stopping when it is enough: by the times of the log's own lines, decided by the rank that writes them, on all ranks at once."""

import torch

from nlp_bench.measure.anytime import Bound, ConfidenceSequence, percent
from nlp_bench.train import world
from nlp_bench.train.logline import Interval
from nlp_bench.train.settings import Settings


class Until:
    """What --until asks, on one rank; without the option it asks nothing and no rank waits for another."""

    def __init__(self, settings: Settings, device: torch.device, *, decides: bool) -> None:
        """Every rank makes one; one of them `decides`."""
        self._word, self._device, self._decides = settings.until, device, decides
        self._sequence = (
            ConfidenceSequence(percent("until", settings.until), settings.log_interval)
            if settings.until is not None
            else None
        )
        self._bound: Bound | None = None

    def is_enough(self, interval: Interval) -> bool:
        """Take one log line; say whether the training ends with it: the same on every rank, and every rank must call it."""
        if self._sequence is None:
            return False
        # The digits that the log shows decide, so that the log alone can prove the decision.
        if self._decides and self._sequence.add(interval.iteration, round(interval.elapsed_s, 4)):
            self._bound = self._sequence.bound()
        enough = self._decides and self._bound is not None and self._bound.is_enough
        return bool(world.greatest(int(enough), self._device))

    def text(self, iteration: int, train_iters: int) -> str:
        """Return the line that ends the log: whether it was enough, after which iteration; empty without the option.

        `launch/end/evidence.py` reads its beginning.
        """
        if self._sequence is None:
            return ""
        enough = self._bound is not None and self._bound.is_enough
        known = self._bound.text() if self._bound else "too few lines to bound the mean"
        word = "enough" if enough else "not enough"
        return f" until {self._word}: {word} after iteration {iteration} of {train_iters}: {known}\n"
