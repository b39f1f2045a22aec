"""A mean with its uncertainty, its 95 % interval, the ratio of two of them, the mean of several; and the distributions that these need.

Everything is decided on seconds per token, where intervals of equal tokens add up; rates are its inverse. Sources: Student's t,
Welch's degrees of freedom (Welch 1947, doi:10.1093/biomet/34.1-2.28), the distribution function by the incomplete beta function
(Press et al., Numerical Recipes, 3rd edition, section 6.4: continued fraction by Lentz's method).
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from nlp_bench.immutable import immutable

Pair = tuple[float, float]
LEVEL = 0.95
CHOICE_FACTOR = 1.06
"""Factor on standard errors: a window is selected by the times that are then averaged, which understates their scatter.
By the calibration (docs/number.md): without it 2.5 to 3 % are false passes."""
_TINY = 1e-300
SLOWER_TAIL, FASTER_TAIL = 0.01, 0.0425
_SLOWER_Z, _FASTER_Z = 2.32635, 1.72238  # quantiles of the normal distribution at 1 - tail
UNSEEN, UNSEEN_WHERE_SEEN, PRIOR = 1.0, 3.0, 500.0  # iterations
MAX_HALF_WIDTH = 0.5  # share of the mean above which no interval is given


@immutable
class Uncertainty:
    """What the interval of a mean time is made of; times as shares of the mean time of one iteration."""

    num_iterations: float
    noise: float  # standard error of the mean without stalls and changes of state
    degrees: float
    num_stalls: int = 0  # stalls as of `interval.STALL_SPREADS`, neighbours counted once; `Steadiness.num_stalls` counts grave ones alone
    stalls: float = 0.0  # iterations that all stalls together cost
    stalls_squared: float = 0.0  # sum of the squares of what each cost
    at_end: float = 0.0  # iterations that a stall at the very end cost, which may be the beginning of a slower speed
    unseen: float = UNSEEN  # iterations that a stall may cost which the log has not seen
    switching: float = 0.0  # standard error from two states
    num_switches: int = 0  # times that the machine was seen to go from one state to the other
    above_fast: float = 0.0  # how far the mean is above the faster state
    below_slow: float = 0.0  # how far the mean is below the slower state
    rounding: float = 0.0  # how far the rounding of printed values may move all of them the same way

    def sides(self, times: float = 1.0) -> Pair:
        """Return both sides of the 95 % interval, below and above the mean time and as shares of it, for a log `times` as long as this one that scatters alike."""
        number, degrees = self.num_iterations * times, max(self.degrees * times, self.degrees)
        noise = self.noise / math.sqrt(times)
        total, squares = self.stalls * times, self.stalls_squared * times
        faster, slower = 0.0, self.unseen * -math.log(SLOWER_TAIL) / (number + PRIOR)
        seen, seen_squares = total - self.at_end, squares - self.at_end**2
        # Beside a stall at the end that is millions of times as long its square leaves nothing of theirs.
        if seen > 0 and seen_squares > 0:
            faster = (seen - _gamma(seen**2 / seen_squares, seen_squares / seen, -_FASTER_Z)) / number
        if total > 0:
            largest = max(self.unseen, UNSEEN_WHERE_SEEN)
            shape = (total + largest) ** 2 / (squares + largest**2)
            bound = _gamma(shape, (squares + largest**2) / (total + largest), _SLOWER_Z) / (number + PRIOR)
            slower = max(bound - total / number, _SLOWER_Z * math.sqrt(squares) / number)
        below = math.hypot(student_t(1 - FASTER_TAIL, degrees) * noise, faster)
        above = math.hypot(student_t(1 - SLOWER_TAIL, degrees) * noise, slower)
        below += self.at_end / number
        if self.switching:
            error, switches = self.switching / math.sqrt(times), self.num_switches * max(times, 1.0)
            below = math.hypot(below, min(student_t(1 - FASTER_TAIL, switches) * error, self.above_fast))
            above = math.hypot(above, min(student_t(1 - SLOWER_TAIL, switches) * error, self.below_slow))
        return below + self.rounding, above + self.rounding


def _gamma(shape: float, scale: float, z: float) -> float:
    """Return the quantile of a gamma distribution with `shape` >= 1 at the normal quantile `z` (Wilson and Hilferty 1931).

    Near enough for a bound: 0.3 % at the upper tail of shape 1, a little low at the lower one.
    """
    return shape * scale * max(1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape)), 0.0) ** 3


@immutable
class Estimate:
    """A mean of seconds per token."""

    seconds_per_token: float  # the mean, above 0
    standard_error: float  # of the mean, in the same unit, above 0
    degrees: float  # degrees of freedom of Student's t, above 0
    uncertainty: Uncertainty | None = None  # what its interval is made of, None where that is Student's t alone
    fastest: float = 0.0  # seconds per token of the fastest interval that counts; 0 where no bound is known

    def sides(self) -> Pair:
        """Return how far the 95 % interval of the time reaches below and above the mean, as shares of it."""
        if self.uncertainty:
            return self.uncertainty.sides()
        half = student_t(0.5 + LEVEL / 2, self.degrees) * self.standard_error / self.seconds_per_token
        return half, half

    def relative_half_width(self) -> float:
        """Return half the width of the 95 % interval as a share of the mean, of time or rate: the larger."""
        below, above = self._bounded_sides()
        of_rate = (1 / (1 - below) - 1 / (1 + above)) / 2 if below < 1 else math.inf
        return max((below + above) / 2, of_rate)

    def interval(self) -> Pair | None:
        """Return the 95 % interval of the rate in tokens per second, lowest first.

        It ends at the fastest interval that counts. None where the half width exceeds MAX_HALF_WIDTH.
        """
        if self.relative_half_width() > MAX_HALF_WIDTH:
            return None
        below, above = self._bounded_sides()
        slow = 1 / (self.seconds_per_token * (1 + above))
        fast = 1 / (self.seconds_per_token * (1 - below))
        return slow, min(fast, 1 / self.fastest) if self.fastest else fast

    def _bounded_sides(self) -> Pair:
        below, above = self.sides()
        return min(below, max(1 - self.fastest / self.seconds_per_token, 0.0)), above


@immutable
class Ratio:
    """How much faster one is than the other."""

    ratio: float  # rate of the second / rate of the first
    low: float
    high: float
    p_value: float  # probability of a difference at least as large if both were equally fast (two-sided)


def ratio_of(first: Estimate, second: Estimate, level: float = LEVEL) -> Ratio:
    """Return the rate of `second` / the rate of `first` with its interval (Welch's t on the logarithm, delta method).

    Where an interval is more than Student's t, that of the ratio is at least what both intervals make of it (square-and-add: Zou and Donner
    2008, doi:10.1002/sim.3095).
    """
    error = math.sqrt(_relative_variance(first) + _relative_variance(second))
    degrees = welch_degrees(first, second)
    difference = math.log(first.seconds_per_token / second.seconds_per_token)
    half = student_t(0.5 + level / 2, degrees) * error
    p_value = 2 * (1 - student_cdf(abs(difference) / error, degrees))
    below = above = half
    if first.uncertainty or second.uncertainty:
        (fast_first, slow_first), (fast_second, slow_second) = first.sides(), second.sides()
        below, above = max(half, math.hypot(slow_second, fast_first)), max(half, math.hypot(fast_second, slow_first))
    return Ratio(
        ratio=math.exp(difference), low=math.exp(difference - below), high=math.exp(difference + above), p_value=p_value
    )


def _relative_variance(found: Estimate) -> float:
    return (found.standard_error / found.seconds_per_token) ** 2


def welch_degrees(first: Estimate, second: Estimate) -> float:
    """Return the degrees of freedom of the logarithm of the two rates' ratio (Welch 1947)."""
    one, two = _relative_variance(first), _relative_variance(second)
    return (one + two) ** 2 / (one**2 / first.degrees + two**2 / second.degrees)


def over_runs(seconds_per_token: Sequence[float]) -> Estimate | None:
    """Return the mean over the steady means of several runs, with what differs within and between them; None for fewer than two, and where they do not differ at all."""
    number = len(seconds_per_token)
    if number < 2:
        return None
    mean = math.fsum(seconds_per_token) / number
    variance = math.fsum((value - mean) ** 2 for value in seconds_per_token) / (number - 1)
    error = math.sqrt(variance / number)
    if error <= 1e-12 * mean:
        return None
    return Estimate(seconds_per_token=mean, standard_error=error, degrees=number - 1)


def least(is_enough: Callable[[int], bool], first: int, most: int, step: int = 1) -> int | None:
    """Return the least number from `first` on that is enough, to `step`; None where it is beyond about `most`. More are enough, too."""
    low = high = first
    while not is_enough(high):
        low, high = high, 2 * high
        if high > most:
            return None
    while high - low > step:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def student_cdf(t: float, degrees: float) -> float:
    """Return the probability that Student's t with `degrees` > 0 is at most `t`."""
    tail = 0.5 * _beta(degrees / 2, 0.5, degrees / (degrees + t * t))
    return 1 - tail if t >= 0 else tail


def variance_ratio_tail(ratio: float, first: float, second: float) -> float:
    """Return the probability that the ratio of two sample variances of one true variance is at least `ratio` > 0 (F distribution).

    `first` and `second` are the degrees of freedom above and below the fraction line.
    """
    return _beta(second / 2, first / 2, second / (second + first * ratio))


@lru_cache(maxsize=4096)
def student_t(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t with `degrees` > 0 for a probability of at least one half.

    Newton's method, which comes from below without passing it: the distribution is concave there.
    """
    scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    t = 0.0
    for _ in range(100):
        missing = 0.5 * _beta(degrees / 2, 0.5, degrees / (degrees + t * t)) - (1 - probability)
        step = missing * math.exp((degrees + 1) / 2 * math.log1p(t * t / degrees) - scale)
        t += step
        if abs(step) <= 1e-11 * t:
            break
    return t


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d or _TINY)
    value = d
    for m in range(1, 500):
        place = a + 2 * m
        even, odd = m * (b - m) * x / ((place - 1) * place), -(a + m) * (a + b + m) * x / (place * (place + 1))
        d = 1 / ((1 + even * d) or _TINY)
        c = (1 + even / c) or _TINY
        value *= c * d
        d = 1 / ((1 + odd * d) or _TINY)
        c = (1 + odd / c) or _TINY
        step = c * d
        value *= step
        if abs(step - 1) < 1e-15:
            break
    return value
