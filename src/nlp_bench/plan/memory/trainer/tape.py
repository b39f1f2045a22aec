"""What lives while tensors come and go: the level and the peak of many configurations at once."""

import numpy as np

from nlp_bench.plan.configurations import Numbers

Bytes = Numbers | float
"""Bytes, of shape [N] or one number for all."""


class Tape:
    """Follows allocations in their order; every step is one addition and one comparison for all configurations."""

    def __init__(self) -> None:
        """Begin at level 0."""
        self.level: Numbers = np.zeros(())
        self.peak: Numbers = np.zeros(())

    def take(self, *sizes: Bytes) -> None:
        """Allocate."""
        for size in sizes:
            self.level = self.level + size
        self.peak = np.maximum(self.peak, self.level)

    def give(self, *sizes: Bytes) -> None:
        """Free."""
        for size in sizes:
            self.level = self.level - size

    def briefly(self, *sizes: Bytes) -> None:
        """Allocate and free."""
        self.take(*sizes)
        self.give(*sizes)
