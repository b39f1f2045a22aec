"""Logs out of their text: read, and measured."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nlp_bench.logs.reader import read_log
from nlp_bench.logs.record import Log
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides

Text = str | bytes | Iterable[str]


def written(folder: Path, text: Text, name: str = "some.log") -> Path:
    """Write a text, or parts of one, as they are."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else "".join(text).encode())
    return path


def log_of(folder: Path, text: Text) -> Log:
    return read_log(str(written(folder, text)))


def entries_of(folder: Path, text: Text, **given: Any) -> list[RunResult]:
    """Return what is measured, with these options of a person."""
    return measure_log(str(written(folder, text)), Overrides(**given))


def entry_of(folder: Path, text: Text, **given: Any) -> RunResult:
    """Return the same of a log of one training."""
    (entry,) = entries_of(folder, text, **given)
    return entry
