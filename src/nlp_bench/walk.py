"""The one walk through a folder that the user named: each real folder once, no link out of it followed, the depth bounded.

A link to a folder is followed where it stays inside the named folder, or inside the run of JUBE around the named folder: JUBE links the
folders of earlier steps into later ones. A link to a file is that file. Snapshots of the file system below the named folder are not
entered. What is skipped is reported on stderr.
"""

import functools
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from nlp_bench.errors import explained
from nlp_bench.escape import end_of, one_line
from nlp_bench.files import opened
from nlp_bench.seal import OUTCOME, RUN, SUBMISSION, UNPACK
from nlp_bench.terminal import say

MAX_DEPTH = 64  # levels of folders that are read; a path has at most 4096 bytes on Linux
NAME_IT = "; name it to have it read too"
MAX_NAMED = 3  # skipped folders that are reported one by one
MANIFEST, LINES = "manifest.json", "lines"
"""What marks a bundle of ours, and its folder of hashes: one file for each of the bundle's, under the same name."""
TOP = "evidence"  # the folder that contains everything once a bundle's archive is unpacked
OF_A_BUNDLE = frozenset({LINES, "report", "data", "rules", "software"})  # its folders without runs and logs
_BUNDLE = b'"nlp-bench/bundle/'
MACHINE, RANKS, SNAPSHOT = "machine", "ranks", "snapshot"
"""The own folders of a run folder of ours: records of the nodes, what each rank printed, a copy of the code with the site's files."""
_RECORDS = {OUTCOME: b'"nlp-bench/outcome/', SUBMISSION: b'"nlp-bench/submit/'}
"""Records that only a run folder holds, by their name and schema; run.json is also in folders that plan one."""
RUNS = frozenset((RUN, *(RUN + suffix for suffix in UNPACK)))
"""Names of run.json, packed by a cleaning job of the site, too: the log beside it is no stranger's."""
OF_A_RUN = frozenset({MACHINE, RANKS, SNAPSHOT})  # they hold no other run, and another user's may be closed
_COPIES = re.compile(
    r"[.~#]snapshots?|\.zfs|\.Trash(-\d+)?|[#@]recycle|\$RECYCLE\.BIN|@eaDir|lost\+found", re.IGNORECASE
)
"""Folders in which a file system shows what was there before (NetApp, Spectrum Scale, ZFS, Btrfs), or was deleted (freedesktop.org), and the like of
file servers (Synology, QNAP, Windows), or what a check of the disk has found (fsck): no further runs."""
_KERNEL = re.compile(r"/(?:proc|sys)(?:/|$)")
"""Files that the kernel makes as they are read, some without an end: no logs."""
JUBE_FILES = ("configuration.xml", "workpackages.xml")
"""Mark the folder of a run of JUBE (000000), which holds the folders of its steps (000003_train/work)."""


def walk(top: Path, *, problems: list[OSError] | None = None) -> Iterator[tuple[Path, set[str]]]:
    """Yield each real folder at and below `top`, sorted, links last, with the names of what is no folder; unreadable ones go to `problems`, or are reported."""
    within = os.path.realpath(_jube_run(top) or top)
    seen: set[str] = set()
    links: list[tuple[Path, int]] = []
    left: list[tuple[Path, int]] = [(top, 0)]
    skipped: list[str] = []
    while left or links:
        folder, depth = left.pop() if left else links.pop()
        try:
            real = os.path.realpath(folder)
        except OSError:  # it vanished
            continue
        if real in seen:
            continue
        seen.add(real)
        if _KERNEL.match(real):
            skipped.append(f"{folder}: the kernel's own files, no logs")
            continue
        if depth > MAX_DEPTH:
            skipped.append(f"{end_of(str(folder), 160)} lies more than {MAX_DEPTH} folders deep{NAME_IT}")
            continue
        try:
            names, folders, linked = _content(folder)
        except OSError as error:
            (problems.append(error) if problems is not None else skipped.append(f"{folder}: {explained(error)}"))
            continue
        yield folder, names
        copies = [path for path in folders if _COPIES.fullmatch(path.name)]
        skipped += [
            f"{path}: copies of folders, by the file system (snapshots, trash, lost+found){NAME_IT}" for path in copies
        ]
        left += [(path, depth + 1) for path in reversed(folders) if path not in copies]
        for path in linked:
            if why := _why_not(path, within, top):
                skipped.append(f"{path} is a link to {why}{NAME_IT}")
            elif why is None:
                links.insert(0, (path, depth + 1))
    report_skipped(tuple(skipped), str(top))


def _why_not(link: Path, within: str, top: Path) -> str | None:
    """Return why a link to a folder is not followed, "" where that need not be said, None for one that is followed."""
    try:
        target = Path(os.path.realpath(link))
    except OSError:
        return ""
    if not target.is_relative_to(within):
        return "" if target in Path(within).parents else f"{target}, outside {top}"  # one back up leads to nothing new
    is_copy = any(map(_COPIES.fullmatch, target.relative_to(within).parts))
    return f"{target}, copies of folders by the file system" if is_copy else None


def _content(folder: Path) -> tuple[set[str], list[Path], list[Path]]:
    """Return the names of files, the folders and the links to folders in `folder`, sorted. Raises OSError."""
    names: set[str] = set()
    folders: list[Path] = []
    links: list[Path] = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            try:
                is_folder = entry.is_dir()
            except OSError:  # a link to itself
                is_folder = False
            if is_folder:
                (links if entry.is_symlink() else folders).append(Path(entry.path))
            else:
                names.add(entry.name)
    if MANIFEST in names and is_bundle(folder):
        folders = [path for path in folders if path.name not in OF_A_BUNDLE]
    if is_run(folder, names):
        folders = [path for path in folders if path.name not in OF_A_RUN]
    return names, folders, links


def is_run(folder: Path, names: Collection[str] | None = None) -> bool:
    """Whether a folder, with the files `names`, is a run of ours by any record, for run.json may be lost; one that is empty or cannot be read counts, too."""
    if names is None:
        names = _records(folder)
    return not RUNS.isdisjoint(names) or any(
        name in names and _begins(folder / name, mark) for name, mark in _RECORDS.items()
    )


def _records(folder: Path) -> list[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208  # it names a file, too, that a file server cannot open at the moment
    except OSError:  # it may be entered, but not be listed
        return [name for name in (*RUNS, *_RECORDS) if os.path.lexists(folder / name)]
    return [name for name in (*RUNS, *_RECORDS) if name in names]


def _begins(path: Path, mark: bytes) -> bool:
    try:
        with opened(path) as stream:
            head = stream.read(4096)
    except FileNotFoundError:  # a link to nothing, or it vanished
        return False
    except OSError:
        return True
    return not head or mark in head


def is_bundle(folder: Path) -> bool:
    """Whether a folder is a bundle of evidence that was unpacked, or written as a folder."""
    try:
        with opened(folder / MANIFEST) as stream:
            return _BUNDLE in stream.read(4096)
    except OSError:
        return False


def _jube_run(top: Path) -> Path | None:
    """Return the run of JUBE that contains `top`: 000000 of 000000/000003_train/work."""
    real = Path(os.path.realpath(top))
    files = ((one, one / name) for one in (real, *real.parents[:2]) for name in JUBE_FILES)
    return next((one for one, path in files if os.path.isfile(path)), None)  # noqa: PTH113  # false, too, in a folder that is closed


@functools.cache  # a command that polls reports each once
def report_skipped(skipped: tuple[str, ...], top: str) -> None:
    """Say on stderr what below `top` is not read, and why."""
    for message in skipped[:MAX_NAMED]:
        say(f"passed over: {one_line(message)}")
    if (more := len(skipped) - MAX_NAMED) > 0:
        say(f"passed over: {more} more below {one_line(top)}")
