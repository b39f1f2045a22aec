"""The trend as PNG and SVG: one panel per configuration, rate over time with intervals, levels and flags."""

import io
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nlp_bench.history.text import name_of
from nlp_bench.history.trend import Trend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nlp_bench.history.row import Row

MAX_PANELS = 8
_MANY = 1000
"""So many points are drawn as an image within the SVG."""


def trend_figures(trends: list[Trend]) -> dict[str, bytes]:
    """Return trend.png and trend.svg of the latest MAX_PANELS configurations; the same trends give the same bytes."""
    drawn = trends[-MAX_PANELS:]
    figure = Figure(figsize=(9, 1 + 2.6 * max(1, len(drawn))), layout="constrained")
    FigureCanvasAgg(figure)
    if drawn:
        panels = figure.subplots(len(drawn), 1, squeeze=False)[:, 0]
        for axes, trend in zip(panels, drawn, strict=True):
            _draw(axes, trend)
        more = f"; {len(trends) - len(drawn)} more are in the table" if len(trends) > len(drawn) else ""
        figure.suptitle(
            f"points: runs with the 95 % interval within each; line: level; red: beyond the level{more}", fontsize=9
        )
    else:
        figure.text(0.5, 0.5, "no valid run", ha="center", size=20)
    images = {}
    with rc_context({"svg.hashsalt": "nlp-bench"}):
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, metadata=metadata)
            images[f"trend.{kind}"] = stream.getvalue()
    return images


def _draw(axes: "Axes", trend: Trend) -> None:
    rows = trend.rows
    rates = [row.tokens_per_second_steady or 0.0 for row in rows]
    below = [rate - (row.ci95_low if row.ci95_low is not None else rate) for row, rate in zip(rows, rates, strict=True)]
    above = [
        (row.ci95_high if row.ci95_high is not None else rate) - rate for row, rate in zip(rows, rates, strict=True)
    ]
    axes.errorbar(
        _times(rows), rates, yerr=[below, above], fmt=".", color="C0", ecolor="0.7", rasterized=len(rows) > _MANY
    )
    for level in trend.levels:
        axes.plot(_times((level.rows[0], level.rows[-1])), [level.mean, level.mean], color="C1", linewidth=1.2)
    flagged = [flag.row for flag in trend.flags]
    axes.plot(
        _times(flagged), [row.tokens_per_second_steady or 0.0 for row in flagged], "o", color="C3", fillstyle="none"
    )
    axes.xaxis_date()
    axes.set_ylabel("tokens/s")
    axes.set_title(
        _plain(f"{rows[-1].identity}: {name_of(rows[-1])}, {len(rows)} runs"), fontsize="medium", parse_math=False
    )
    axes.tick_params(axis="x", labelrotation=20)


def _times(rows: "tuple[Row, ...] | list[Row]") -> list[float]:
    """Return days since 1970, matplotlib's dates."""
    return [row.ended_s / 86400 for row in rows]


def _plain(text: str) -> str:
    return "".join(
        c if c.isascii() and c.isprintable() else "?" for c in text
    )  # the font has no glyph for every script
