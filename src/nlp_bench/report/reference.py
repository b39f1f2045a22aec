"""Published results as data: a CSV whose times are recomputed, never copied."""

import csv
from pathlib import Path

from nlp_bench.errors import UsageError
from nlp_bench.measure.entry import RunEntry, one_line
from nlp_bench.measure.throughput import REPORT_TOKENS, time_to_report_s
from nlp_bench.outcome import Outcome

DIALECT = "reference-table"
COLUMNS = (
    "system",
    "job_id",
    "job_time",
    "model_size_billion",
    "nodes",
    "num_gpus",
    "global_batch_size",
    "sequence_length",
    "pipeline_parallel",
    "tensor_parallel",
    "iterations",
    "avg_tflops_per_gpu",
    "tokens_per_second",
    "time_to_report_in_seconds",
    "source",
)
"""The header of a reference table; counts are whole numbers, an unknown value is an empty cell."""


def is_reference_table(path: Path) -> bool:
    """Say whether `path` is a CSV with exactly the header of a reference table."""
    if path.suffix != ".csv":
        return False
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as stream:
            return stream.readline(1000).strip() == ",".join(COLUMNS)
    except OSError:
        return False


def read_reference_table(path: Path) -> list[RunEntry]:
    """Return one entry per row; a row whose time is not 20 million tokens / its rate says so in its reasons.

    Raises UsageError naming file, line, column and value for a cell that is no number above 0.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        return [_entry(path, line, row) for line, row in enumerate(csv.DictReader(stream), start=2)]


def _entry(path: Path, line: int, row: dict[str, str]) -> RunEntry:
    rate = _number(path, line, row, "tokens_per_second")
    published_s = _number(path, line, row, "time_to_report_in_seconds")
    time_s = time_to_report_s(REPORT_TOKENS, rate)
    reasons = ["published value, raw log not available"] if rate else ["no published tokens per second"]
    if time_s and published_s and abs(time_s - published_s) > 0.005 + 1e-9:
        reasons.append(f"published time {published_s:.2f} s, recomputed {time_s:.2f} s")
    size, nodes = _count(path, line, row, "model_size_billion"), _count(path, line, row, "nodes")
    name = f"{row.get('system') or path.parent.name} {size}B {nodes} nodes"
    return RunEntry(
        source=one_line(name),
        dialect=DIALECT,
        outcome=Outcome.VALID if rate else Outcome.REFUSED,
        reasons=tuple(reasons),
        remarks=(f"source: {one_line(row.get('source') or path.name)}",),
        total_iterations=_count(path, line, row, "iterations"),
        global_batch_size=_count(path, line, row, "global_batch_size"),
        sequence_length=_count(path, line, row, "sequence_length"),
        num_gpus=_count(path, line, row, "num_gpus"),
        model=f"{size}B" if size else None,
        published_tokens_per_second=rate,
    )


def _number(path: Path, line: int, row: dict[str, str], column: str) -> float | None:
    text = (row.get(column) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{path} line {line}: {column} is {text!r}, expected a number above 0, or an empty cell")
    return value


def _count(path: Path, line: int, row: dict[str, str], column: str) -> int | None:
    value = _number(path, line, row, column)
    return None if value is None else int(value)
