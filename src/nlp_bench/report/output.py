"""The folder of a report: tables by pandas, plots by matplotlib, the JSON record; each file whole or not at all."""

import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import write_bytes, write_json, write_text
from nlp_bench.report.formats import escaped_markdown, html_page, markdown_notes
from nlp_bench.report.readable import TEXT_COLUMNS, heading, readable
from nlp_bench.report.table import Report

if TYPE_CHECKING:
    import pandas as pd

NO_VALID_RUN = "no valid run"


def prepare(folder: Path) -> None:
    """Make `folder` and try a file in it, before any log is read.

    Raises UsageError naming the folder when it cannot be written, NlpBenchError when pandas or matplotlib is missing.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"--output {folder} cannot be written: {error.strerror}; give a folder that you may write to"
        ) from error
    missing = [name for name in ("pandas", "matplotlib", "tabulate") if importlib.util.find_spec(name) is None]
    if missing:
        raise NlpBenchError(f"--output needs {', '.join(missing)}; install with: pip install 'nlp-bench[report]'")


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.csv, report.md, report.html, report.json, throughput.png and throughput.svg; return their paths."""
    import pandas as pd  # noqa: PLC0415  # heavy

    from nlp_bench.report.plots import throughput_figures  # noqa: PLC0415  # heavy

    columns, rows = readable(report)
    # Text columns as objects: pandas must not take a file name for a number.
    frame = pd.DataFrame(rows, columns=[heading(name) for name in columns], dtype=object)
    texts = {
        "report.csv": pd.DataFrame(report.rows(), columns=list(report.columns), dtype=object).to_csv(index=False),
        "report.md": _markdown(report, frame.map(escaped_markdown), columns),
        "report.html": _html(report, frame.to_html(index=False, escape=True, border=0)),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    write_json(folder / "report.json", report.to_json())
    images = throughput_figures(report)
    for name, content in images.items():
        write_bytes(folder / name, content)
    return [folder / name for name in (*texts, "report.json", *images)]


def _failed(report: Report) -> bool:
    return not any(entry.has_number for entry in report.entries)


def _markdown(report: Report, frame: "pd.DataFrame", columns: list[str]) -> str:
    align = ["left" if name in TEXT_COLUMNS else "right" for name in columns]
    # disable_numparse: cells are text with the digits that were meant.
    table = frame.to_markdown(index=False, colalign=align, disable_numparse=True) if len(frame) else ""
    title = ["# nlp-bench report", "", *([f"**{NO_VALID_RUN}**", ""] if _failed(report) else [])]
    return "\n".join([*title, table, *markdown_notes(report), "", "![throughput](throughput.svg)"]) + "\n"


def _html(report: Report, table: str) -> str:
    warning = f"<p><strong>{NO_VALID_RUN}</strong></p>\n" if _failed(report) else ""
    plot = '<p><img src="throughput.svg" alt="time per iteration and loss over iterations"></p>'
    return html_page(report, f"{warning}{table}\n{plot}")
