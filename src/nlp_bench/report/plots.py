"""Throughput and loss over iterations, one colour per run, as PNG and SVG."""

import io
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.span import Span, spans_of
from nlp_bench.report.table import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LEGEND = 12
MAX_LABEL = 40


def throughput_figures(report: Report) -> dict[str, bytes]:
    """Return the two images by file name; without a valid run they say "no valid run"."""
    figure = Figure(figsize=(9, 7), layout="constrained")
    FigureCanvasAgg(figure)
    drawn = [entry for entry in report.entries if entry.throughput]
    if drawn:
        _draw(figure, drawn)
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


def _draw(figure: Figure, entries: list[RunEntry]) -> None:
    speed, loss = figure.subplots(2, 1, sharex=True)
    for index, entry in enumerate(entries):
        colour = f"C{index % 10}"
        _draw_speed(speed, entry, colour)
        points = [(r.iteration, r.lm_loss) for r in entry.records if r.lm_loss is not None]
        loss.plot([x for x, _ in points], [y for _, y in points], ".-", color=colour)
    speed.set_ylabel("tokens per second")
    speed.set_title("each logged interval; shaded: steady window, line: steady rate, crosses: excluded")
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
    spans = spans_of(
        entry.records, sequence_length=entry.sequence_length or 1, global_batch_size=entry.global_batch_size
    )
    window = measured.window
    steady = {span.record.iteration for span in window.spans}
    inside = [span for span in spans if span.record.iteration in steady]
    outside = [span for span in spans if span.record.iteration not in steady]
    axes.plot(*_points(inside), ".-", color=colour, label=_label(entry.source))
    axes.plot(*_points(outside), "x", color=colour)
    axes.axvspan(window.first_iteration, window.last_iteration, color=colour, alpha=0.1)
    axes.hlines(measured.steady, window.first_iteration, window.last_iteration, color=colour, linewidth=0.8)


def _points(spans: list[Span]) -> tuple[list[int], list[float]]:
    return [span.record.iteration for span in spans], [1 / span.seconds_per_token for span in spans]


def _label(source: str) -> str:
    # The font has no glyph for every script, and matplotlib hides labels that begin with an underscore.
    short = source if len(source) <= MAX_LABEL else "..." + source[3 - MAX_LABEL :]
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in short)
    return f"run {plain}" if plain.startswith("_") else plain
