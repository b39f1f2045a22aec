"""What the PATHs of a bundle stand for, copied into its folder with the secrets blacked out."""

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from nlp_bench.bundle.derive import RESULT
from nlp_bench.bundle.manifest import LOG, RUN_FOLDER, Member, is_safe
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.inputs.find import Item, Kind, find
from nlp_bench.inputs.read import Wish, read_item
from nlp_bench.logs.source import HEAD_BYTES, is_packed, open_log
from nlp_bench.marker import MARKER
from nlp_bench.measure.sizes import Overrides
from nlp_bench.redact import Redaction, redact
from nlp_bench.show.escape import one_line

SUFFIXES = frozenset(
    {".json", ".jsonl", ".out", ".err", ".txt", ".job", ".log", ".csv", ".toml", ".yaml", ".yml", ".patch"}
)
"""Text files of a run folder that go along; others (checkpoints, traces) do not."""
RANKS, SNAPSHOT = "ranks", "snapshot"
"""Folders of a run: what each rank printed, and a copy of the code with the site's system files, which stays at home."""
MAX_FILES = 20_000
_DERIVED = frozenset({RESULT, "metrics.txt"})
"""Not copied: they are derived again from the log."""
_MAX_LINES = 1000
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass
class Collected:
    """What lies in the folder of a bundle so far."""

    folder: Path
    """The folder."""
    members: list[Member] = field(default_factory=list)
    """Runs and logs, in the order of the PATHs."""
    originals: list[Item] = field(default_factory=list)
    """Where each member came from."""
    redactions: list[dict[str, Any]] = field(default_factory=list)
    """As the manifest lists them."""
    remarks: list[str] = field(default_factory=list)
    """What to know."""

    def copy(self, source: BinaryIO, path: str) -> None:
        """Copy a text to `path` of the bundle without its secrets."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as stream:
            self._note(path, redact(source, stream))

    def redact_here(self, path: str) -> None:
        """Black out the secrets of a file that lies in the bundle already."""
        raw = self.folder / f"{path}.raw"
        (self.folder / path).rename(raw)
        with raw.open("rb") as stream:
            self.copy(stream, path)
        raw.unlink()

    def _note(self, path: str, found: list[Redaction]) -> None:
        for kind in sorted({redaction.kind for redaction in found}):
            lines = sorted({redaction.line for redaction in found if redaction.kind == kind})
            self.redactions.append({"file": path, "kind": kind, "count": len(lines), "lines": lines[:_MAX_LINES]})


def collect(paths: Sequence[str], folder: Path, overrides: Overrides, *, with_ranks: bool) -> Collected:
    """Copy the runs and logs that `paths` stand for into `folder`.

    Raises UsageError for a PATH that cannot be read and where there is neither a run nor a log.
    """
    collected = Collected(folder)
    for group in find(paths):
        for item in group.items:
            if item.kind is Kind.BROKEN:
                raise UsageError(item.problem)
            if item.kind is Kind.TABLE:
                collected.remarks.append(
                    f"left out: {one_line(item.path)}, published results without a log to prove them"
                )
            elif item.kind is Kind.RUN:
                _take_run(item, collected, with_ranks=with_ranks)
            elif not item.is_found or _is_log(item, overrides):
                _take_log(item, collected)
    if not collected.members:
        raise UsageError(f"no run folder and no training log in {' '.join(paths)}; see: nlp-bench report --dialects")
    return collected


def _is_log(item: Item, overrides: Overrides) -> bool:
    return bool(read_item(item, Wish(overrides=overrides)).entries)


def _take_run(item: Item, collected: Collected, *, with_ranks: bool) -> None:
    path = f"runs/{len(collected.members) + 1:03d}"
    for count, (file, inside) in enumerate(_files(item.folder, with_ranks=with_ranks)):
        if count >= MAX_FILES:
            raise UsageError(f"{item.folder} holds more than {MAX_FILES} text files; is this a run folder?")
        if not is_safe(f"{path}/{inside}"):
            collected.remarks.append(f"{path}: left out for its name: {one_line(inside)[:120]}")
            continue
        with opened_file(file) as stream:
            collected.copy(stream, f"{path}/{inside}")
    collected.members.append(Member(path=path, kind=RUN_FOLDER, name=one_line(item.folder)))
    collected.originals.append(item)


def _files(folder: Path, *, with_ranks: bool, depth: int = 0) -> Iterator[tuple[Path, str]]:
    """Yield the text files of a run folder with their names in it; links lead to other steps and are not followed."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name.startswith(".") or (not depth and path.name == SNAPSHOT):
            continue
        if path.is_dir() and depth < 4 and (depth or path.name != RANKS or with_ranks):
            yield from (
                (file, f"{path.name}/{name}") for file, name in _files(path, with_ranks=with_ranks, depth=depth + 1)
            )
        elif path.is_file() and _is_taken(path.name, depth):
            yield path, path.name


def _is_taken(name: str, depth: int) -> bool:
    return (not depth and name == MARKER) or (Path(name).suffix in SUFFIXES and (depth > 0 or name not in _DERIVED))


def _take_log(item: Item, collected: Collected) -> None:
    name = "stdin.log" if item.path == "-" else plain_name(Path(item.path).name)
    path = f"logs/{len(collected.members) + 1:03d}/{name}"
    log = Path(item.path)
    if item.path == "-":  # it can be read once, and is measured twice
        log = collected.folder.with_name(f"{collected.folder.name}.stdin")
        if sys.stdin is None:
            raise UsageError("PATH -: standard input is closed")
        with log.open("wb") as target:
            shutil.copyfileobj(sys.stdin.buffer, target)
    with opened_file(log) as stream:
        is_packed_log = is_packed(stream.read(HEAD_BYTES))
        stream.seek(0)
        if is_packed_log:
            _unpack(log, path, collected)
        else:
            collected.copy(stream, path)
    collected.members.append(Member(path=path, kind=LOG, name=one_line(item.path)))
    collected.originals.append(replace(item, path=str(log)))


def _unpack(log: Path, path: str, collected: Collected) -> None:
    """Copy what the reader of logs sees of a compressed one."""
    (collected.folder / path).parent.mkdir(parents=True, exist_ok=True)
    with open_log(str(log)) as source, (collected.folder / path).open("wb") as target:
        for block in source.blocks():
            text = bytes(block.data[block.begin : block.end])
            target.write(text if text.endswith(b"\n") or block.is_last else text + b"\n")
    collected.redact_here(path)
    if source.damage:
        collected.remarks.append(f"{path}: {one_line(source.damage)}; what could be read is in the bundle")


def plain_name(name: str) -> str:
    """Return the name of a file in plain characters, without the suffix of a compressed one."""
    for suffix in (".gz", ".xz", ".zst", ".bz2"):
        name = name.removesuffix(suffix)
    return _ODD.sub("_", name).strip("._")[-80:] or "train.log"


def opened_file(path: Path) -> BinaryIO:
    """Open a file to be read. Raises NlpBenchError naming it."""
    try:
        return path.open("rb")
    except OSError as error:
        raise NlpBenchError(f"cannot read {path}: {error.strerror}; a bundle holds all of a run or nothing") from error
