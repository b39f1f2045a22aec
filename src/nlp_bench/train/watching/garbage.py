"""Python's garbage collector, by hand: ranks that collect at different times wait for each other in turns."""

import gc

from nlp_bench.train.settings import Settings
from nlp_bench.train.watching.watcher import Watcher


class Garbage(Watcher):
    """Collects on all ranks after the same iterations, as Megatron-LM's --manual-gc does."""

    def __init__(self, settings: Settings) -> None:
        """Switch the collector off."""
        self._every = settings.manual_gc_interval
        gc.disable()
        gc.collect()

    def after(self, iteration: int) -> None:
        """Collect where the interval says so."""
        if self._every and iteration % self._every == 0:
            gc.collect()

    def close(self) -> None:
        """Switch the collector on again."""
        gc.enable()
