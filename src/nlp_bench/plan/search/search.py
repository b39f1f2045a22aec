"""The forecast of every legal configuration, and their order: by predicted report time among those that fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.problem import AXES, Problem
from nlp_bench.plan.search.space import Space, space

CHUNK = 16384  # configurations that are forecast at once: their arrays stay in a core's cache
MOST_KEYS = 2**62  # keys that a 64-bit integer holds
SAME = 1e-3  # relative difference of two times below which less memory decides
NEAR = 5e-3  # relative difference of two times below which a layout that is slower and needs more memory is dropped


@immutable
class Figures:
    """What is predicted of N configurations; arrays of shape [N]."""

    iteration_s: Numbers
    memory_bytes: Numbers  # peak of the fullest rank
    fits: Flags  # whether it surely fits
    tight: Flags  # whether it may fit


@immutable
class Search:
    """Every legal configuration with its figures, and the layouts in their order."""

    space: Space
    figures: Figures
    ranked: npt.NDArray[np.int64]  # positions of layouts that fit, fastest first; see `order`

    @property
    def num_fitting(self) -> int:
        """Configurations that surely fit."""
        return int(np.count_nonzero(self.figures.fits))

    @property
    def num_tight(self) -> int:
        """Configurations that may fit."""
        return int(np.count_nonzero(self.figures.tight))

    def rank(self, iteration_s: float) -> int:
        """Return the place, from 1, that an iteration of this length has, or would have, among the ranked layouts."""
        return 1 + int(np.searchsorted(self.figures.iteration_s[self.ranked], iteration_s * (1 - 1e-9)))

    def with_kept(self, kept: Flags) -> "Search":
        """Return the same search, in which those of `kept` (shape [N]) that fit are ranked whatever their twins."""
        places = np.union1d(self.ranked, np.flatnonzero(kept & self.figures.fits))
        return replace(self, ranked=places[np.argsort(self.figures.iteration_s[places], kind="stable")])

    def tight_and_faster(self, most: int) -> npt.NDArray[np.int64]:
        """Return positions of at most `most` layouts that may fit and would be faster than the best that does."""
        found = order(self.space.legal, self.figures, self.figures.tight)
        if len(self.ranked):
            found = found[self.figures.iteration_s[found] < self.figures.iteration_s[self.ranked[0]] * (1 - SAME)]
        return found[:most]


def figures_of(c: Configurations, problem: Problem) -> Figures:
    """Forecast N configurations a chunk at a time."""
    count = len(c)
    parts: list[dict[str, Any]] = []
    for start in range(0, max(count, 1), CHUNK):
        part = c.take(np.arange(start, min(count, start + CHUNK)))
        found, shape = forecast(part, problem.constants), (len(part),)
        arrays = {
            "iteration_s": found.seconds.total,
            "memory_bytes": found.memory.total,
            "fits": found.memory.fits,
            "tight": found.memory.tight,
        }
        parts.append({name: np.broadcast_to(values, shape) for name, values in arrays.items()})
    return Figures(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def order(c: Configurations, figures: Figures, among: Flags) -> npt.NDArray[np.int64]:
    """Return positions where `among` is true, fastest first, without twins, so that a table shows different layouts.

    Of each layout its best setting of the switches is kept, of layouts whose times differ by less than SAME the one that needs the
    least memory, and none that is slower by less than NEAR and needs more.
    """
    places = np.flatnonzero(among)
    seconds, keys = figures.iteration_s[places], layout_keys(c.take(places))
    steps = np.round(np.log(seconds) / SAME)  # times that differ by less are one
    best_first = np.lexsort((seconds, figures.memory_bytes[places], steps))
    for twins in (keys, steps):
        _, first = np.unique(twins[best_first], return_index=True)
        best_first = best_first[np.sort(first)]
    sorted_places = places[best_first[np.argsort(seconds[best_first], kind="stable")]]
    return sorted_places[_undominated(figures.iteration_s[sorted_places], figures.memory_bytes[sorted_places])]


def _undominated(seconds: Numbers, memory: Numbers) -> list[int]:
    """Return which of the rows, sorted by time, need less memory than every kept one that is faster by less than NEAR."""
    kept: list[int] = []
    for place, (time, needed) in enumerate(zip(seconds.tolist(), memory.tolist(), strict=True)):
        for other in reversed(kept):
            if seconds[other] < time * (1 - NEAR):
                kept.append(place)
                break
            if memory[other] <= needed:
                break
        else:
            kept.append(place)
    return kept


def layout_keys(c: Configurations) -> npt.NDArray[np.int64]:
    """Return one number for each layout: its sizes, whatever its switches, as digits of a mixed radix."""
    s, key, span = c.spread, np.zeros(len(c), dtype=np.int64), 1
    for array in (axis.array for axis in AXES.values() if not axis.values):
        digits = np.broadcast_to(getattr(s, array), (len(c),)).astype(np.int64)
        radix = int(digits.max(initial=0)) + 1
        if span * radix >= MOST_KEYS:  # renumber densely, so that the next digit fits
            key = np.unique(key, return_inverse=True)[1].reshape(-1)
            span = int(key.max(initial=0)) + 1
        key, span = key * radix + digits, span * radix
    return key


def search(problem: Problem, *, nodes: int | None = None) -> Search:
    """Forecast every legal configuration of the problem and rank the layouts that fit."""
    found = space(problem, nodes=nodes)
    figures = figures_of(found.legal, problem)
    return Search(space=found, figures=figures, ranked=order(found.legal, figures, figures.fits))
