"""What published rows do not state and memory tells: recomputation."""

from dataclasses import replace
from typing import Any

import numpy as np

from nlp_bench.plan.configurations import RECOMPUTE, Configurations
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.peak import peak_memory

_SURELY_TOO_MUCH = 1.3
"""Share of a GPU's memory above which a configuration cannot have run: well beyond what the memory model errs by."""
_OFFLOADS = ("nvidia", "xla")
"""Families whose recipes move activations to the host or choose operators to compute again, which no row states."""


def completed(c: Configurations, unstated: np.ndarray[Any, np.dtype[np.bool_]], constants: Constants) -> Configurations:
    """Return the configurations with full recompute where none is stated and without it the memory cannot suffice.

    The cheapest that fits is assumed: nothing computed again, unless the peak is far above the GPU's memory.
    """
    families = np.array([one.family for one in constants.traits])[c.framework]
    asked = unstated & ~np.isin(families, _OFFLOADS)
    if not asked.any():
        return c
    places = np.flatnonzero(asked)
    some = c.take(places)
    memory = peak_memory(some, constants)
    recompute = c.spread.recompute.copy()
    recompute[places[memory.total > _SURELY_TOO_MUCH * memory.capacity]] = RECOMPUTE.index("full")
    return replace(c, spread=replace(c.spread, recompute=recompute))
