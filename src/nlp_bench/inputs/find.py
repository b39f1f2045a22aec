"""Resolves PATHs to logs, our run folders and published tables; each real file or folder once."""

import errno
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path

from nlp_bench.errors import ADDRESS, UsageError, dead_link
from nlp_bench.escape import shortened, some
from nlp_bench.files import opened
from nlp_bench.immutable import immutable
from nlp_bench.inputs.reference import is_reference_table
from nlp_bench.marker import JUBE_ERROR, why_failed
from nlp_bench.seal import LOG, OUTCOME, SUBMISSION, UNPACK, packed
from nlp_bench.walk import JUBE_FILES, NAME_IT, is_run, report_skipped, walk

Key = tuple[object, ...]
Folder = tuple[Path, set[str]]
_MAGIC = frozenset("*?[")
FAMILY = "nlp-bench/"  # prefix of the schema of each record
_HEAD = 4096
_LONGEST = 4096  # bytes of a path, Linux's PATH_MAX
_OF_RUNS = frozenset(name + suffix for name in (LOG, OUTCOME, SUBMISSION) for suffix in ("", *UNPACK))
_LOG = re.compile(r"\.(log|out)(\.(gz|xz|zst|bz2))?$")


class Kind(Enum):
    """How an item is read."""

    LOG = "log"
    RUN = "run folder"
    TABLE = "reference table"
    RECORD = "record of nlp-bench"
    STEP = "failed step of JUBE"  # a point of a sweep that came to no run; `problem` says why
    BROKEN = "broken"


@immutable
class Item:
    """One thing to read."""

    path: str  # as it is opened and shown, `-` for standard input; of a run of ours its folder, or its log if given
    kind: Kind
    is_found: bool = False  # whether it was found below a folder, not given: without a training line it is no row
    is_regular: bool = False  # whether another process could open it too; a pipe can be read only here, once
    num_bytes: int = 0  # size on disk, for the progress
    problem: str = ""  # why it cannot be read, if that is known already
    key: Key = ()  # identity of the file or folder, the same under all its names; empty for one that is never a duplicate

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.path).parent if self.kind is Kind.RUN and Path(self.path).is_file() else Path(self.path)

    @property
    def file(self) -> Path:
        """The log or the table."""
        return self.folder / LOG if self.kind is Kind.RUN else Path(self.path)


@immutable
class Group:
    """The items of one PATH."""

    path: str
    items: list[Item] = field(default_factory=list)  # in the order of the report; empty where all were found before
    hidden: str = ""  # which files below it are left out because they are hidden, to stand behind a sentence


def find(paths: Sequence[str]) -> list[Group]:
    """Return one group for each PATH, or match of one with wildcards, in their order; a missing one is a broken item. Raises UsageError for an empty one, and for - twice."""
    if paths.count("-") > 1:
        raise UsageError("PATH - is given twice; standard input can be read once")
    if "" in paths:
        raise UsageError("PATH is empty; give a path, or . for the current folder")
    groups = [_group(match) for path in paths for match in _matches(path)]
    seen: set[Key] = set()
    for group in groups:
        items = group.items.copy()
        group.items.clear()
        for item in items:
            if not item.key or item.key not in seen:
                group.items.append(item)
                seen.add(item.key)
    return groups


def _matches(path: str) -> list[str]:
    """Expand `path` as a shell would: to its matches, else to those of its * and ? alone, or to itself without any."""
    if path == "-" or _MAGIC.isdisjoint(path) or os.path.lexists(path):
        return [path]
    import glob  # noqa: PLC0415  # only patterns need it

    # 1234[7].server is a folder of a job array of PBS.
    either = (glob.glob(one, recursive=True) for one in (path, path.replace("[", "[[]")))  # noqa: PTH207  # Path.glob wants a folder and a pattern apart
    return sorted(next(filter(None, either), [path]))


def _group(path: str) -> Group:
    if path == "-":
        return Group(path=path, items=[Item(path=path, kind=Kind.LOG)])
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        if "\n" in path or len(path) > _LONGEST:
            text = f"PATH is the text {shortened(path, 60)!r}, and no name of a file: write it into a file and give its name, or - for standard input"
            return Group(path=path, items=[_broken(shortened(path, 60), text)])
        what = _missing(path) if isinstance(error, FileNotFoundError) else f"cannot read {path}: {why}"
        return Group(path=path, items=[_broken(path, f"{what}; give a log file, a folder, a pattern in quotes or -")])
    if stat.S_ISDIR(status.st_mode):
        return _folder(path)
    # Given by its log, a run of ours is still checked against its records: without all its iterations it has no number.
    folder, name = Path(path).parent, Path(path).name
    is_ours = name.startswith(LOG) and is_run(folder) and Path(path) in {folder / LOG, packed(folder / LOG)}
    kind = Kind.RUN if is_ours else Kind.TABLE if is_reference_table(Path(path), is_named=True) else Kind.LOG
    if kind is Kind.LOG and (record := record_beside(Path(path))):
        return _group(str(record))
    kind = Kind.RECORD if is_record(Path(path)) else kind
    is_regular = stat.S_ISREG(status.st_mode)
    num_bytes, key = status.st_size if is_regular else 0, _path_identity(folder) if is_ours else _file_identity(status)
    return Group(path=path, items=[Item(path=path, kind=kind, is_regular=is_regular, num_bytes=num_bytes, key=key)])


def _missing(path: str) -> str:
    if link := dead_link(path):
        return f"PATH {link}"
    why = " (nothing has replaced its ~: write the folder out)" if path.startswith("~") else ""
    if "\x1b[" in path:
        why = " (the name has colour codes in it, as of `ls --color=always`: write \\ls, or a pattern)"
    if path.startswith("file://"):
        from urllib.parse import unquote  # noqa: PLC0415  # for these only

        why = f" (write it as a path: {unquote(path.removeprefix('file://'))})"
    elif ADDRESS.match(path):
        why = " (nothing is fetched from an address: copy it to this machine first)"
    return f"PATH {path} does not exist{why}"


def _folder(path: str) -> Group:
    problems: list[OSError] = []
    folders = list(walk(Path(path), problems=problems))
    unreadable = [
        _broken(str(problem.filename), f"cannot read {problem.filename}: {problem.strerror}")
        for problem in problems
        if not _is_hidden(problem.filename, path)
    ]
    runs = _runs(folders)
    found = [*_tables(folders), *runs, *_failed_steps(folders, runs)]
    if any(item.kind is not Kind.BROKEN for item in found):
        report_skipped(_logs_beside(folders), path)
        return Group(path=path, items=found + unreadable)
    items = [*_logs([one for one in folders if not _is_hidden(one[0], path)], path), *found, *unreadable]
    hidden = [
        str(folder / name)
        for folder, names in folders
        for name in sorted(names if _is_hidden(folder, path) else (name for name in names if name.startswith(".")))
        if not items or _LOG.search(name)
    ]
    why = f"; hidden files are left out: {some(hidden, 2)}{NAME_IT}" if hidden else ""
    if not items:
        what = f"PATH {path} holds no run folder (run.json beside submit.json, job.out or outcome.json), no reference table"
        items = [_broken(path, f"{what} and no file that could be a log{why}")]
    return Group(path=path, items=items, hidden=why)


def is_record(path: Path) -> bool:
    """Whether a file is a JSON record of this program, by its name and its first bytes."""
    if path.suffix != ".json":
        return False
    try:
        with opened(path) as stream:
            return FAMILY.encode() in stream.read(_HEAD)
    except OSError:
        return False


def record_beside(path: Path) -> Path | None:
    """Return the record of the report that a folder is, or that a table or page was written with; None for any other path."""
    if path.is_dir():
        return next(filter(is_record, sorted(path.glob("*.json"))), None)
    record = path.with_suffix(".json")
    return record if path.suffix in {".csv", ".md", ".html"} and is_record(record) else None


def _broken(path: str, problem: str) -> Item:
    return Item(path=path, kind=Kind.BROKEN, problem=problem)


def _file_identity(status: os.stat_result) -> Key:
    """Return the same for all links to a file, hard and symbolic ones; shares (SMB, FUSE, 9p) give several files one number, but not one time."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _path_identity(path: Path) -> Key:
    return (os.path.realpath(path),)


def _tables(folders: list[Folder]) -> list[Item]:
    """Return the reference tables, each real one once, sorted."""
    found: dict[Key, Path] = {}
    for path in (folder / name for folder, names in folders for name in sorted(names)):
        if is_reference_table(path):
            found.setdefault(_path_identity(path), path)
    tables = sorted((path, key) for key, path in found.items())
    return [Item(path=str(path), kind=Kind.TABLE, is_regular=True, key=key) for path, key in tables]


def _runs(folders: list[Folder]) -> list[Item]:
    """Return the run folders, sorted, after them broken items for those that may not be entered."""
    found = [one for one, names in folders if names & _OF_RUNS and is_run(one, names)]
    runs, broken = list[Item](), list[Item]()
    for folder in sorted(found):
        log = folder / LOG
        try:
            size = log.stat().st_size if log.exists() else 0
        except OSError as error:
            broken.append(_broken(str(folder), f"cannot read {log}: {error.strerror}"))
            continue
        runs.append(Item(path=str(folder), kind=Kind.RUN, is_regular=True, num_bytes=size, key=_path_identity(folder)))
    return runs + broken


def _failed_steps(folders: list[Folder], runs: list[Item]) -> list[Item]:
    """Return the steps of JUBE's that failed and hold none of `runs`, which say themselves how they ended: points that were refused."""
    own = {run.key for run in runs}
    return [
        Item(path=str(step), kind=Kind.STEP, problem=f"{step}: {why_failed(step)}", key=_path_identity(step))
        for step, names in folders
        if JUBE_ERROR in names
        and any((step.parent / name).is_file() for name in JUBE_FILES)
        and own.isdisjoint({_path_identity(step / "work"), _path_identity(step / "work" / "train")})
    ]


def _logs(folders: list[Folder], top: str) -> list[Item]:
    """Return the regular files that are not hidden, each real one once and by a name that is no link if there is one, sorted.

    After them broken items for files that may not be looked at. Links to nothing, pipes and the like are said on stderr.
    """
    found: dict[Key, Item] = {}
    broken, skipped = list[Item](), list[str]()
    for path in (folder / name for folder, names in folders for name in sorted(names) if not name.startswith(".")):
        try:
            status = path.stat()
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ELOOP}:
                skipped.append(f"{path} is a link to nothing")
            else:
                broken.append(_broken(str(path), f"cannot read {path}: {error.strerror}"))
            continue
        if not stat.S_ISREG(status.st_mode):
            skipped.append(f"{path} is no regular file")
            continue
        key = _file_identity(status)
        if key not in found or (Path(found[key].path).is_symlink() and not path.is_symlink()):
            size = status.st_size
            found[key] = Item(path=str(path), kind=Kind.LOG, is_found=True, is_regular=True, num_bytes=size, key=key)
    report_skipped(tuple(skipped), top)
    return sorted(found.values(), key=lambda item: item.path) + broken


def _logs_beside(folders: list[Folder]) -> tuple[str, ...]:
    """Return in a sentence which logs lie beside run folders, whose report has no row for them; JUBE's own ones are none."""
    of_jube = [folder for folder, names in folders if not names.isdisjoint(JUBE_FILES)]
    logs = [
        folder / name
        for folder, names in folders
        if not is_run(folder, names) and not any(folder.is_relative_to(one) for one in of_jube)
        for name in sorted(names)
        if _LOG.search(name) and not name.startswith(".")
    ]
    return (f"{some(logs, 1)}: logs beside run folders{NAME_IT}",) if logs else ()


def _is_hidden(path: str | Path, top: str) -> bool:
    return any(part.startswith(".") for part in Path(os.path.relpath(path, top)).parts if part != ".")
