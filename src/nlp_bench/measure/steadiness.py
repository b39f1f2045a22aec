"""How steady the steady window is: stalls, drift, two modes, a slowdown at the end, and how long a run would have to be.

None of these changes the number; each is reported with it.
"""

import math
from collections.abc import Iterator

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.measure.estimate import Estimate, student_cdf
from nlp_bench.measure.series import MIN_VALUES, half_unit, held, levels, scatter_around, scatter_of, typical_of
from nlp_bench.measure.sizes import Column
from nlp_bench.measure.window import MAX_MARKED, Window, span_of
from nlp_bench.reason import Reason, texts

STALL_FACTOR = 1.5  # an interval that takes so many times the median is a stall
MAX_STALLS = 5  # as many are named
MANY_HELD = 0.2  # share of the intervals from which what is far from the median is a mode, not stalls
MIN_TREND, MIN_TREND_RECORDS, TREND_P = 0.01, 16, 0.001
"""Change from one end of the window to the other that is worth telling, records to see it, and chance to see it in noise."""
MIN_MODES, MODES_D, MODES_APART, MODES_SHARE = 20, 4.5, 0.03, 0.1
"""Records to see two modes; Ashman's D that they must exceed (a uniform distribution cut in two has 3.5, a normal one 2.7);
how far they are apart, and the least share of records in one."""
ONE_UNIT = 1.5  # units of the last digit of the times: what is no further apart may be rounded
MAX_WARM_UP, MIN_WARM_UP_RECORDS = 0.1, 8
"""Share of the intervals, the first one not counted, above which warm-up is doubted, and records of a window that can doubt it."""
TARGET = 0.01  # half width of the interval that `num_more` is for, as a share of the rate
MAX_MORE = 10_000_000


@immutable
class Stall:
    """One interval within the window that took far longer than the others; it counts."""

    first_iteration: int
    last_iteration: int
    factor: float  # its time / the median time


@immutable
class Steadiness:
    """What to know about the window."""

    autocorrelation: float | None  # of neighbouring intervals, 0 to 0.9; None where they are too few to see it
    num_effective: float  # independent intervals that the window is worth
    num_stalls: int  # intervals above STALL_FACTOR times the median
    stalls: tuple[Stall, ...]  # the first MAX_STALLS of them
    stall_share: float  # time of the stalls above the median, as a share of the window's time
    drift: float | None
    """Change of the time per token from one end of the window to the other as a share of it, None where there is none to see."""
    modes: tuple[float, float] | None
    """Times of two modes as shares of the mean, shortest first, None where there is one."""
    slowdown: float | None
    """How much slower the run ends after the window, as a share (0.08 = 8 % slower), None where it does not."""
    long_warm_up: float | None
    """Share of the intervals that were left out as warm-up, the first one not counted; None where it is small."""
    refused_mark: str | None
    """Kind of event (evaluation, checkpoint) whose words would have excused more than MAX_MARKED of the run's time, so that its
    intervals count; None where there is none."""

    @property
    def ending(self) -> float | None:
        """Time at the end of the run / time in the window, by a slow end or by drift; None where that is not above 1."""
        slower = max(self.slowdown or 0.0, (self.drift or 0.0) / 2)
        return 1 + slower if slower > 0 else None

    def warnings(self) -> Iterator[Reason]:
        """Yield one sentence for each thing that casts doubt on the number itself."""
        if self.slowdown is not None:
            text = f"the run is {100 * self.slowdown:.1f} % slower after the window and does not recover: "
            yield Reason("slow-end", text + "the sustained rate may be lower (throttling?); a longer run tells")
        if self.long_warm_up is not None:
            text = f"{100 * self.long_warm_up:.1f} % of the intervals are left out as warm-up: "
            yield Reason("long-warm-up", text + "the machine may be as slow again; a longer run tells")
        if self.refused_mark is not None:
            text = f"lines speak of a {self.refused_mark} in so many slow intervals that leaving them out would excuse more than "
            yield Reason("refused-mark", f"{text}{100 * MAX_MARKED:.0f} % of the run's time: these intervals count")
        if self.drift is not None:
            text = f"drift: the run gets {100 * abs(self.drift):.1f} % {'slower' if self.drift > 0 else 'faster'} "
            yield Reason("drift", text + "from one end of the window to the other")
        if self.modes is not None:
            low, high = self.modes
            text = f"two modes: intervals take either {100 * (1 - low):.1f} % less or {100 * (high - 1):.1f} % more than the mean"
            yield Reason("two-modes", f"{text}; the machine changes between two states, or the batch or the work does")

    def words(self) -> list[str]:
        """Return the warnings, and what else a reader of the number should know."""
        said, number = texts(self.warnings()), self.num_stalls
        if not number:
            return said
        where = ", ".join(f"{span_of(stall)} ({stall.factor:.1f} x)" for stall in self.stalls)
        more = " and more" if number > len(self.stalls) else ""
        share = f"{100 * self.stall_share:.1f} % of its time and"
        if number == 1:
            plural = "s" if "-" in where else ""
            return [*said, f"1 stall inside the window costs {share} counts: iteration{plural} {where}{more}"]
        return [*said, f"{number} stalls inside the window cost {share} count: iterations {where}{more}"]


def steadiness_of(window: Window) -> Steadiness:
    """Return how steady `window` is."""
    spans = window.spans
    costs = spans.seconds_per_token
    usual, number = typical_of(costs), len(costs)
    typical, calm = usual[0], held(costs, usual)
    scatter = scatter_of(costs) if number > 1 else None
    stalled = np.flatnonzero(costs > STALL_FACTOR * typical) if number > 2 else np.empty(0, np.intp)
    firsts, lasts = spans.first_iterations, spans.records.column("iteration")
    excess = (costs[stalled] - typical) @ spans.num_tokens[stalled]
    modes = _modes(costs if np.mean(calm != costs) > MANY_HELD else calm)
    # By a clock of whole seconds one and the same time is 20 s now and 21 s then.
    if modes and (modes[1] - modes[0]) * spans.seconds.mean() <= 2 * ONE_UNIT * half_unit(spans.seconds, of_all=True):
        modes = None
    warm_up = window.set_aside["warm-up"].share if "warm-up" in window.set_aside else 0.0
    is_long = window.num_records >= MIN_WARM_UP_RECORDS and warm_up > MAX_WARM_UP
    return Steadiness(
        autocorrelation=scatter.autocorrelation if scatter and number >= MIN_VALUES else None,
        num_effective=scatter.num_effective if scatter else float(number),
        num_stalls=len(stalled),
        stalls=tuple(
            Stall(first_iteration=int(firsts[i]), last_iteration=int(lasts[i]), factor=float(costs[i]) / typical)
            for i in stalled[:MAX_STALLS]
        ),
        stall_share=float(excess / spans.seconds.sum()),
        drift=_drift(calm),
        modes=modes,
        slowdown=_slowdown(window),
        long_warm_up=warm_up if is_long else None,
        refused_mark=window.refused_mark,
    )


def num_more(estimate: Estimate, number: int) -> int | None:
    """Return how many more values than `number` give an interval of +-TARGET, if they scatter as those did, to 1 %.

    None where the estimate says too little, or more than MAX_MORE would be needed.
    """
    found = estimate.uncertainty
    if found is None or estimate.degrees < 1:
        return None
    if estimate.half_width() <= TARGET * estimate.seconds_per_token:
        return 0
    low, high = 1.0, (MAX_MORE + number) / number  # how many times as long the log is
    if sum(found.sides(high)) > 2 * TARGET:
        return None
    while high > 1.01 * low and (high - low) * number > 1:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if sum(found.sides(middle)) > 2 * TARGET else (low, middle)
    return max(math.ceil((high - 1) * number), 1)


def _drift(costs: Column) -> float | None:
    """Return the change along a straight line (least squares, errors for autocorrelation) if it is one and worth telling."""
    number = len(costs)
    if number < MIN_TREND_RECORDS:
        return None
    place = np.arange(number) - (number - 1) / 2
    squares = float(place @ place)
    slope, mean = float(place @ costs) / squares, costs.mean()
    change = slope * (number - 1) / float(mean)
    if abs(change) < MIN_TREND:
        return None
    scatter = scatter_around(costs - mean - slope * place, 2)
    error = math.sqrt(scatter.variance * number / scatter.num_effective / squares)
    if error <= 0:
        return None
    chance = 2 * (1 - student_cdf(abs(slope) / error, max(scatter.num_effective - 2, 1.0)))
    return change if chance < TREND_P else None


def _modes(costs: Column) -> tuple[float, float] | None:
    """Return the two modes by the cut that leaves the least variance (Otsu 1979) and Ashman's D (Ashman, Bird, Zepf 1994)."""
    number = len(costs)
    if number < MIN_MODES:
        return None
    values = np.sort(costs)
    least = max(2, math.ceil(MODES_SHARE * number))
    cut = np.arange(least, number - least + 1, dtype=np.float64)
    rest, sums = number - cut, np.cumsum(values)
    below = sums[least - 1 : number - least]
    low, high = below / cut, (sums[-1] - below) / rest
    best = int(cut[int(np.argmax(cut * rest * (high - low) ** 2))])
    one, two = values[:best], values[best:]
    apart, within = float(two.mean() - one.mean()), math.sqrt((float(one.var()) + float(two.var())) / 2)
    mean = float(values.mean())
    if apart < MODES_APART * mean or apart <= MODES_D * within:
        return None
    return float(one.mean()) / mean, float(two.mean()) / mean


def _slowdown(window: Window) -> float | None:
    """Return how much slower than the window the last level of a slow end is."""
    # One interval is no speed: a program writes its last checkpoint there.
    if len(window.tail) < 2:
        return None
    costs = window.tail.seconds_per_token
    begin, end = levels(costs)[-1]
    share = float(costs[begin:end].mean()) * window.num_tokens / window.seconds - 1
    return share if share > 0 else None
