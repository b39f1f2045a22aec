"""The folder of a report: the texts that standard output gives too, the record, and the plots; each file whole or not at all."""

import tempfile
from collections.abc import Collection
from pathlib import Path

from nlp_bench.errors import UsageError, explained
from nlp_bench.files import write_bytes, write_json, write_text
from nlp_bench.packages import is_missing
from nlp_bench.report.formats import as_csv, html, markdown
from nlp_bench.report.page.head import NO_VALID_RUN
from nlp_bench.report.table import Report

PLOTS = {
    "throughput": "Throughput over iterations",
    "loss": "Training loss over iterations",
    "step-times": "Distribution of the time per iteration",
}
"""Name of the two files of each plot, and what it shows."""
FILES = {
    "report.csv": "all columns with full precision, for pandas or a spreadsheet",
    "report.md": "the table to paste, with its notes",
    "report.html": "one page with everything, which needs no network and no other file",
    "report.json": "the record `nlp-bench/report/1`, for programs",
    **{f"{key}.{kind}": f"{title}, as {kind.upper()}" for key, title in PLOTS.items() for kind in ("svg", "png")},
}
"""What `write_report` writes."""


def prepare(folder: Path) -> None:
    """Make `folder` and try a file in it, before any log is read.

    Raises UsageError naming the folder when it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"--output {folder} cannot be written: {explained(error)}; or give a folder that you may write to"
        ) from error


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write FILES into `folder`, without matplotlib all but the plots; return their paths."""
    plots = {} if is_missing("matplotlib") else _images(report)
    for name, text in {
        "report.csv": as_csv(report),
        "report.md": _markdown(report, plots),
        "report.html": html(report),
    }.items():
        write_text(folder / name, text)
    write_json(folder / "report.json", report.to_json())
    for name, content in plots.items():
        write_bytes(folder / name, content)
    return [folder / name for name in FILES if name in plots or name.startswith("report.")]


def _markdown(report: Report, plots: Collection[str]) -> str:
    warning = [] if any(entry.has_number for entry in report.entries) else [f"**{NO_VALID_RUN}**", ""]
    plots = [f"![{title}]({key}.svg)" for key, title in PLOTS.items() if f"{key}.svg" in plots]
    return "\n".join(["# nlp-bench report", "", *warning, markdown(report), *plots]) + "\n"


def _images(report: Report) -> dict[str, bytes]:
    from nlp_bench.report.plots import CHARTS, drawable, in_files  # noqa: PLC0415  # likewise
    from nlp_bench.show.image import empty, images  # noqa: PLC0415  # heavy

    drawn = drawable(report.entries)
    has_number = any(entry.has_number for entry in report.entries)
    words = "published values only, no log to draw" if has_number else NO_VALID_RUN
    found = {}
    for key, make in zip(PLOTS, CHARTS, strict=True):
        charts = in_files(make, drawn) if drawn else []
        found.update(images(*charts) if charts else empty(key, "the logs have none" if drawn else words))
    return found
