"""Plots as PNG and SVG, by matplotlib: the same plot gives the same bytes."""

import io
import math
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from nlp_bench.escape import end_of
from nlp_bench.files import working_in
from nlp_bench.show.chart import BEHIND, EXCLUDED, LIMIT, MAX_LEGEND, NUM_COLOURS, Band, Chart, HeatMap, Rule, Series
from nlp_bench.show.table import MAX_LABEL, label

# As it is imported, matplotlib reads a matplotlibrc of the current folder, whoever wrote it, and MPLBACKEND, which Jupyter sets.
_BACKEND = os.environ.pop("MPLBACKEND", None)
try:
    with working_in(Path(__file__).parent):
        from matplotlib import rc_context, rcdefaults, rcParams
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, LogLocator, MaxNLocator, NullLocator
except (AttributeError, RuntimeError, SyntaxError, TypeError, ValueError) as error:
    raise ImportError(str(error)) from error  # of a half installed one, or another numpy's
if _BACKEND is not None:
    os.environ["MPLBACKEND"] = _BACKEND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Kind = Literal["png", "svg"]
MAX_NOTE = 130  # letters of a line of the note
MAX_MARKED = 40  # a line of as many points shows each of them
MIN_BAND = 0.005  # of the axis: a window of one interval is seen too
HEIGHT, LINE = 2.9, 0.17  # inches of a plot within a page, and of each name of its legend below it
SHADE = {"x": 0.12, "y": 0.25}  # opacity of a band on each axis
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours that the colour-blind tell apart, without the yellow, which is faint on white.

Source: Okabe and Ito, Color Universal Design (2008), https://jfly.uni-koeln.de/color/.
"""
_COLOURS = {EXCLUDED: "#595959", LIMIT: "#b3261e", BEHIND: "#7f7f7f"}
_MARKERS = {"dot": ".", "cross": "x", "plus": "+", "square": "s", "triangle": "^", "diamond": "D", "circle": "o"}
_NEEDLESS = re.compile(r' id="[a-z2.]+_\d+"| transform="rotate\(-0 [^"]*"')
"""What an image of a page can do without: names that nothing refers to, turns by nothing."""
_METADATA = {"png": {"Software": None}, "svg": dict.fromkeys(("Date", "Creator", "Format", "Type"))}


def image(plot: Chart | HeatMap, kind: Kind) -> bytes:
    """Return a plot as a file."""
    with _our_style():
        return _saved(_side_by_side([plot], 1), kind)


def images(*plots: Chart | HeatMap, columns: int) -> dict[Kind, bytes]:
    """Return plots side by side as a file of each kind: drawn and laid out once, which takes longer than saving."""
    with _our_style():
        figure = _side_by_side(plots, columns)
        svg = _saved(figure, "svg")
        figure.set_layout_engine("none")  # all stays where it is
        return {"svg": svg, "png": _saved(figure, "png")}


def inline(plot: Chart | HeatMap) -> str:
    """Return a plot as the address of an image within a page, which has its title and note as texts."""
    with _our_style():
        svg = _saved(_within_page(plot), "svg").decode()
    svg = re.sub(r"\s+", " ", _NEEDLESS.sub("", svg[svg.index("<svg") :]))
    return "data:image/svg+xml," + quote(svg, safe=" !$'()*+,-./:;=?@[]^_`{|}~")


class _Shown(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        with _our_style():
            return _saved(self, "png")


def figure(plot: Chart | HeatMap) -> Figure:
    """Return a plot as a figure, which its reader may change and save."""
    with _our_style():
        return _side_by_side([plot], 1)


@contextmanager
def _our_style() -> Iterator[None]:
    date = os.environ.pop(
        "SOURCE_DATE_EPOCH", None
    )  # read by matplotlib, which ends where it is no integer; no plot has a date
    with rc_context():
        rcdefaults()  # whatever the user's own style is
        rcParams["text.parse_math"] = False  # a file name may hold dollar signs, which are no mathematics
        rcParams["font.sans-serif"] = ["DejaVu Sans"]  # matplotlib's own, by which it measures texts
        rcParams["svg.fonttype"] = "none"  # texts stay texts
        rcParams["svg.hashsalt"] = "nlp-bench"
        try:
            yield
        finally:
            os.environ.update({} if date is None else {"SOURCE_DATE_EPOCH": date})


def _saved(figure: Figure, kind: Kind) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, metadata=_METADATA[kind], dpi=150)
    return stream.getvalue()


def _side_by_side(plots: Sequence[Chart | HeatMap], columns: int) -> Figure:
    across = min(len(plots), columns)
    down = -(-len(plots) // across)
    size = (9, 4.5) if len(plots) == 1 else (max(9, 4.2 * across), 2.8 * down)
    figure = _Shown(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(down, across, squeeze=False).flat
    for axes in list(places)[len(plots) :]:
        axes.remove()
    most = MAX_LABEL if across > 1 else 2 * MAX_LABEL
    for axes, plot in zip(figure.axes, plots, strict=True):
        is_empty = isinstance(plot, Chart) and not plot.series
        _draw(axes, plot)
        if not is_empty:
            _head(axes, _plain(plot.title, most), plot.subtitle)
    handles, names = figure.axes[0].get_legend_handles_labels()
    if 0 < len(names) <= MAX_LEGEND:
        # Many names would cover what is drawn.
        place: dict[str, Any] = {"loc": "best"} if len(names) <= 4 else {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        figure.axes[0].legend(handles, names, fontsize="small", **place)
    if note := " ".join(dict.fromkeys(plot.note for plot in plots if plot.note)):
        figure.supxlabel(textwrap.fill(_plain(note, len(note)), MAX_NOTE), fontsize="x-small", color="0.35")
    return figure


def _head(axes: "Axes", title: str, subtitle: str) -> None:
    axes.set_title(title, fontsize="medium", loc="left", pad=18 if title and subtitle else None)
    if subtitle:
        place: dict[str, Any] = {"xy": (0, 1), "xytext": (0, 5), "textcoords": "offset points"}
        words = _plain(subtitle, len(subtitle))
        axes.annotate(words, xycoords="axes fraction", fontsize="small", color="0.35", **place)


def _within_page(plot: Chart | HeatMap) -> Figure:
    """Return the plot alone; a chart has its legend below it, and margins that are the same for all: laying them out takes as long as drawing."""
    if isinstance(plot, HeatMap):
        size = max(4.8, 0.8 * len(plot.x_names) + 1), 0.4 * len(plot.y_names) + 0.8
        figure = Figure(figsize=size, layout="constrained")
        _draw(figure.add_subplot(), plot)
        return figure
    figure = Figure(figsize=(4.8, HEIGHT))
    axes = figure.add_subplot()
    _draw(axes, plot)
    handles, names = axes.get_legend_handles_labels()
    _head(axes, "", plot.subtitle)
    top = 0.1 + LINE * bool(plot.subtitle)
    height = HEIGHT + LINE * len(names[:MAX_LEGEND])
    figure.set_size_inches(4.8, height)
    figure.subplots_adjust(left=0.17, right=0.98, top=1 - top / height, bottom=1 - (HEIGHT - 0.5) / height)
    if names:
        named = handles[:MAX_LEGEND], names[:MAX_LEGEND]
        figure.legend(*named, fontsize=9, loc="lower left", frameon=False, borderpad=0.2, labelspacing=0.3)
    return figure


def _draw(axes: "Axes", plot: Chart | HeatMap) -> None:
    axes.set_xlabel(_plain(plot.x_label))
    axes.set_ylabel(_plain(plot.y_label))
    if isinstance(plot, HeatMap):
        _draw_heat(axes, plot)
        return
    if not plot.series:
        axes.set_axis_off()
        axes.text(0.5, 0.5, textwrap.fill(_plain(plot.title, len(plot.title)), MAX_LABEL), ha="center", size=20)
        return
    for series in plot.series:
        _draw_series(axes, series)
    for rule in plot.rules:
        _draw_rule(axes, rule)
    for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        if axis.axis_name in plot.log_axes:
            scale("log")
        _set_ticks(axis, *((plot.x_ticks, plot.x_names) if axis is axes.xaxis else ()))
    for band in plot.bands:
        _draw_band(axes, band)
    axes.set_ylim(plot.y_from, plot.y_to)
    axes.grid(axis="y", color="0.9")
    axes.tick_params(axis="y", left=False)
    axes.set_axisbelow(True)


def _set_ticks(axis: "Axis", ticks: Sequence[float] = (), names: Sequence[str] = ()) -> None:
    locator: Locator = MaxNLocator(nbins=5, steps=[1, 2, 5, 10])
    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        locator = LogLocator(subs=(1.0, 2.0, 5.0) if high < 1e4 * low else (1.0,))
    axis.set_major_locator(FixedLocator(list(ticks)) if ticks else locator)
    axis.set_minor_locator(NullLocator())
    shown = dict(zip(ticks, names, strict=True)) if names else {}
    axis.set_major_formatter(FuncFormatter(lambda value, _: shown.get(value) or label(value)))


def _draw_series(axes: "Axes", series: Series) -> None:
    colour = _colour(series.colour)
    is_short = series.style == "line" and not series.is_dashed and len(series.xs) <= MAX_MARKED
    is_marked = series.style == "points" or is_short
    marker = _MARKERS[series.shape]
    axes.plot(
        series.xs,
        series.ys,
        linestyle="" if series.style == "points" else "--" if series.is_dashed else "-",
        marker=marker if is_marked else "",
        drawstyle="steps-post" if series.style == "step" else "default",
        color=colour,
        linewidth=1.2,
        markerfacecolor="none" if series.shape == "circle" else colour,
        markersize=6 if marker in ".x+" else 4,
        label=_label(series.name),
    )
    bars = [(x, pair) for x, pair in zip(series.xs, series.errors, strict=False) if pair]
    if bars:  # one line with gaps: thousands of lines take minutes
        xs = [place for x, _ in bars for place in (x, x, x)]
        axes.plot(xs, [end for _, pair in bars for end in (*pair, math.nan)], "-", color=colour, linewidth=1.2)


def _draw_rule(axes: "Axes", rule: Rule) -> None:
    style: dict[str, Any] = {
        "color": _colour(rule.colour),
        "linewidth": 1.0,
        "linestyle": "--" if rule.is_dashed else "-",
        "label": _label(rule.name),
    }
    if rule.span:  # what was measured stays above it
        style["zorder"] = 1.5
        (axes.hlines if rule.axis == "y" else axes.vlines)(rule.value, *rule.span, **style)
    else:
        (axes.axhline if rule.axis == "y" else axes.axvline)(rule.value, **style)


def _draw_band(axes: "Axes", band: Band) -> None:
    style: dict[str, Any] = {
        "color": _colour(band.colour),
        "alpha": SHADE[band.axis],
        "linewidth": 0,
        "label": _label(band.name),
        "zorder": 0,
    }
    if band.axis == "y":
        axes.fill_between(band.span or axes.get_xlim(), band.low, band.high, **style)
        return
    low, high = axes.get_xlim()
    axes.axvspan(band.low, max(band.high, band.low + MIN_BAND * (high - low)), **style)
    axes.set_xlim(low, high)


def _draw_heat(axes: "Axes", heat: HeatMap) -> None:
    values = [[math.nan if value is None else value for value in row] for row in heat.values]
    known = [value for row in heat.values for value in row if value is not None] or [0.0]
    low, high = min(known), max(known)
    # Up to half of the colours: the text on them keeps its contrast.
    ends = [[index - 0.5 for index in range(len(names) + 1)] for names in (heat.x_names, heat.y_names)]
    axes.pcolormesh(*ends, values, cmap="Blues", vmin=low, vmax=low + 2 * ((high - low) or 1.0), edgecolors="white")
    axes.invert_yaxis()
    axes.set_xticks(range(len(heat.x_names)), [_plain(name) for name in heat.x_names])
    axes.set_yticks(range(len(heat.y_names)), [_plain(name) for name in heat.y_names])
    for row, texts in enumerate(heat.texts):
        for column, text in enumerate(texts):
            weight = "bold" if (row, column) in heat.marked else "normal"
            axes.text(column, row, _plain(text), ha="center", va="center", weight=weight)


def _colour(colour: int) -> str:
    return _COLOURS.get(colour) or _PALETTE[colour % NUM_COLOURS]


def _label(name: str) -> str:
    """Return a name for the legend; matplotlib hides those that begin with an underscore."""
    if not name:
        return "_none"
    plain = _plain(name)
    return f"run {plain}" if plain.startswith("_") else plain


def _plain(text: str, most: int = MAX_LABEL) -> str:
    # The font has glyphs for Latin, Greek and Cyrillic, not for every script.
    return "".join(
        c if c.isprintable() and (c < "\u02ea" or "\u0380" <= c < "\u0500") else "?" for c in end_of(text, most)
    )
