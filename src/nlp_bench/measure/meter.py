"""One energy counter of one node: joules between two moments, or why there are none. Nothing is estimated from power.

Between two samples the counter is taken to rise evenly, which matters at the two ends of a window alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
GREATEST_W = 10_000.0
"""No board and no socket draws more: such a counter is not to be believed."""
SOCKET_W = 1_000.0
"""At this power a counter of RAPL could go round unseen in a gap of the samples that is long enough."""


class MeterError(Exception):
    """A counter cannot tell the energy of the window."""


@dataclass(frozen=True, kw_only=True)
class Counter:
    """The samples of one counter."""

    name: str
    """For people: "GPU 3 on node n2"."""
    times: Column
    """Seconds since 1970."""
    joules: Column
    """The counter; NaN where a sample has none."""
    range_j: float | None = None
    """The counter begins again after this many joules; None: it never should."""

    def joules_in(self, begins: Column, ends: Column) -> float:
        """Return the energy in all intervals [begins[i], ends[i]], which rise. Raises MeterError that says why there is none."""
        there = np.isfinite(self.joules)
        times, values = self.times[there], self.joules[there]
        if len(times) < 2:
            raise MeterError(f"{self.name} has no samples of its energy counter")
        begin, end = float(begins[0]), float(ends[-1])
        if times.min() > begin or times.max() < end:
            late = max(times.min() - begin, end - times.max())
            raise MeterError(f"{self.name}: the samples miss {late:.1f} s of the window")
        first = int(np.flatnonzero(times <= begin)[-1])
        reached = np.flatnonzero(times[first:] >= end)
        last = first + int(reached[0]) if len(reached) else first
        times, values = times[first : last + 1], values[first : last + 1]
        if len(times) < 2 or np.any(np.diff(times) <= 0):
            raise MeterError(f"{self.name}: the node's clock was set back during the window")
        total = np.concatenate([[0.0], np.cumsum(self._steps(times, values))])
        joules = float(np.sum(np.interp(ends, times, total) - np.interp(begins, times, total)))
        if not 0 < joules <= GREATEST_W * float(np.sum(ends - begins)):
            raise MeterError(
                f"{self.name}: a counter that counts {joules:.6g} J in {end - begin:.1f} s is not believed"
            )
        return joules

    def _steps(self, times: Column, values: Column) -> Column:
        steps = np.diff(values)
        back = steps < 0
        if self.range_j is None:
            if back.any():
                raise MeterError(f"{self.name}: the energy counter began again during the window")
            return steps
        if np.diff(times).max() > self.range_j / SOCKET_W:
            raise MeterError(f"{self.name}: the samples pause so long that the counter may have gone round unseen")
        return np.where(back, steps + self.range_j, steps)
