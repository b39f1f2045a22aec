"""What a plot shows, apart from how it is drawn: all texts are plain, and whoever draws them escapes them."""

from collections.abc import Sequence
from functools import cache
from typing import Literal

from nlp_bench.escape import one_line
from nlp_bench.immutable import immutable
from nlp_bench.packages import is_missing, not_loadable, remedy

Shape = Literal["dot", "cross", "plus", "square", "triangle", "diamond", "circle"]
EXCLUDED, LIMIT, BEHIND = -1, -2, -3  # colours other than those of the runs, which are counted from 0
NUM_COLOURS = 7  # of the palette; further runs begin again
MAX_LEGEND = 12  # as many parts of a plot are named
COLUMNS = 3  # plots side by side in a file


@immutable
class Series:
    """Points that belong together."""

    name: str = ""  # what they are, for the legend; empty for none
    xs: Sequence[float]
    ys: Sequence[float]
    style: Literal["line", "step", "points"] = "line"  # joined, by steps (before the next), or points alone
    shape: Shape = "dot"  # of the points that stand alone
    colour: int = 0  # number in the palette, or EXCLUDED or LIMIT
    is_dashed: bool = False  # whether it is dashed: what is expected, next to what was measured, without marks
    errors: Sequence[tuple[float, float] | None] = ()  # lower and upper end of y per point, for error bars


@immutable
class Band:
    """A stretch of an axis, shaded."""

    name: str = ""
    low: float
    high: float
    axis: Literal["x", "y"] = "x"  # the axis that `low` and `high` are on
    span: tuple[float, float] | None = None  # of a band on y: from where to where on x, None for all
    colour: int = 0


@immutable
class Rule:
    """A straight line at one value."""

    name: str = ""
    value: float
    axis: Literal["x", "y"] = "y"  # the axis that `value` is on: a rule on y lies flat
    span: tuple[float, float] | None = None  # from where to where on the other axis, None for all of it
    colour: int = 0
    is_dashed: bool = False


@immutable
class Plot:
    """What every plot has."""

    key: str  # file name without its ending; letters and hyphens
    title: str
    description: str  # the same for somebody who cannot see it, with the main figures
    x_label: str
    y_label: str
    subtitle: str = ""  # what it is of: model, GPUs, date
    note: str = ""  # what a reader must know, below the plot


@immutable
class Chart(Plot):
    """Two axes and what is on them."""

    series: Sequence[Series] = ()
    bands: Sequence[Band] = ()  # drawn below everything
    rules: Sequence[Rule] = ()  # drawn above the series, those with a span below them
    y_from: float | None = None  # where the y axis begins (rates at 0), None for the data's lowest
    y_to: float | None = None  # where it ends, None for the data's highest
    log_axes: str = ""  # axes with a logarithmic scale: "", "x", "y" or "xy"; all values on them are above 0
    x_ticks: Sequence[float] = ()  # values to label on the x axis, empty for round ones
    x_names: Sequence[str] = ()  # their labels, empty for the values themselves


@immutable
class HeatMap(Plot):
    """One number for each pair of two settings."""

    x_names: Sequence[str]  # one per column
    y_names: Sequence[str]  # one per row, the first on top
    values: Sequence[Sequence[float | None]]  # rows of values, None where there is none
    texts: Sequence[Sequence[str]]  # what stands in each cell (a cause of failure too)
    marked: frozenset[tuple[int, int]] = frozenset()  # row and column of the cells to frame: the winners


def plot_files(*plots: Chart | HeatMap, columns: int = COLUMNS) -> dict[str, bytes]:
    """Return KEY.svg and KEY.png of plots side by side, nothing where matplotlib cannot be loaded; the key is that of the first."""
    if why_no_plots():
        return {}
    from nlp_bench.show.draw import images  # noqa: PLC0415  # heavy

    return {f"{plots[0].key}.{kind}": content for kind, content in images(*plots, columns=columns).items()}


def why_no_plots() -> str | None:
    """Return why nothing can be drawn here and what to do about it, None where matplotlib draws them."""
    if is_missing("matplotlib"):
        return f"they need matplotlib, which is not installed here: {remedy('matplotlib')}"
    return _why_not_loaded()


@cache  # a failed import would begin anew each time, and numpy prints much about a module that was compiled for another numpy
def _why_not_loaded() -> str | None:
    try:
        import nlp_bench.show.draw  # noqa: F401, PLC0415  # heavy
    except ImportError as error:
        why = not_loadable(error) or f"matplotlib cannot be loaded ({one_line(error)}): pip install -U matplotlib"
        return str(why).replace("\n  ", "; ")
    except OSError:
        return "matplotlib finds no writable folder for its cache: set MPLCONFIGDIR to one"
    return None


def empty(key: str, why: str) -> Chart:
    """Return a plot without anything on it, which says why."""
    return Chart(key=key, title=why, description=why, x_label="", y_label="")
