"""Reading a user's own text as one stream of documents: JSON lines, plain or packed, every fault with its line number."""

import io
from collections.abc import Iterator
from pathlib import Path

from nlp_bench.data.lines import text_of
from nlp_bench.data.opening import open_shard, reading_errors
from nlp_bench.errors import UsageError


def texts(path: Path, key: str) -> Iterator[str]:
    """Yield the text under `key` of every line; raises UsageError with the line number for a line without one."""
    number = 0
    try:
        with open_shard(path) as (stream, _), io.TextIOWrapper(stream, encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):  # the handler below names the line
                if line.strip():
                    yield str(text_of(line, key, f"input: {path}, line {number}"))
    except reading_errors() as error:
        raise UsageError(f"input: {path} cannot be read after line {number}: {error}") from error
