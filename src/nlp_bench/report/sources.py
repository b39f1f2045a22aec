"""What a PATH stands for: a log, standard input, one run folder, a tree of them (JUBE's), or a published table."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.measure.entry import RunEntry, one_line
from nlp_bench.measure.folder import measure_folder
from nlp_bench.measure.foreign import Overrides, measure_log
from nlp_bench.outcome import Outcome
from nlp_bench.report.reference import is_reference_table, read_reference_table


def read_sources(paths: Sequence[str], overrides: Overrides) -> list[RunEntry]:
    """Return the entries of all paths, in the given order; a run folder that is reached twice counts once.

    Raises UsageError that names a path that is missing, unreadable or holds nothing to report.
    """
    if paths.count("-") > 1:
        raise UsageError("PATH - is given twice; standard input can be read once")
    entries: list[RunEntry] = []
    seen: set[str] = set()
    for path in paths:
        entries += _read_source(path, overrides, seen)
    return entries


def _read_source(path: str, overrides: Overrides, seen: set[str]) -> list[RunEntry]:
    if path != "-" and not Path(path).exists():
        raise UsageError(f"PATH {path} does not exist; give a log file, a run folder or -")
    if path != "-" and Path(path).is_dir():
        return [_with_remark(entry, overrides) for entry in _read_folder(Path(path), seen)]
    if _is_log_of_ours(path):
        return [_with_remark(_read_run(Path(path).parent, one_line(path)), overrides)]
    if path != "-" and is_reference_table(Path(path)):
        return read_reference_table(Path(path))
    return measure_log(path, overrides)


def _is_log_of_ours(path: str) -> bool:
    # Named by its log, a run of ours is held to its run.json all the same: cut short it has no number.
    return Path(path).name == "job.out" and (Path(path).parent / "run.json").is_file()


def _with_remark(entry: RunEntry, overrides: Overrides) -> RunEntry:
    if overrides == Overrides():
        return entry
    ignored = (
        "--sequence-length, --global-batch-size and --num-gpus are for logs without a run.json, and are not used here"
    )
    return replace(entry, remarks=(*entry.remarks, ignored))


def _read_folder(top: Path, seen: set[str]) -> list[RunEntry]:
    folders, tables = _find(top)
    entries = [entry for table in tables for entry in read_reference_table(table)]
    for folder in folders:
        real = os.path.realpath(folder)
        if real not in seen:
            seen.add(real)
            entries.append(_read_run(folder, one_line(folder)))
    if not folders and not tables:
        raise UsageError(
            f"PATH {top} holds no run folder (run.json beside job.out or outcome.json) and no reference table; "
            "to read logs of other programs name the files themselves"
        )
    return entries


def _find(top: Path) -> tuple[list[Path], list[Path]]:
    """Return run folders and reference tables below `top`, each real one once, real paths before symbolic links."""
    found: dict[str, Path] = {}
    tables: dict[str, Path] = {}
    for follow in (False, True):  # JUBE links the folders of earlier steps into later ones
        for folder, names in _walk(top, follow=follow):
            if "run.json" in names and not names.isdisjoint({"job.out", "outcome.json"}):
                found.setdefault(os.path.realpath(folder), folder)
            for name in sorted(names):
                if is_reference_table(folder / name):
                    tables.setdefault(os.path.realpath(folder / name), folder / name)
    return sorted(found.values()), sorted(tables.values())


def _walk(top: Path, *, follow: bool) -> Iterator[tuple[Path, set[str]]]:
    visited: set[str] = set()
    for folder, subfolders, names in os.walk(top, followlinks=follow):
        real = os.path.realpath(folder)
        if real in visited:
            subfolders.clear()  # a link that leads back up would never end
            continue
        visited.add(real)
        subfolders.sort()
        yield Path(folder), set(names)


def _read_run(folder: Path, source: str) -> RunEntry:
    try:
        return measure_folder(folder, source).entry
    except NlpBenchError as error:
        # One unfinished or damaged run must not hide the others: it stays a row.
        return RunEntry(source=source, outcome=Outcome.UNKNOWN, reasons=(one_line(error),))
