"""Tables of metrics: CSV, TSV, JSON, JSON lines, OTLP JSON and TensorBoard's event files.

A table is what a program or a service writes next to its log, one column per metric. Each known
column is a quantity of `record.ROW`; the records then go the road of any log.
"""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nlp_bench.immutable import immutable
from nlp_bench.logs.clean import stamp_s
from nlp_bench.logs.dialect import PAIRS, REINFORCED, Dialect, Findings
from nlp_bench.logs.progress_bar import COARSE_S
from nlp_bench.logs.quantity import in_unit, quantity_of
from nlp_bench.logs.record import Fact, Log
from nlp_bench.logs.scan import Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_NAMES: dict[str, str] = {
    "iteration": "iteration iter train_iteration iterations global_step train_global_step"
    " trainer_global_step current_steps train_step training_step optimizer_step num_steps steps"
    " step update num_updates",
    "total_iterations": "max_steps total_steps train_iters total_iterations",
    "elapsed_ms": "elapsed_time_per_iteration_ms step_duration_ms step_time_ms iteration_time_ms"
    " iter_time_ms time_per_step_ms time_per_iteration_ms batch_time_ms dt_ms elapsed_ms",
    "elapsed_s": "elapsed_time_per_iteration_s step_time_s step_time_sec step_time_seconds"
    " step_duration_s iteration_time_s time_per_step_s time_per_iteration_s seconds_per_step"
    " seconds_per_iteration sec_per_step sec_per_iter s_per_it s_it time_s train_time_s"
    " train_step_timing_in_s elapsed_s",
    "elapsed_s?": "step_time iteration_time iter_time time_per_step time_per_iteration"
    " elapsed_time_per_iteration train_step_time step_duration batch_time train_step_timing",
    "iterations_per_second": "iterations_per_second iter_per_second iter_per_sec steps_per_second"
    " steps_per_sec batches_per_second batches_per_sec it_s it_per_sec it_per_s",
    "tokens_per_second_per_device": "tokens_per_second_per_device tokens_per_second_per_gpu"
    " tokens_per_sec_per_gpu tokens_per_sec_per_device tokens_per_gpu_per_second tokens_s_gpu"
    " tokens_per_gpu_per_sec tok_s_gpu tokens_sec_gpu tgs device_tokens_per_sec"
    " device_tokens_per_second throughput_tps tps_per_gpu train_per_sec_per_gpu",
    "tokens_per_second": "total_tokens_per_second total_tokens_per_sec global_tokens_per_second"
    " global_tokens_per_sec world_tokens_per_second",
    "tokens_per_second?": "tokens_per_second tokens_per_sec tokens_sec tokens_s tok_s tok_sec tok_per_sec tps",
    "samples_per_second_per_device": "device_samples_per_sec samples_per_second_per_gpu samples_per_sec_per_gpu",
    "samples_per_second": "samples_per_second samples_per_sec",
    "tokens": "global_tokens tokens_per_step tokens_per_iteration tokens_per_batch train_batch_tokens",
    "consumed_tokens": "consumed_tokens consumed_train_tokens num_input_tokens_seen tokens_seen"
    " tokens_consumed num_tokens total_tokens n_tokens_seen num_tokens_seen n_tokens",
    "consumed_samples": "consumed_samples consumed_train_samples samples_seen train_samples_seen",
    "global_batch_size": "global_batch_size train_batch_size gbs",
    "sequence_length": "sequence_length seq_length seq_len max_seq_len max_seq_length",
    "num_devices": "num_gpus num_devices world_size n_gpus",
    "clock_s": "runtime train_runtime relative_time_process time_since_start wall_clock_s"
    " elapsed_time_s total_time_s clock_s",
    "stamp_s": "timestamp wall_time datetime created_at time",
    "lm_loss": "lm_loss train_loss loss reduced_train_loss train_loss_step training_loss",
    "learning_rate": "learning_rate lr",
    "grad_norm": "grad_norm gradient_norm",
    "model_tflops": "throughput_tflops tflops_per_gpu tflops_per_device model_tflops",
}
"""Quantity (of `pattern.QUANTITIES`) to the names of its columns, best first.

A `?` marks names that leave out the unit of a time, or whether a rate is of one device or of all.
Sources: NVIDIA/Megatron-LM megatron/core/telemetry/training_metrics.py, huggingface/transformers
src/transformers/trainer.py, mosaicml/composer composer/callbacks/speed_monitor.py,
pytorch/torchtitan torchtitan/components/metrics.py, verl-project/verl verl/trainer/sft_trainer.py,
NVIDIA/NeMo nemo/utils/exp_manager.py, wandb's `_step`, `_runtime`, `_timestamp`.
"""
COLUMNS = {name: quantity for quantity, names in _NAMES.items() for name in names.split()}
_RANK = {name: rank for rank, name in enumerate(COLUMNS)}
_TIMES = {"elapsed_s", "clock_s", "stamp_s"}
_SIZES = {"tokens", "consumed_tokens"}
_UNSAID = {
    "elapsed_s": "in which unit it is: it is taken as seconds",
    "tokens_per_second": "whether it is of one device or of all: it is taken as of all",
}
_ASIDE = re.compile(r"(?:^|[/._ -])(?:e?val|eval\w+|valid|validation|test)(?=[/._ -]|$)|__M(?:IN|AX)$")
_REINFORCED = re.compile(
    r"(?:^|/)(?:actor|critic|rollout|rewards?|response_length|completions?|generation)/(?!chosen|rejected"
    r"|accuracies|margins)|timing_s/gen$|(?:^|/)(?:reward|mean_gen_tokens_per_sample)$"
)
_CELL = re.compile(r"[A-Za-z_][^\n\"{}=]{0,200}")
_MOST_BYTES = 1 << 28  # of a table, which is read as a whole
_NUMBER = r"[-+.\deE]+"
_NO_TRAINING = (
    "a table of metrics, and no column is known by which its speed can be computed: a step, and a "
    "time, a rate or a count of tokens; its columns are {columns}; rename them (step,"
    " step_time_ms, tokens_per_sec, consumed_tokens, ...), or name them in its lines: --pattern '{pattern}'"
)
TABLE = Dialect(
    name="table",
    title="tables of metrics: CSV, TSV, JSON, JSON lines, OTLP JSON, TensorBoard",
    source="the command line",
    trap="a rate may be of one device, a time in any unit: what a name leaves out is checked or doubted",
    believes_settings=True,
)


class Row(NamedTuple):
    """One row: its line, counted from 1, the offset of its first byte, and its cells by column."""

    number: int
    offset: int
    cells: dict[str, Any]


@immutable
class Vocabulary:
    """Which columns of a table are which quantities."""

    columns: dict[str, str]  # column to its name in COLUMNS, the best one for each quantity
    twice: tuple[str, ...] = ()  # columns of several runs for one quantity

    @classmethod
    def of(cls, names: Iterable[str]) -> Vocabulary:
        """Return the known ones of columns as a program or a service names them."""
        best: dict[str, tuple[int, str, str]] = {}
        twice: list[str] = []
        for column in names:
            if (known := _known(column)) is None:
                continue
            quantity = quantity_of(COLUMNS[known].rstrip("?"))[0]
            rank, other = _RANK[known], best.get(quantity)
            if other and rank == other[0] and " - " in column:
                twice += [other[1], column]
            if other is None or rank < other[0]:
                best[quantity] = rank, column, known
        return cls(columns={column: known for _, column, known in best.values()}, twice=tuple(twice))

    def values(self, cells: dict[str, Any]) -> dict[str, float]:
        """Return the quantities of a row in their units; what is no number is left out."""
        values: dict[str, float] = {}
        for column, known in self.columns.items():
            value = _value(cells.get(column), is_stamp=COLUMNS[known] == "stamp_s")
            if value is None or (math.isnan(value) and COLUMNS[known] != "lm_loss"):
                continue
            quantity, value = in_unit(COLUMNS[known].rstrip("?"), value)
            values[quantity] = value
        return values


def _known(column: str) -> str | None:
    """Return the name in COLUMNS of a column, with all or only the last parts of its path."""
    path = column.rpartition(" - ")[2]  # of W&B's charts: RUN - METRIC
    if _ASIDE.search(path):
        return None
    parts = re.split(r"[/.|]", path.lower())
    names = (re.sub(r"\W+|_+", "_", "_".join(parts[n:])).strip("_") for n in range(len(parts)))
    return next((name for name in names if name in COLUMNS), None)


def _value(cell: Any, *, is_stamp: bool = False) -> float | None:
    if isinstance(cell, bool) or cell is None:
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        text = str(cell).replace("T", " ").encode()
        return stamp_s(text) if is_stamp else None


def reinforced(columns: Iterable[str]) -> bool:
    """Say whether the columns are those of a reinforcement learning."""
    return any(_REINFORCED.search(column) for column in columns)


class Text:
    """Collects the text of a log that begins like a table; to be read where no dialect reads it."""

    def __init__(self, head: bytes) -> None:
        self._parts: list[bytes] = []
        self.num_bytes = 0
        self.is_json = head.lstrip()[:1] in {b"{", b"["}
        self.separator = "" if self.is_json else _separator(head)
        self.is_table = self.is_json or bool(self.separator)

    def take(self, data: memoryview) -> None:
        """Add the bytes of a block."""
        self.num_bytes += len(data)
        if self.is_table and self.num_bytes <= _MOST_BYTES:
            self._parts.append(bytes(data))

    def log(self, damage: str | None) -> Log | None:
        """Return the log of the table; None for a text that is none."""
        if not self.is_table or self.num_bytes > _MOST_BYTES:
            return None
        data = b"".join(self._parts)
        try:
            rows = list(_json_rows(data) if self.is_json else _separated(data, self.separator))
        except (csv.Error, ValueError, TypeError, AttributeError, RecursionError):
            return None  # it only begins like a table
        return log_of(rows, self.num_bytes, damage, self.separator)


def _separator(head: bytes) -> str:
    """Return what separates the columns of a header with a row below it, "" where there is none."""
    lines = head.decode(errors="replace").removeprefix("\ufeff").splitlines()[:2]
    for mark in "\t,;":
        try:
            names, *below = csv.reader(lines or [""], delimiter=mark)
        except csv.Error:  # a NUL
            return ""
        is_header = len(names) > 1 and all(_CELL.fullmatch(name.strip()) for name in names)
        if is_header and any(len(names) == len(row) and _has_number(row) for row in below):
            return mark
    return ""


def _has_number(row: Sequence[str]) -> bool:
    return any(_value(cell) is not None for cell in row)


def _separated(data: bytes, mark: str) -> Iterator[Row]:
    places = [(0, 0)]

    def lines() -> Iterator[str]:
        offset = 0
        for number, line in enumerate(data.split(b"\n"), 1):
            places[0] = number, offset
            offset += len(line) + 1
            yield line.decode(errors="replace")

    rows = csv.reader(lines(), delimiter=mark)
    header = [name.strip().removeprefix("\ufeff").strip('"') for name in next(rows)]
    for cells in rows:
        if len(cells) == len(header):
            yield Row(*places[0], dict(zip(header, cells, strict=True)))


def _json_rows(data: bytes) -> Iterator[Row]:
    """Yield the rows of one JSON value, or of one on each line."""
    try:
        yield from (Row(n, 0, cells) for n, cells in enumerate(_objects(json.loads(data)), 1))
    except ValueError:
        yield from _json_lines(data)


def _json_lines(data: bytes) -> Iterator[Row]:
    offset, exported = 0, []
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            value = json.loads(line.strip().rstrip(b","))
        except ValueError:
            value = None
        if isinstance(value, dict) and "resourceMetrics" in value:
            exported.append(value)
        elif value is not None:
            yield from (Row(number, offset, cells) for cells in _objects(value))
        offset += len(line) + 1
    yield from (Row(n, 0, cells) for n, cells in enumerate(_exported(exported), 1))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows in a value of JSON: an array, `log_history`, exported metrics, or one row."""
    if isinstance(value, list):
        if any(isinstance(each, dict) and "resourceMetrics" in each for each in value):
            yield from _exported(value)
        else:
            yield from (_flat(each) for each in value if isinstance(each, dict))
    elif isinstance(value, dict) and isinstance(value.get("log_history"), list):
        yield from _objects(value["log_history"])
    elif isinstance(value, dict) and "resourceMetrics" in value:
        yield from _exported([value])
    elif isinstance(value, dict):
        yield _flat(value)


def _flat(value: dict[str, Any], path: str = "") -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, cell in value.items():
        cells |= _flat(cell, f"{path}{name}/") if isinstance(cell, dict) else {path + name: cell}
    return cells


def _exported(values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each moment of OTLP's metrics.

    A histogram is the mean of what was recorded since the moment before; a sum that is not of one
    moment is left as it is. Source: open-telemetry/opentelemetry-proto metrics/v1/metrics.proto.
    """
    rows: dict[float, dict[str, Any]] = {}
    before: dict[str, tuple[float, float]] = {}
    for metric in (m for value in values if isinstance(value, dict) for m in _metrics(value)):
        name, kind = str(metric.get("name")), next((k for k in _KINDS if k in metric), "")
        is_total = metric.get(kind, {}).get("aggregationTemporality") == 2  # cumulative
        for point in metric.get(kind, {}).get("dataPoints", ()):
            time_s = float(point.get("timeUnixNano", 0)) / 1e9
            row = rows.setdefault(time_s, {"timestamp": time_s, **_attributes(point)})
            if kind == "histogram":
                now = float(point.get("sum", 0)), float(point.get("count", 0))
                last = before.get(name, (0.0, 0.0)) if is_total else (0.0, 0.0)
                before[name] = now
                if now[1] > last[1]:
                    row[name] = (now[0] - last[0]) / (now[1] - last[1])
                    if is_total:
                        row.setdefault("num_steps", now[1])
            else:
                row[name] = point.get("asDouble", point.get("asInt"))
    yield from (rows[time_s] for time_s in sorted(rows))


_KINDS = ("gauge", "sum", "histogram")


def _metrics(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in value.get("resourceMetrics", ()):
        for scope in resource.get("scopeMetrics", ()):
            yield from scope.get("metrics", ())


def _attributes(point: dict[str, Any]) -> dict[str, Any]:
    found = point.get("attributes", ())
    return {str(each.get("key")): next(iter(each.get("value", {}).values()), None) for each in found}


_EVENTS = re.compile(rb"(?s:.{12})\x09(?s:.{8})\x1a.brain\.E")


def _head(path: str) -> bytes:
    with Path(path).open("rb") as stream:
        return stream.read(64)


def is_event_file(path: str) -> bool:
    """Say whether a file begins as TensorBoard's event files do."""
    try:
        return Path(path).is_file() and bool(_EVENTS.match(_head(path)))
    except (OSError, ValueError):
        return False


def event_log(path: str) -> Log:
    """Return the log of an event file. Raises ImportError where tensorboard is not installed."""
    from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415  # an extra
        EventAccumulator,
    )

    events: Any = EventAccumulator(path, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    rows: dict[int, dict[str, Any]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            row = rows.setdefault(event.step, {"step": event.step, "wall_time": event.wall_time})
            row[tag] = event.value
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag):
            if event.tensor_proto.float_val:
                row = rows.setdefault(event.step, {"step": event.step, "wall_time": event.wall_time})
                row[tag] = event.tensor_proto.float_val[0]
    if not rows:
        text = "an event file of TensorBoard without a scalar that can be read; give the log itself"
        return Log(dialect=None, attempts=(), num_bytes=Path(path).stat().st_size, table=text)
    numbered = [Row(n, 0, rows[step]) for n, step in enumerate(sorted(rows), 1)]
    return log_of(numbered, Path(path).stat().st_size, None)


def log_of(rows: Sequence[Row], num_bytes: int, damage: str | None, separator: str = "") -> Log:
    """Return the log of a table; without a known column it has no record, and `Log.table` lists them."""
    columns = list(dict.fromkeys(name for row in rows for name in row.cells))
    vocabulary, findings = Vocabulary.of(columns), Findings(TABLE)
    known = {quantity_of(COLUMNS[name].rstrip("?"))[0] for name in vocabulary.columns.values()}
    if reinforced(columns) and "iteration" in known:
        findings.refuse(REINFORCED)
    elif vocabulary.twice:
        findings.refuse(
            f"the table has columns of several runs ({', '.join(vocabulary.twice[:4])}): export each run on its own"
        )
    elif not _is_measurable(known):
        pattern = _proposed(rows, columns, separator)
        text = _NO_TRAINING.format(columns=", ".join(columns[:40]), pattern=pattern) if pattern else ""
        return Log(dialect=None, attempts=(), num_bytes=num_bytes, damage=damage, table=text)
    else:
        if any("rewards/chosen" in column for column in columns):
            findings.doubt(PAIRS)
        _doubt(vocabulary, known, findings)
        _take(_merged(rows, vocabulary), findings)
    return findings.result(num_bytes=num_bytes, damage=damage, common=dict[str, Fact]())


def _is_measurable(known: set[str]) -> bool:
    rates = known & {
        "elapsed_s", "tokens_per_second", "tokens_per_second_per_device", "samples_per_second",
        "samples_per_second_per_device",
    }  # fmt: skip
    return bool(rates) or ("iteration" in known and bool(known & _TIMES) and bool(known & _SIZES))


def _doubt(vocabulary: Vocabulary, known: set[str], findings: Findings) -> None:
    """Doubt a time without a unit and a rate without its scope, unless other columns check them."""
    for column, name in vocabulary.columns.items():
        quantity = COLUMNS[name].rstrip("?")
        if not COLUMNS[name].endswith("?"):
            continue
        times, has_size = bool(known & _TIMES - {quantity}), bool(known & _SIZES)
        if quantity == "elapsed_s":
            is_checked = times or (has_size and "tokens_per_second" in known)
        else:
            is_checked = (times and has_size) or "tokens_per_second_per_device" in known
        if not is_checked:
            findings.doubt(
                f"the column {column} does not say {_UNSAID[quantity]}, and no other column checks "
                "it, so that it proves nothing"
            )


def _merged(rows: Iterable[Row], vocabulary: Vocabulary) -> list[tuple[Row, dict[str, float]]]:
    """Return the quantities of each step: services write one row for each metric of it."""
    merged: list[tuple[Row, dict[str, float]]] = []
    for row in rows:
        values = vocabulary.values(row.cells)
        step = values.get("iteration")
        if merged and step is not None and merged[-1][1].get("iteration") == step:
            merged[-1] = merged[-1][0], values | merged[-1][1]
        elif values.keys() - {"iteration", "stamp_s"}:
            merged.append((row, values))
    return merged


def _take(merged: list[tuple[Row, dict[str, float]]], findings: Findings) -> None:
    has_times = any({"elapsed_s", "clock_s"} & values.keys() for _, values in merged)
    for _, values in merged:
        if not has_times and "stamp_s" in values:
            values["clock_s"] = values["stamp_s"]
    clocks = [values["clock_s"] for _, values in merged if "clock_s" in values]
    is_coarse = bool(clocks) and all(clock == int(clock) for clock in clocks)
    last = -math.inf
    for row, values in merged:
        if "clock_s" in values and "elapsed_s" not in values:
            if is_coarse and last <= values["clock_s"] < last + COARSE_S:
                continue
            last = values["clock_s"]
            values["clock_s"] -= clocks[0] if not has_times else 0.0
        findings.record(Line(row.number, row.offset, b"", True, lambda _: []), values)


def _proposed(rows: Sequence[Row], columns: Sequence[str], separator: str) -> str:
    """Return a --pattern with the columns that look like a step and a time, "" without two."""
    numbers = {c: _numbers(rows, c) for c in columns}
    full = [c for c in columns if len(rows) > 1 and len(numbers[c]) == len(rows)]
    steps = [c for c in full if (np.diff(numbers[c]) > 0).all() and (numbers[c] % 1 == 0).all()]
    others = [c for c in full if c not in steps[:1]]
    timed = [c for c in others if re.search(r"tok|sec|time|ms|speed|dur|/s|rate", c.lower())]
    if not steps or not others:
        return ""
    step, time = steps[0], (timed or others)[0]
    group = "tokens_per_second" if "tok" in time.lower() else "elapsed_s"
    group = "elapsed_ms" if time.lower().endswith("ms") else group
    places = sorted((list(columns).index(c), c, n) for c, n in ((step, "iteration"), (time, group)))
    if not separator:
        return ".*?".join(rf'"{re.escape(c)}":\s*(?P<{n}>{_NUMBER})' for _, c, n in places)
    mark, at, text = separator.replace("\t", r"\t"), 0, "^"
    for place, _, name in places:
        text += rf"(?:[^{mark}]*{mark}){{{place - at}}}" if place > at else ""
        text += rf"(?P<{name}>{_NUMBER}){mark}" if place < len(columns) - 1 else rf"(?P<{name}>{_NUMBER})"
        at = place + 1
    return text


def _numbers(rows: Sequence[Row], column: str) -> Any:
    found = (_value(row.cells.get(column)) for row in rows)
    return np.array([value for value in found if value is not None])
