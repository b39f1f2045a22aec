"""The folder of a trend: plot, JSON and the rows behind it, each file whole or not at all."""

from pathlib import Path

from nlp_bench.files import write_bytes, write_text
from nlp_bench.history.row import Row
from nlp_bench.history.text import as_csv, trend_json
from nlp_bench.history.trend import Trend
from nlp_bench.packages import is_missing


def write_trend(trends: list[Trend], rows: list[Row], folder: Path) -> list[Path]:
    """Write trend.json, trend.csv and, by matplotlib, trend.png and trend.svg; return their paths."""
    for name, text in (("trend.json", trend_json(trends)), ("trend.csv", as_csv(rows))):
        write_text(folder / name, text)
    images: dict[str, bytes] = {}
    if not is_missing("matplotlib"):
        from nlp_bench.history.trend_plot import trend_figures  # noqa: PLC0415  # heavy

        images = trend_figures(trends)
    for name, content in images.items():
        write_bytes(folder / name, content)
    return [folder / name for name in ("trend.json", "trend.csv", *images)]
