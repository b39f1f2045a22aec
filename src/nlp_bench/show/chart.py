"""What a plot shows, apart from how it is drawn: all texts are plain, and whoever draws them escapes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Shape = Literal["dot", "cross", "plus", "square", "triangle", "diamond", "circle"]
EXCLUDED, LIMIT = -1, -2
"""Colours beside those of the runs, which are counted from 0."""
NUM_COLOURS = 6
"""Of the palette in page.css; further runs begin again."""
MAX_LEGEND = 12
"""As many parts of a plot are named."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points that belong together."""

    name: str = ""
    """What they are, for the legend; empty for none."""
    xs: Sequence[float]
    """Places on the x axis."""
    ys: Sequence[float]
    """Places on the y axis, as many."""
    style: Literal["line", "step", "points"] = "line"
    """Joined, joined by steps (before the next point), or points alone."""
    shape: Shape = "dot"
    """Of the points that stand alone."""
    colour: int = 0
    """Number in the palette, or EXCLUDED or LIMIT."""
    is_dashed: bool = False
    """Whether the line is broken: what is expected, beside what was measured; its points are not marked."""
    errors: Sequence[tuple[float, float] | None] = ()
    """Lower and upper end of y per point, for error bars; empty for none."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """A stretch of the x axis, shaded."""

    name: str = ""
    """For the legend."""
    low: float
    """Where it begins."""
    high: float
    """Where it ends."""
    colour: int = 0
    """Number in the palette."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A straight line at one value."""

    name: str = ""
    """For the legend."""
    value: float
    """Place on its axis."""
    axis: Literal["x", "y"] = "y"
    """The axis that `value` is on: a rule on y lies flat."""
    span: tuple[float, float] | None = None
    """From where to where on the other axis, None for all of it."""
    colour: int = 0
    """Number in the palette, or LIMIT."""
    is_dashed: bool = False
    """Whether it is broken."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Two axes and what is on them."""

    key: str
    """File name without its ending; letters and hyphens."""
    title: str
    """What is shown, in a few words."""
    description: str
    """The same for somebody who cannot see it, with the main figures."""
    x_label: str
    """Quantity and unit."""
    y_label: str
    """Quantity and unit."""
    series: Sequence[Series] = ()
    """In the order in which they are drawn."""
    bands: Sequence[Band] = ()
    """Drawn below everything."""
    rules: Sequence[Rule] = ()
    """Drawn above the series."""
    note: str = ""
    """What a reader must know, below the plot."""
    y_from: float | None = None
    """Where the y axis begins (rates at 0), None for the data's lowest."""
    y_to: float | None = None
    """Where it ends, None for the data's highest."""
    log_axes: str = ""
    """Axes with a logarithmic scale: "", "x", "y" or "xy"; all values on them are above 0."""
    x_ticks: Sequence[float] = ()
    """Values to label on the x axis, empty for round ones."""
    x_names: Sequence[str] = ()
    """Their labels, empty for the values themselves."""


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """One number for each pair of two settings."""

    key: str
    """File name without its ending."""
    title: str
    """What is shown, in a few words."""
    description: str
    """The same for somebody who cannot see it."""
    x_label: str
    """Setting of the columns."""
    y_label: str
    """Setting of the rows."""
    x_names: Sequence[str]
    """One per column."""
    y_names: Sequence[str]
    """One per row, the first on top."""
    values: Sequence[Sequence[float | None]]
    """Rows of values, None where there is none."""
    texts: Sequence[Sequence[str]] = field(default=())
    """What stands in each cell (a cause of failure too); empty for the values themselves."""
    marked: frozenset[tuple[int, int]] = frozenset()
    """Row and column of the cells to frame: the winners."""
    is_less_better: bool = False
    """Whether the strongest colour is that of the lowest value."""
    note: str = ""
    """What a reader must know, below the plot."""


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
