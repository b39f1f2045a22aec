"""The files of `--output`: the texts that standard output gives too, the record, and the plots; each file whole or not at all."""

import contextlib
import os
from pathlib import Path

from nlp_bench.errors import UsageError, explained
from nlp_bench.files import new_owner, user_name, write_bytes, write_json, write_text
from nlp_bench.inputs.find import is_record
from nlp_bench.report.formats import FORMATS, View
from nlp_bench.report.page import NO_VALID_RUN
from nlp_bench.report.plots import CHARTS, PLOTS, drawable, in_files
from nlp_bench.report.report import Report
from nlp_bench.show.chart import empty, plot_files

FILES = (
    *(f"report.{ending}" for ending in ("csv", "md", "html", "json")),
    *(f"{key}.{ending}" for key in PLOTS for ending in ("svg", "png")),
)
"""What `write_report` writes; docs/report.md says what each holds."""
VIEW_FILES = {"csv": "csv", "markdown": "md", "json": "json"}  # format of a view to the ending of its file
NOTHING = {
    "scaling": "no curve: no workload has a number at two sizes",
    "sweep": "no sweep: no two configurations on equal GPUs, or none with a number",
}
"""What stands in place of a plot."""
_ENDINGS = frozenset(Path(name).suffix for name in FILES)


def prepare(folder: Path, *stems: str) -> None:
    """Make `folder` for files named `stems`, the record first, and try one, before any log is read. Raises UsageError where that fails, or another's file would be replaced."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"--output {folder} cannot be written: it is a file; give a folder, which is made where there is none"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = new_owner(folder)
        found = sorted(_files_of(folder, stems))
    except OSError as error:
        raise UsageError(
            f"--output {folder} cannot be written: {explained(error)}; or give a folder that you may write to"
        ) from error
    # The record is written first: files beside one of ours are of an earlier call.
    is_ours = is_record(folder / f"{stems[0]}.json")
    for path in found:
        what = "is a link" if path.is_symlink() else "" if is_ours and path.is_file() else "is none of an earlier call"
        what = what or _of_another(path, own)
        if what:
            raise UsageError(
                f"--output {folder}: {path.name} there {what} and would be replaced; move it, or give another folder"
            )


def _of_another(path: Path, own: int) -> str:
    """Return in words whose a file is, where it is not `own`'s; a folder of a group lets everybody replace it. Nothing for root."""
    with contextlib.suppress(OSError):  # it vanished
        owner = path.lstat().st_uid
        if os.geteuid() and owner != own:
            return f"belongs to {user_name(owner)}"
    return ""


def _files_of(folder: Path, stems: tuple[str, ...]) -> list[Path]:
    """Return the files in `folder` of these names, and further plots of a view among them."""
    more = tuple(f"{view}-" for view in NOTHING if view in stems)
    return [
        path
        for path in folder.iterdir()
        if path.suffix in _ENDINGS and (path.stem in stems or path.stem.startswith(more))
    ]


def left_over(folder: Path, written: list[Path]) -> list[str]:
    """Return the names of an earlier call's files in `folder` that this one did not write anew."""
    stems = ("report", *PLOTS, *NOTHING, "records")
    return sorted(path.name for path in _files_of(folder, stems) if path not in written)


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write FILES into `folder`, without matplotlib all but the plots; return their paths."""
    plots = _plots(report)
    warning = "" if any(entry.has_number for entry in report.entries) else f"**{NO_VALID_RUN}**\n\n"
    images = "\n".join(f"![{title}]({key}.svg)" for key, title in PLOTS.items() if plots)
    write_json(folder / "report.json", report.to_json())  # first: by it `prepare` knows the others
    write_text(folder / "report.csv", FORMATS["csv"](report))
    write_text(folder / "report.md", f"# nlp-bench report\n\n{warning}{FORMATS['markdown'](report)}\n{images}\n")
    write_text(folder / "report.html", FORMATS["html"](report))
    _write_plots(plots, folder)
    return [folder / name for name in FILES if name in plots or name.startswith("report.")]


def _plots(report: Report) -> dict[str, bytes]:
    drawn = drawable(report.entries)
    has_number = any(entry.has_number for entry in report.entries)
    why = "the logs have none" if drawn else "published values only, no log to draw" if has_number else NO_VALID_RUN
    found: dict[str, bytes] = {}
    for key, make in zip(PLOTS, CHARTS, strict=True):
        found |= plot_files(*((drawn and in_files(make, drawn)) or [empty(key, why)]))
    return found


def write_view(view: View, folder: Path) -> list[Path]:
    """Write NAME.csv, .md and .json and the plots of a view; return their paths."""
    texts = {f"{view.name}.{ending}": form for form, ending in VIEW_FILES.items()}
    for name, form in texts.items():
        write_text(folder / name, view.text(form))
    plots: dict[str, bytes] = {}
    for plot in view.plots() or [empty(view.name, NOTHING[view.name])]:
        plots |= plot_files(plot)
    _write_plots(plots, folder)
    return [folder / name for name in (*texts, *plots)]


def _write_plots(plots: dict[str, bytes], folder: Path) -> None:
    for name, content in plots.items():
        write_bytes(folder / name, content)
