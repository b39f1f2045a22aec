"""Tables of published results (CSV), whose times are recomputed, not copied."""

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path

from nlp_bench.errors import UsageError, nearest
from nlp_bench.escape import one_line
from nlp_bench.files import opened
from nlp_bench.immutable import immutable
from nlp_bench.measure import REPORT_TOKENS
from nlp_bench.measure.result import Published, RunResult
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import Setting, Workload
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason

DIALECT = "reference-table"
COLUMNS = (
    "system", "job_id", "job_time", "model_size_billion", "nodes", "num_gpus", "global_batch_size", "sequence_length",
    "pipeline_parallel", "tensor_parallel", "iterations", "avg_tflops_per_gpu", "tokens_per_second", "time_to_report_in_seconds", "source",
)  # fmt: skip
"""First columns of a reference table; counts are integers, an unknown value is an empty cell."""
MORE_COLUMNS = (
    "model", "gpu", "log_interval", "published_perfect_linear_tokens_per_second", "published_speed_up", "stated_speed_up", "train_tokens",
    "published_train_days", "stated_train_days", "final_loss",
)  # fmt: skip
"""Columns that may follow: `published_` is from the publication's table, `stated_` from its text, both to be checked."""
_MOST_TITLE_LINES = 5
"""Lines in which the header is looked for: lines that a spreadsheet put above it are an error that names them, not a file without a log."""
_WORKLOAD = {
    "nodes": "nodes",
    "world_size": "num_gpus",
    "global_batch_size": "global_batch_size",
    "seq_length": "sequence_length",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "tensor_model_parallel_size": "tensor_parallel",
}


def is_reference_table(path: Path, *, is_named: bool = False) -> bool:
    """Whether `path` is a CSV whose header begins as that of a reference table.

    With `is_named` also one in which a spreadsheet has put other separators between the columns, or lines above them: `read_reference_table` then
    says which.
    """
    if path.suffix != ".csv":
        return False
    try:
        with io.TextIOWrapper(opened(path), encoding="utf-8-sig", errors="replace") as stream:
            heads = [stream.readline(2000).strip() for _ in range(_MOST_TITLE_LINES if is_named else 1)]
    except OSError:
        return False
    heads = [re.sub("[;\t]", ",", head).lower() for head in heads] if is_named else heads
    return any(f"{head},".startswith(",".join(COLUMNS) + ",") for head in heads)


def read_reference_table(path: Path) -> list[RunResult]:
    """Return one entry per row, with a reason where its time is not 20 million tokens / its rate. Raises UsageError naming file, line, column and value."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        reader = csv.DictReader(stream, restkey="")
        if tuple(reader.fieldnames or ())[: len(COLUMNS)] != COLUMNS:
            raise UsageError(
                f"{path} line 1: it is not the header of a reference table as it has to be: {','.join(COLUMNS[:2])},...; a spreadsheet that saved "
                "the table is to leave no line above it, commas between the cells and a point in the numbers"
            )
        for name in (reader.fieldnames or ())[len(COLUMNS) :]:
            if name not in MORE_COLUMNS:
                raise UsageError(f"{path} line 1: unknown column {name!r}{nearest(name, list(MORE_COLUMNS))}")
        rows = [_Row(path=path, line=reader.line_num, cells=cells) for cells in reader]
    for row in rows:
        if row.cells.get(""):
            raise UsageError(
                f"{path} line {row.line}: it has more cells than the header; write each number without a comma"
            )
    return [_entry(row) for row in rows if any(row.cells.values())]


@immutable
class _Row:
    path: Path
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str | None:
        return one_line(self.cells.get(column) or "") or None

    def digits(self, column: str) -> str | None:
        """Return the text of a number, with its digits as printed."""
        return self.text(column) if self.number(column) else None

    def number(self, column: str) -> float | None:
        text = self.text(column)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < float("inf"):
            raise self.error(column, "a number above 0")
        return value

    def count(self, column: str) -> int | None:
        value = self.number(column)
        if value is not None and not value.is_integer():
            raise self.error(column, "a whole number")
        return None if value is None else int(value)

    def error(self, column: str, expected: str) -> UsageError:
        place = f"{self.path} line {self.line}"
        return UsageError(f"{place}: {column} is {self.text(column)!r}, expected {expected}, or an empty cell")


def _entry(row: _Row) -> RunResult:
    rate = row.number("tokens_per_second")
    published_s = row.number("time_to_report_in_seconds")
    time_s = time_to_report_s(REPORT_TOKENS, rate)
    words = "published value, raw log not available" if rate else "no published tokens per second"
    reasons = [Reason("published", words)]
    if time_s and published_s and abs(time_s - published_s) > 0.005 + 1e-9:
        text = f"published time {published_s:.2f} s, recomputed {time_s:.2f} s"
        reasons.append(Reason("published-otherwise", text))
    size, nodes = row.number("model_size_billion"), row.count("nodes")
    model = row.text("model") or (f"{size:g}B" if size else None)
    name = f"{row.text('system') or row.path.parent.name} {model or 'unknown model'} {nodes or 'unknown'} nodes"
    source = row.text("source") or row.path.name
    return RunResult(
        source=one_line(name),
        dialect=DIALECT,
        outcome=Outcome.MEASURED if rate else Outcome.REFUSED,  # nothing shows how the run ended
        reasons=tuple(reasons),
        remarks=(f"source: {one_line(source)}",),
        total_iterations=row.count("iterations"),
        global_batch_size=row.count("global_batch_size"),
        sequence_length=row.count("sequence_length"),
        num_gpus=row.count("num_gpus"),
        model=model,
        published_tokens_per_second=rate,
        workload=_workload(row, model),
        published=_published(row, one_line(source)),
    )


def _workload(row: _Row, model: str | None) -> Workload:
    found = {name: row.count(column) for name, column in _WORKLOAD.items()}
    words = {"model": model, "system": row.text("system"), "gpu": row.text("gpu")}
    source = f"published table {one_line(row.path.name)} line {row.line}"
    asked = {name: Setting(value, source) for name, value in {**words, **found}.items() if value}
    return Workload(asked=asked, is_published=True)


def _published(row: _Row, source: str) -> Published:
    return Published(
        table=one_line(row.path),
        line=row.line,
        source=source,
        iterations=row.count("iterations"),
        log_interval=row.count("log_interval"),
        perfect_linear=row.digits("published_perfect_linear_tokens_per_second"),
        speed_up=row.digits("published_speed_up"),
        stated_speed_up=row.digits("stated_speed_up"),
        train_tokens=row.count("train_tokens"),
        train_days=row.digits("published_train_days"),
        stated_train_days=row.digits("stated_train_days"),
    )
