"""From values to places on an axis, and which values are worth a label."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nlp_bench.show.chart import Chart

NUM_TICKS = 5
_HEADROOM = 0.05


@dataclass(frozen=True, kw_only=True)
class Scale:
    """One axis."""

    low: float
    """Value at its beginning."""
    high: float
    """Value at its end, above `low`."""
    is_log: bool = False
    """Whether equal ratios are equally long."""
    ticks: tuple[float, ...] = ()
    """Values with a label."""

    def share(self, value: float) -> float:
        """Return where `value` lies: 0 at the beginning, 1 at the end."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def scales(chart: Chart) -> tuple[Scale, Scale]:
    """Return the x and the y axis that hold everything on `chart`."""
    xs = [x for series in chart.series for x in series.xs]
    ys = [y for series in chart.series for y in series.ys]
    ys += [end for series in chart.series for pair in series.errors if pair for end in pair]
    xs += [end for band in chart.bands for end in (band.low, band.high)]
    for rule in chart.rules:
        (xs if rule.axis == "x" else ys).append(rule.value)
        (ys if rule.axis == "x" else xs).extend(rule.span or ())
    return (
        _scale(xs, is_log="x" in chart.log_axes, ticks=chart.x_ticks),
        _scale(ys, is_log="y" in chart.log_axes, low=chart.y_from, high=chart.y_to),
    )


def _scale(
    values: Sequence[float],
    *,
    is_log: bool,
    low: float | None = None,
    high: float | None = None,
    ticks: Sequence[float] = (),
) -> Scale:
    first, last = (min(values), max(values)) if values else (1.0, 2.0)
    if is_log:
        ratio = (last / first) ** _HEADROOM if last > first else 2.0
        first, last = first / ratio, last * ratio
        return Scale(low=first, high=last, is_log=True, ticks=tuple(ticks) or _log_ticks(first, last))
    room = (last - (first if low is None else low)) * _HEADROOM or abs(last) * _HEADROOM or 1.0
    begin = first - room if low is None else low
    end = last + room if high is None else high
    if not end > begin:
        end = begin + 1.0
    return Scale(low=begin, high=end, ticks=tuple(ticks) or _round_ticks(begin, end))


def _round_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / NUM_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    number = math.floor(high / step + 1e-9) - first + 1
    # A range far from 0 may be narrower than what a float can step through.
    return tuple(dict.fromkeys((first + index) * step for index in range(max(number, 0))))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        found = [f * 10.0**power for power in powers for f in factors if low <= f * 10.0**power <= high]
        if len(found) <= 2 * NUM_TICKS:
            break
    return tuple(found[:: math.ceil(len(found) / (2 * NUM_TICKS))]) or (low, high)


def label(value: float) -> str:
    """Return a value of an axis in few characters: 36,000, 120k, 1.2M, 0.05, 3e-07."""
    size = abs(value)
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if factor <= size < 1e15:
            return f"{value / factor:.4g}{unit}"
    if 1e5 <= size < 1e6:
        return f"{value / 1e3:.4g}k"
    if 1e4 <= size < 1e5:
        return f"{value:,.0f}"
    return f"{value:.5g}" if size >= 1e-3 else f"{value:.3g}"
