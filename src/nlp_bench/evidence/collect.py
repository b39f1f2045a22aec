"""What goes into the folder of a bundle: runs and logs with their secrets blacked out, rules, tables, and which nlp-bench it was."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from nlp_bench import __version__
from nlp_bench.config import catalog
from nlp_bench.config.origin import commit_in, git
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.escape import one_line
from nlp_bench.evidence.derive import RESULT
from nlp_bench.evidence.manifest import LOG, RULES, RUN_FOLDER, Member, Options, is_safe
from nlp_bench.files import opened, real
from nlp_bench.inputs.find import Item, Kind, find
from nlp_bench.inputs.read import ReadOptions, read_item, refusal_of_record
from nlp_bench.logs.source import HEAD_BYTES, Snapshot, is_packed, open_log
from nlp_bench.marker import MARKER
from nlp_bench.measure.sizes import Overrides
from nlp_bench.programs import ask
from nlp_bench.redact import Readable, redact
from nlp_bench.rules.file import load
from nlp_bench.seal import refuse_packed
from nlp_bench.walk import RANKS, SNAPSHOT, is_bundle

SUFFIXES = frozenset(
    {".json", ".jsonl", ".out", ".err", ".txt", ".job", ".log", ".csv", ".toml", ".yaml", ".yml", ".patch"}
)
"""Text files of a run folder that are packed; others (checkpoints, traces) are not."""
MAX_FILES, MAX_DEPTH = 20_000, 4
_DERIVED = frozenset({RESULT, "metrics.txt"})  # not copied: they are derived again from the log
_MAX_LINES = 1000
PATCH, UNTRACKED = "software/uncommitted.patch", "software/untracked.txt"
MAX_PATCH_BYTES = 16 << 20


@dataclass
class Collected:
    """What is in the folder of a bundle so far."""

    folder: Path
    members: dict[Member, Item] = field(default_factory=dict)
    """Runs and logs in the order of the PATHs, and their originals."""
    redactions: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, source: Path, path: str) -> None:
        """Copy a text file, as long as it is now, without its secrets. Raises NlpBenchError naming what cannot be read, or was changed while it was."""
        with _opened_file(source) as stream:
            snapshot = Snapshot(stream)
            self.add_stream(snapshot, path)
            _refuse_change(source, snapshot.change())

    def add_stream(self, source: Readable, path: str) -> None:
        """Copy a text to `path` of the bundle without its secrets."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as stream:
            found = redact(source, stream)
        for kind in sorted({redaction.kind for redaction in found}):
            lines = sorted({redaction.line for redaction in found if redaction.kind == kind})
            self.redactions.append({"file": path, "kind": kind, "count": len(lines), "lines": lines[:_MAX_LINES]})


def collect(paths: Sequence[str], folder: Path, overrides: Overrides, *, with_ranks: bool) -> Collected:
    """Copy the runs and logs that `paths` name into `folder`. Raises UsageError for a PATH that cannot be read, and where there is neither a run nor a log."""
    collected = Collected(folder)
    found = [(item, _bundle_around(item, group.path)) for group in find(paths) for item in group.items]
    has_others = not all(bundle for _, bundle in found)  # else the bundles are what is meant, as for `report`
    for item, bundle in found:
        if bundle and has_others:
            left_out = f"left out: {one_line(bundle)}, a bundle that was made before; name it to have its runs too"
            collected.remarks += [left_out] if left_out not in collected.remarks else []
        elif item.kind is Kind.BROKEN:
            raise UsageError(item.problem)
        elif item.kind is Kind.STEP:
            collected.remarks.append(f"left out: {one_line(item.problem)}")
        elif item.kind is Kind.TABLE:
            collected.remarks.append(f"left out: {one_line(item.path)}, published results without a log to prove them")
        elif item.kind is Kind.RUN:
            _add_run(item, collected, with_ranks=with_ranks)
        elif item.kind is Kind.RECORD and (refusal := refusal_of_record(item.file, item.path)):
            raise UsageError(f"{item.path} is no evidence but {refusal.reasons[0].text}")
        elif not item.is_found or read_item(item, ReadOptions(overrides=overrides)).entries:
            _add_log(item, collected)
    if not collected.members:
        raise UsageError(f"no run folder and no training log in {' '.join(paths)}; see: nlp-bench report --dialects")
    return collected


def _bundle_around(item: Item, top: str) -> Path | None:
    """Return the unpacked bundle below the path `top` that contains an item, None where there is none."""
    above = [path for path in item.folder.parents if path != Path(top) and path.is_relative_to(top)]
    return next((path for path in above if is_bundle(path)), None)


def _add_run(item: Item, collected: Collected, *, with_ranks: bool) -> None:
    refuse_packed(item.folder)
    path = f"runs/{len(collected.members) + 1:03d}"
    for count, file in enumerate(_run_files(item.folder, with_ranks=with_ranks)):
        inside = file.relative_to(item.folder).as_posix()
        if file.is_symlink():
            if inside == item.file.name:
                raise UsageError(f"{file} is a link, and a bundle holds files only; put the log itself there")
            collected.remarks.append(f"{path}: left out: {one_line(inside)[:120]}, a link; a bundle holds files only")
            continue
        if count >= MAX_FILES:
            raise UsageError(f"{item.folder} holds more than {MAX_FILES} text files; is this a run folder?")
        if is_safe(f"{path}/{inside}"):
            collected.add(file, f"{path}/{inside}")
        else:
            collected.remarks.append(f"{path}: left out for its name: {one_line(inside)[:120]}")
    collected.members[Member(path=path, kind=RUN_FOLDER, name=one_line(item.folder))] = item


def _run_files(folder: Path, *, with_ranks: bool, depth: int = 0) -> Iterator[Path]:
    """Yield the text files of a run folder and the links in place of such; links to folders lead to other steps and are not followed."""
    left_out = {SNAPSHOT, *(() if with_ranks else (RANKS,))} if not depth else set()
    try:
        paths = [path for path in sorted(folder.iterdir()) if path.lstat()]  # one without x still lists its names
    except OSError as error:
        raise _unread(folder, error) from error
    for path in paths:
        if path.name.startswith(".") or path.name in left_out:
            continue
        if path.is_dir():
            if depth < MAX_DEPTH and not path.is_symlink() and not is_bundle(path):
                yield from _run_files(path, with_ranks=with_ranks, depth=depth + 1)
        elif path.is_file() or path.is_symlink():
            is_derived, is_marker = not depth and path.name in _DERIVED, not depth and path.name == MARKER
            if is_marker or (path.suffix in SUFFIXES and not is_derived):
                yield path


def _add_log(item: Item, collected: Collected) -> None:
    name = "stdin.log" if item.path == "-" else _plain_name(Path(item.path).name)
    path = f"logs/{len(collected.members) + 1:03d}/{name}"
    log = Path(item.path)
    if item.path == "-":  # it can be read only once, and is measured twice
        log = collected.folder.with_name(f"{collected.folder.name}.stdin")
        if sys.stdin is None:
            raise UsageError("PATH -: standard input is closed")
        snapshot = Snapshot(sys.stdin.buffer)
        with log.open("wb") as target:
            for block in iter(lambda: snapshot.read(1 << 20), b""):
                target.write(block)
        _refuse_change("standard input", snapshot.change())
    with _opened_file(log) as stream:
        is_packed_log = is_packed(stream.read(HEAD_BYTES))
    if is_packed_log:
        _add_packed(log, path, collected)
    else:
        collected.add(log, path)
    collected.members[Member(path=path, kind=LOG, name=one_line(item.path))] = replace(item, path=str(log))


def _add_packed(log: Path, path: str, collected: Collected) -> None:
    """Copy a compressed log as the reader of logs decompresses it."""
    plain = collected.folder.with_name(f"{collected.folder.name}.plain")
    with open_log(str(log)) as source, plain.open("wb") as target:
        for block in source.blocks():
            text = bytes(block.data[block.begin : block.end])
            target.write(text if text.endswith(b"\n") or block.is_last else text + b"\n")
    _refuse_change(log, source.change)
    collected.add(plain, path)
    if source.damage:
        collected.remarks.append(f"{path}: {one_line(source.damage)}; what could be read is in the bundle")


def _plain_name(name: str) -> str:
    """Return the name of a file in plain characters, without the suffix of a compressed one."""
    for suffix in (".gz", ".xz", ".zst", ".bz2"):
        name = name.removesuffix(suffix)
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[-80:].strip("._") or "train.log"


def _refuse_change(source: Path | str, change: str | None) -> None:
    """Raise NlpBenchError for a file that was cut or written anew while it was copied: its parts never stood in it together."""
    if change:
        raise NlpBenchError(
            f"cannot bundle {source}: {change}; keep programs that rotate or rewrite it away (logrotate's copytruncate, say), then repeat"
        )


def _opened_file(path: Path) -> BinaryIO:
    """Open a file to be read. Raises NlpBenchError naming it."""
    try:
        return opened(path)
    except OSError as error:
        raise _unread(path, error) from error


def _unread(path: Path, error: OSError) -> NlpBenchError:
    return NlpBenchError(f"cannot read {path}: {error.strerror}; a bundle holds all of a run or nothing")


def add_rules(collected: Collected, options: Options) -> Options:
    """Copy the user's rule file and those that it names by paths; return the options with its path in the bundle. Raises UsageError where the paths do not hold there."""
    if not (options.rules and options.rules.endswith(".toml")):
        return options
    files = list(dict.fromkeys(load(options.rules).files))
    # As they lie to each other, so that the paths in them hold.
    base = os.path.commonpath([one.parent for one in files])
    paths = [f"{RULES}/{os.path.relpath(one, base)}" for one in files]
    if len(files) == 1:
        paths = [f"{RULES}/{_plain_name(Path(options.rules).name)}"]
    for one, path in zip(files, paths, strict=True):
        collected.add(one, path)
    inside = real(collected.folder)
    outside = next((one for one in load(str(inside / paths[0])).files if not one.is_relative_to(inside)), None)
    if outside or not all(map(is_safe, paths)):
        raise UsageError(
            f"--rules {options.rules}: {outside or ', '.join(map(str, files))} cannot go into the bundle as it is named; let the rules "
            "name files by relative paths, of letters, digits and . _ - alone"
        )
    return replace(options, rules=paths[0])


def add_software(collected: Collected) -> dict[str, Any]:
    """Add the patch of what is not committed, and return version and commit as the manifest has them."""
    root, commit = checkout()
    record: dict[str, Any] = {"version": __version__, "commit": commit, "patch": None, "untracked": None}
    if root is None or commit is None:
        answer = ask("git", "--version") if root and (root / ".git").exists() else None
        why = answer.err if answer and answer.code is None else "nlp-bench was not run from a git checkout"
        collected.remarks.append(f"{why}: no commit is known")
        return record
    patch = _git(root, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "HEAD", "--", ".")
    if patch is None or len(patch) > MAX_PATCH_BYTES:
        left_out = "the patch of nlp-bench's uncommitted changes could not be made or is above 16 MiB: left out"
        collected.remarks.append(left_out)
    elif begin := re.search(rb"^diff --git ", patch, re.MULTILINE):  # a site's wrapper of git may print more before
        collected.add_stream(io.BytesIO(patch[begin.start() :]), PATCH)
        record["patch"] = PATCH
        collected.remarks.append(f"nlp-bench's checkout has uncommitted changes: {PATCH}")
    untracked = _git(root, "ls-files", "--others", "--exclude-standard")
    if untracked:
        collected.add_stream(io.BytesIO(untracked), UNTRACKED)
        record["untracked"] = UNTRACKED
    return record


def checkout() -> tuple[Path | None, str | None]:
    """Return the folder that nlp-bench runs from and its commit; None each where there is none."""
    root = catalog.checkout()
    commit = _git(root, "rev-parse", "HEAD") if root else None
    return root, commit_in((commit or b"").decode(errors="replace"))


def _git(root: Path, *words: str) -> bytes | None:
    """Return what git prints, None where it does not answer; its index is not touched."""
    command = [*git(root), "--no-optional-locks", *words]
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def tables() -> dict[str, Path]:
    """Return the tables that numbers and words depend on, by their path in a bundle."""
    rules = {f"data/rules/{name}.toml": catalog.find("rules", name) for name in catalog.names("rules")}
    return {"data/accelerators.toml": catalog.table("accelerators.toml"), **rules}
