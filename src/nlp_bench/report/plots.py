"""Throughput and loss over iterations, one colour per run, as PNG and SVG."""

import io
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.span import Spans
from nlp_bench.report.lean import MAX_DRAWN, has_samples
from nlp_bench.report.table import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LEGEND = 12
MAX_LABEL = 40


def throughput_figures(report: Report) -> dict[str, bytes]:
    """Return the two images by file name; without a valid run they say "no valid run"."""
    figure = Figure(figsize=(9, 7), layout="constrained")
    FigureCanvasAgg(figure)
    measured = [entry for entry in report.entries if entry.throughput]
    drawn = [entry for entry in measured if has_samples(entry)][:MAX_DRAWN]
    if drawn:
        _draw(figure, drawn, len(measured))
    else:
        published = any(entry.has_number for entry in report.entries)
        figure.text(
            0.5, 0.5, "published values only, no log to draw" if published else "no valid run", ha="center", size=20
        )
    images = {}
    # A fixed salt and no date: the same report gives the same bytes.
    with rc_context({"svg.hashsalt": "nlp-bench"}):
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, metadata=metadata)
            images[f"throughput.{kind}"] = stream.getvalue()
    return images


def _draw(figure: Figure, entries: list[RunEntry], num_measured: int) -> None:
    speed, loss = figure.subplots(2, 1, sharex=True)
    for index, entry in enumerate(entries):
        colour = f"C{index % 10}"
        _draw_speed(speed, entry, colour)
        known = entry.records.has("lm_loss")
        losses = entry.records.column("lm_loss")
        loss.plot(entry.records.column("iteration")[known], losses[known], ".-", color=colour)
    speed.set_ylabel("tokens per second")
    which = f"; the first {len(entries)} of {num_measured} runs" if len(entries) < num_measured else ""
    speed.set_title("each logged interval; shaded: steady window, line: steady rate, crosses: excluded" + which)
    speed.set_ylim(bottom=0)
    loss.set_ylabel("lm loss")
    loss.set_xlabel("iteration")
    if len(entries) <= MAX_LEGEND:
        legend = speed.legend(loc="best", fontsize="small")
        for text in legend.get_texts():
            text.set_parse_math(parse_math=False)  # a file name may hold dollar signs


def _draw_speed(axes: "Axes", entry: RunEntry, colour: str) -> None:
    measured = entry.throughput
    if measured is None:
        return
    window, spans = measured.window, measured.spans
    inside = np.isin(spans.records.column("iteration"), window.spans.records.column("iteration"))
    axes.plot(*_points(spans[inside]), ".-", color=colour, label=_label(entry.source))
    axes.plot(*_points(spans[~inside]), "x", color=colour)
    axes.axvspan(window.first_iteration, window.last_iteration, color=colour, alpha=0.1)
    axes.hlines(measured.steady, window.first_iteration, window.last_iteration, color=colour, linewidth=0.8)


def _points(spans: Spans) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return spans.records.column("iteration"), 1 / spans.seconds_per_token


def _label(source: str) -> str:
    # The font has no glyph for every script, and matplotlib hides labels that begin with an underscore.
    short = source if len(source) <= MAX_LABEL else "..." + source[3 - MAX_LABEL :]
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in short)
    return f"run {plain}" if plain.startswith("_") else plain
