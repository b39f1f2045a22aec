"""What a plot shows, apart from how it is drawn: all texts are plain, and whoever draws them escapes them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from nlp_bench.packages import is_missing, remedy

Shape = Literal["dot", "cross", "plus", "square", "triangle", "diamond", "circle"]
EXCLUDED, LIMIT = -1, -2  # colours other than those of the runs, which are counted from 0
NUM_COLOURS = 6  # of the palette in page.css; further runs begin again
MAX_LEGEND = 12  # as many parts of a plot are named
COLUMNS = 3  # plots side by side in a file


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points that belong together."""

    name: str = ""  # what they are, for the legend; empty for none
    xs: Sequence[float]
    ys: Sequence[float]
    style: Literal["line", "step", "points"] = "line"
    """Joined, joined by steps (before the next point), or points alone."""
    shape: Shape = "dot"  # of the points that stand alone
    colour: int = 0  # number in the palette, or EXCLUDED or LIMIT
    is_dashed: bool = False
    """Whether the line is dashed: what is expected, next to what was measured; its points are not marked."""
    errors: Sequence[tuple[float, float] | None] = ()
    """Lower and upper end of y per point, for error bars; empty for none."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """A stretch of the x axis, shaded."""

    name: str = ""
    low: float
    high: float
    colour: int = 0


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A straight line at one value."""

    name: str = ""
    value: float
    axis: Literal["x", "y"] = "y"  # the axis that `value` is on: a rule on y lies flat
    span: tuple[float, float] | None = None  # from where to where on the other axis, None for all of it
    colour: int = 0
    is_dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Two axes and what is on them."""

    key: str  # file name without its ending; letters and hyphens
    title: str
    description: str  # the same for somebody who cannot see it, with the main figures
    x_label: str
    y_label: str
    series: Sequence[Series] = ()
    bands: Sequence[Band] = ()  # drawn below everything
    rules: Sequence[Rule] = ()  # drawn above the series
    note: str = ""  # what a reader must know, below the plot
    y_from: float | None = None  # where the y axis begins (rates at 0), None for the data's lowest
    y_to: float | None = None  # where it ends, None for the data's highest
    log_axes: str = ""  # axes with a logarithmic scale: "", "x", "y" or "xy"; all values on them are above 0
    x_ticks: Sequence[float] = ()  # values to label on the x axis, empty for round ones
    x_names: Sequence[str] = ()  # their labels, empty for the values themselves


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """One number for each pair of two settings."""

    key: str
    title: str
    description: str
    x_label: str
    y_label: str
    x_names: Sequence[str]  # one per column
    y_names: Sequence[str]  # one per row, the first on top
    values: Sequence[Sequence[float | None]]  # rows of values, None where there is none
    texts: Sequence[Sequence[str]] = field(default=())
    """What stands in each cell (a cause of failure too); empty for the values themselves."""
    marked: frozenset[tuple[int, int]] = frozenset()  # row and column of the cells to frame: the winners
    is_less_better: bool = False  # whether the strongest colour is that of the lowest value
    note: str = ""


def strengths(heat: HeatMap) -> list[list[float | None]]:
    """Return each value between 0 (weakest colour) and 1 (strongest), None where there is none."""
    known = [value for row in heat.values for value in row if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    width = (high - low) or 1.0

    def strength(value: float | None) -> float | None:
        if value is None:
            return None
        share = (value - low) / width
        return 1 - share if heat.is_less_better else share

    return [[strength(value) for value in row] for row in heat.values]


def text_of(heat: HeatMap, row: int, column: int) -> str:
    """Return what stands in a cell."""
    if heat.texts:
        return heat.texts[row][column]
    value = heat.values[row][column]
    return "" if value is None else f"{value:.4g}"


NUM_TICKS = 5
_HEADROOM = 0.05


@dataclass(frozen=True, kw_only=True)
class Scale:
    """One axis."""

    low: float
    high: float
    is_log: bool = False  # whether equal ratios are equally long
    ticks: tuple[float, ...] = ()

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


def plot_files(*plots: Chart | HeatMap, columns: int = COLUMNS) -> dict[str, bytes]:
    """Return KEY.svg and, where matplotlib can be loaded, KEY.png of plots side by side; the key is that of the first."""
    from nlp_bench.show.svg import svg_file  # noqa: PLC0415  # it draws what is described here

    found = {f"{plots[0].key}.svg": svg_file(*plots, columns=columns).encode()}
    if why_no_png():
        return found
    from nlp_bench.show.png import png  # noqa: PLC0415  # heavy

    return found | {f"{plots[0].key}.png": png(*plots, columns=columns)}


def why_no_png() -> str | None:
    """Return why no PNG can be drawn here and what to do about it, None where matplotlib draws them."""
    if is_missing("matplotlib"):
        return f"it needs matplotlib, which is not installed here: {remedy('matplotlib')}"
    try:
        import nlp_bench.show.png  # noqa: F401, PLC0415  # heavy
    except OSError:
        return "matplotlib finds no writable folder for its cache: set MPLCONFIGDIR to one"
    return None


def empty(key: str, why: str) -> Chart:
    """Return a plot without anything on it, which says why."""
    return Chart(key=key, title=why, description=why, x_label="", y_label="")
