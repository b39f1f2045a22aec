"""Plots as PNG, by matplotlib: the same plot gives the same bytes."""

import io
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.escape import end_of
from nlp_bench.files import working_in
from nlp_bench.show.chart import (
    COLUMNS,
    EXCLUDED,
    LIMIT,
    MAX_LEGEND,
    Chart,
    HeatMap,
    Rule,
    Series,
    scales,
    strengths,
    text_of,
)
from nlp_bench.show.table import label

# As it is imported, matplotlib reads a matplotlibrc of the current folder, whoever wrote it, and MPLBACKEND, which Jupyter sets.
_BACKEND = os.environ.pop("MPLBACKEND", None)
with working_in(Path(__file__).parent):
    from matplotlib import rc_context, rcdefaults, rcParams
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
if _BACKEND is not None:
    os.environ["MPLBACKEND"] = _BACKEND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

MAX_LABEL, MAX_NOTE = 40, 130  # letters of a name, and of a line of the note
_COLOURS = {EXCLUDED: "#a8480b", LIMIT: "#b3261e"}
_MARKERS = {"dot": ".", "cross": "x", "plus": "+", "square": "s", "triangle": "^", "diamond": "D", "circle": "o"}


def png(*plots: Chart | HeatMap, columns: int = COLUMNS) -> bytes:
    """Return a plot, or several side by side, as a PNG file."""
    with rc_context():
        rcdefaults()  # whatever the user's own style is
        rcParams["text.parse_math"] = False  # a file name may hold dollar signs, which are no mathematics
        stream = io.BytesIO()
        _drawn(plots, columns).savefig(stream, format="png", metadata={"Software": None}, dpi=150)
        return stream.getvalue()


def _drawn(plots: Sequence[Chart | HeatMap], columns: int) -> Figure:
    across = min(len(plots), columns)
    down = -(-len(plots) // across)
    figure = Figure(figsize=(9, 4.5) if len(plots) == 1 else (max(9, 4.2 * across), 2.8 * down), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(down, across, squeeze=False).flat
    for axes in list(places)[len(plots) :]:
        axes.remove()
    for index, (axes, plot) in enumerate(zip(figure.axes, plots, strict=True)):
        axes.set_title(
            _plain(plot.title) if not isinstance(plot, Chart) or plot.series else "", fontsize="medium", loc="left"
        )
        axes.set_xlabel(_plain(plot.x_label))
        axes.set_ylabel(_plain(plot.y_label))
        if isinstance(plot, Chart):
            _draw(axes, plot, has_legend=index == 0)
        else:
            _draw_heat(axes, plot)
    if note := " ".join(dict.fromkeys(plot.note for plot in plots if plot.note)):
        figure.supxlabel(textwrap.fill(_plain(note, len(note)), MAX_NOTE), fontsize="x-small", color="0.35")
    return figure


def _draw(axes: "Axes", chart: Chart, *, has_legend: bool) -> None:
    if not chart.series:
        axes.set_axis_off()
        axes.text(0.5, 0.5, _plain(chart.title), ha="center", size=20)
        return
    for band in chart.bands:
        axes.axvspan(band.low, band.high, color=_colour(band.colour), alpha=0.12, label=_label(band.name))
    for series in chart.series:
        _draw_series(axes, series)
    for rule in chart.rules:
        _draw_rule(axes, rule)
    x, y = scales(chart)
    if x.is_log:
        axes.set_xscale("log")
    if y.is_log:
        axes.set_yscale("log")
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    _set_ticks(axes.xaxis, x.ticks, chart.x_names)
    _set_ticks(axes.yaxis, y.ticks)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    handles, names = axes.get_legend_handles_labels()
    if has_legend and 0 < len(names) <= MAX_LEGEND:
        # Many names would cover what is drawn.
        place: dict[str, Any] = {"loc": "best"} if len(names) <= 4 else {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        axes.legend(handles, names, fontsize="small", **place)


def _set_ticks(axis: "Axis", ticks: tuple[float, ...], names: Sequence[str] = ()) -> None:
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    shown = dict(zip(ticks, names, strict=True)) if names else {}
    axis.set_major_formatter(FuncFormatter(lambda value, _: shown.get(value) or label(value)))


def _draw_series(axes: "Axes", series: Series) -> None:
    colour = _colour(series.colour)
    marker = _MARKERS[series.shape] if series.style == "points" or len(series.xs) <= 200 else ""
    axes.plot(
        series.xs,
        series.ys,
        linestyle="" if series.style == "points" else "--" if series.is_dashed else "-",
        marker="" if series.style == "step" or series.is_dashed else marker,
        drawstyle="steps-post" if series.style == "step" else "default",
        color=colour,
        linewidth=1.2,
        markerfacecolor="none" if series.shape == "circle" else colour,
        markersize=6 if marker in ".x+" else 4,
        label=_label(series.name),
    )
    for x, pair in zip(series.xs, series.errors, strict=False):
        if pair:
            axes.plot([x, x], pair, "-", color=colour, linewidth=1.2)


def _draw_rule(axes: "Axes", rule: Rule) -> None:
    style: dict[str, Any] = {
        "color": _colour(rule.colour),
        "linewidth": 1.0,
        "linestyle": "--" if rule.is_dashed else "-",
        "label": _label(rule.name),
    }
    if rule.span:
        draw = axes.hlines if rule.axis == "y" else axes.vlines
        draw(rule.value, *rule.span, **style)
    elif rule.axis == "y":
        axes.axhline(rule.value, **style)
    else:
        axes.axvline(rule.value, **style)


def _draw_heat(axes: "Axes", heat: HeatMap) -> None:
    numbers = [[float("nan") if value is None else value for value in row] for row in strengths(heat)]
    axes.imshow(numbers, cmap="Blues", vmin=0, vmax=2, aspect="auto")
    axes.set_xticks(range(len(heat.x_names)), [_plain(name) for name in heat.x_names])
    axes.set_yticks(range(len(heat.y_names)), [_plain(name) for name in heat.y_names])
    for row in range(len(heat.y_names)):
        for column in range(len(heat.x_names)):
            weight = "bold" if (row, column) in heat.marked else "normal"
            axes.text(column, row, _plain(text_of(heat, row, column)), ha="center", va="center", weight=weight)


def _colour(colour: int) -> str:
    return _COLOURS.get(colour, f"C{colour % 10}")


def _label(name: str) -> str:
    """Return a name for the legend; matplotlib hides those that begin with an underscore."""
    if not name:
        return "_none"
    plain = _plain(name)
    return f"run {plain}" if plain.startswith("_") else plain


def _plain(text: str, most: int = MAX_LABEL) -> str:
    # The font has no glyph for every script.
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in end_of(text, most))
