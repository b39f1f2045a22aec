"""Which files are the shards: files, folders and patterns, in the order of the words and sorted within each."""

import glob
import os
from pathlib import Path
from typing import Any

from nlp_bench.data.present import require_file
from nlp_bench.errors import UsageError
from nlp_bench.walk import walk

PACKED = (".gz", ".xz", ".zst", ".bz2")
NAMES = (".jsonl", ".json", ".ndjson", ".jl")
_SIGNS = frozenset("*?[")


def find_shards(words: tuple[str, ...]) -> list[Path]:
    """Return the files; raises UsageError for a word that names none, a file named twice, a git-lfs pointer, an empty file."""
    if not words:
        raise UsageError(
            "input: not given; name files, folders or patterns of JSON lines, plain, .gz, .xz, .zst or .bz2"
        )
    found: dict[Path, tuple[Path, str]] = {}
    for word in words:
        for path in _named(word):
            place = path.resolve()
            if place in found:
                raise UsageError(
                    f"input: {path} is named twice (by {found[place][1]} and {word}); leave one of the two out"
                )
            found[place] = (path, word)
            require_file("input", path)
    return [path for path, _ in found.values()]


def identity(path: Path) -> dict[str, Any]:
    """Return what says whether a shard is the same file as before: its path, size and time of change."""
    state = path.stat()
    return {"path": str(path.resolve()), "bytes": state.st_size, "changed_ns": state.st_mtime_ns}


def _named(word: str) -> list[Path]:
    path = Path(word)
    if word == "-":
        raise UsageError("input: -: standard input cannot be continued after a stop; write it into a file")
    if path.is_dir():
        found = (folder / name for folder, names in walk(path) for name in names)
        inside = sorted(one for one in found if _is_text(one) and not _is_hidden(one.relative_to(path)))
        if not inside:
            raise UsageError(f"input: {path} holds no file named *.jsonl or *.json, plain or with {', '.join(PACKED)}")
        return inside
    if os.path.lexists(path) or not _SIGNS & set(word):
        return [path]  # whether it can be read is asked by the caller
    matches = [Path(one) for one in sorted(glob.glob(word, recursive=True))]  # noqa: PTH207  # patterns may be absolute
    files = [one for one in matches if one.is_file() and not one.name.startswith(".")]
    if not files:
        raise UsageError(f"input: no file matches {word!r}")
    return files


def _is_text(path: Path) -> bool:
    name = path.name
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return name.endswith(NAMES) and path.is_file()


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
