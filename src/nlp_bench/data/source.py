"""Reading a user's own text: one JSON object per line, plain or gzip, every fault with its line number."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from nlp_bench.errors import UsageError


def texts(path: Path, key: str) -> Iterator[str]:
    """Yield the text under `key` of every line; raises UsageError with the line number for a line without one."""
    number = 0
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, start=1):  # the handler below names the line
                if line.strip():
                    yield _text(line, key, f"input: {path}, line {number}")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UsageError(f"input: {path} cannot be read after line {number}: {error}") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return cast("IO[str]", gzip.open(path, "rt", encoding="utf-8"))
    return path.open(encoding="utf-8")


def _text(line: str, key: str, place: str) -> str:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{place}: not JSON: {error}") from error
    if not isinstance(record, dict) or key not in record:
        keys = f"its keys are {', '.join(record)}" if isinstance(record, dict) else "it is no object"
        raise UsageError(f"{place}: no {key!r}: {keys}; name the right one with --json-key")
    if not isinstance(record[key], str):
        raise UsageError(f"{place}: {key!r} is {type(record[key]).__name__}, not text")
    return str(record[key])
