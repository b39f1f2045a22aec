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

from nlp_bench.immutable import immutable
from nlp_bench.logs.clean import stamp_s
from nlp_bench.logs.dialect import PAIRS, REINFORCED, Dialect, Findings
from nlp_bench.logs.progress_bar import COARSE_S
from nlp_bench.logs.quantity import RATES, in_unit, quantity_of
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
_JSON = re.compile(r"[\s,]*")
_MOST_BYTES = 1 << 28  # of a table, which is read as a whole
_NO_TRAINING = (
    "a table of metrics, and no column is known by which its speed can be computed: a step, and a "
    "time, a rate or a count of tokens; its columns are {columns}; rename them (step, step_time_ms,"
    " tokens_per_sec, consumed_tokens, ...), or name them in its lines by --pattern"
)
TABLE = Dialect(
    name="table",
    title="tables of metrics: CSV, TSV, JSON, JSON lines, OTLP JSON, TensorBoard",
    source="the command line",
    trap="a rate may be of one device, a time in any unit: what a name leaves out is checked or doubted",
    believes_settings=True,
)


class Row(NamedTuple):
    """One row: its line or its place, counted from 1, and its cells by column."""

    number: int
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
            if known := _known(column):
                rank = _RANK[known], column, known
                other = best.setdefault(_quantity(known), rank)
                if other[0] == rank[0] and other is not rank and " - " in column:
                    twice += [other[1], column]
                best[_quantity(known)] = min(other, rank, key=lambda each: each[0])
        return cls(columns={column: known for _, column, known in best.values()}, twice=tuple(twice))

    @property
    def quantities(self) -> set[str]:
        """Return what is known of a row."""
        return {_quantity(name) for name in self.columns.values()}

    def values(self, cells: dict[str, Any]) -> dict[str, float]:
        """Return the quantities of a row in their units; what is no number is left out."""
        values: dict[str, float] = {}
        for column, known in self.columns.items():
            name = COLUMNS[known].rstrip("?")
            value = _value(cells.get(column), is_stamp=name == "stamp_s")
            if value is not None and (name == "lm_loss" or not math.isnan(value)):
                values |= [in_unit(name, value)]
        return values


def _quantity(known: str) -> str:
    return quantity_of(COLUMNS[known].rstrip("?"))[0]


def _known(column: str) -> str | None:
    """Return the name in COLUMNS of a column, with all or only the last parts of its path."""
    path = column.rpartition(" - ")[2]  # of W&B's charts: RUN - METRIC
    if _ASIDE.search(path):
        return None
    parts = re.split(r"[/.|]", path.lower())
    names = (re.sub(r"\W+|_+", "_", "_".join(parts[n:])).strip("_") for n in range(len(parts)))
    return next((name for name in names if name in COLUMNS), None)


def _value(cell: Any, *, is_stamp: bool = False) -> float | None:
    try:
        return None if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError):
        return stamp_s(str(cell).replace("T", " ").encode()) if is_stamp else None


class Text:
    """Collects the text of a log that begins like a table; to be read where no dialect reads it."""

    def __init__(self, head: bytes) -> None:
        self._parts: list[bytes] = []
        self.num_bytes = 0
        is_json = head.lstrip()[:1] in {b"{", b"["}
        self._separator = "" if is_json else _separator(head)
        self._is_table = is_json or bool(self._separator)

    def take(self, data: memoryview, *, is_wanted: bool) -> None:
        """Add the bytes of a block; keep none where a dialect reads the log."""
        self.num_bytes += len(data)
        self._is_table &= is_wanted and self.num_bytes <= _MOST_BYTES
        if self._is_table:
            self._parts.append(bytes(data))
        else:
            self._parts.clear()

    def log(self, damage: str | None) -> Log | None:
        """Return the log of the table; None for a text that is none."""
        text = b"".join(self._parts).decode(errors="replace").removeprefix("\ufeff")
        try:
            rows = list(_separated(text, self._separator) if self._separator else _json_rows(text))
        except (csv.Error, ValueError, TypeError, AttributeError, RecursionError):
            return None  # it only begins like a table
        return log_of(rows, self.num_bytes, damage) if self._is_table else None


def _separator(head: bytes) -> str:
    """Return what separates the columns of a header with a row below it, "" where there is none."""
    lines = head.decode(errors="replace").removeprefix("\ufeff").splitlines()[:2]
    for mark in "\t,;":
        try:
            names, *below = csv.reader(lines or [""], delimiter=mark)
        except csv.Error:  # a NUL
            return ""
        is_header = len(names) > 1 and all(_CELL.fullmatch(name.strip()) for name in names)
        if is_header and any(len(names) == len(row) and any(map(_value, row)) for row in below):
            return mark
    return ""


def _separated(text: str, mark: str) -> Iterator[Row]:
    rows = csv.DictReader(text.splitlines(), delimiter=mark)
    for row in rows:
        if None not in row and None not in row.values():
            yield Row(rows.line_num, {name.strip(): cell for name, cell in row.items()})


def _json_rows(text: str) -> Iterator[Row]:
    """Yield the rows of values of JSON one behind the other: on a line each, indented, or one for all."""
    at, number, exported, decoder = 0, 1, [], json.JSONDecoder()
    while (begin := _JSON.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        number += text.count("\n", at, begin)
        try:
            value, at = decoder.raw_decode(text, begin)
        except ValueError:
            at = text.find("\n", begin) % (len(text) + 1)
            continue
        objects = _objects(value)
        exported += [each for each in objects if "resourceMetrics" in each]
        yield from (Row(number, _flat(each)) for each in objects if "resourceMetrics" not in each)
        number += text.count("\n", begin, at)
    yield from (Row(n, cells) for n, cells in enumerate(_exported(exported), number))


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a value of JSON: of an array, of `log_history`, or one."""
    value = value.get("log_history", value) if isinstance(value, dict) else value
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


def _flat(value: dict[str, Any], path: str = "") -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, cell in value.items():
        cells |= _flat(cell, f"{path}{name}/") if isinstance(cell, dict) else {path + name: cell}
    return cells


def _exported(values: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each moment of OTLP's metrics.

    A histogram is the mean of what was recorded since the moment before; a sum that is not of one
    moment is left as it is. Source: open-telemetry/opentelemetry-proto metrics/v1/metrics.proto.
    """
    rows: dict[float, dict[str, Any]] = {}
    before: dict[str, tuple[float, float]] = {}
    scopes = (s for v in values for r in v["resourceMetrics"] for s in r.get("scopeMetrics", ()))
    for metric in (metric for scope in scopes for metric in scope.get("metrics", ())):
        name = str(metric.get("name"))
        data: dict[str, Any] = next((metric[k] for k in ("gauge", "sum", "histogram") if k in metric), {})
        is_total = data.get("aggregationTemporality") == 2  # cumulative
        for point in data.get("dataPoints", ()):
            time_s = float(point.get("timeUnixNano", 0)) / 1e9
            row = rows.setdefault(time_s, {"timestamp": time_s})
            for attribute in point.get("attributes", ()):
                row.setdefault(str(attribute.get("key")), *list(attribute.get("value", {}).values())[:1])
            if "histogram" not in metric:
                row[name] = point.get("asDouble", point.get("asInt"))
                continue
            total, count = float(point.get("sum", 0)), float(point.get("count", 0))
            last = before.get(name, (0.0, 0.0)) if is_total else (0.0, 0.0)
            before[name] = total, count
            if count > last[1]:
                row[name] = (total - last[0]) / (count - last[1])
                if is_total:
                    row.setdefault("num_steps", count)
    yield from (rows[time_s] for time_s in sorted(rows))


_EVENTS = re.compile(rb"(?s:.{12})\x09(?s:.{8})\x1a.brain\.E")


def is_event_file(head: memoryview) -> bool:
    """Say whether a file begins as TensorBoard's event files do."""
    return _EVENTS.match(head) is not None


def event_log(path: str) -> Log:
    """Return the log of an event file, which says so where tensorboard is not installed."""
    num_bytes, rows = Path(path).stat().st_size, dict[int, dict[str, Any]]()
    why = "without a scalar that can be read; give the log itself"
    try:
        from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415  # an extra
            EventAccumulator,
        )
    except ImportError:
        why = "needs the Python package tensorboard: pip install 'nlp-bench[tables]'"
    else:
        events: Any = EventAccumulator(path, size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        for tag in (tags := events.Tags())["scalars"]:
            for event in events.Scalars(tag):
                rows.setdefault(event.step, {"wall_time": event.wall_time})[tag] = event.value
        for tag in tags["tensors"]:
            for event in events.Tensors(tag):
                if value := event.tensor_proto.float_val:
                    rows.setdefault(event.step, {"wall_time": event.wall_time})[tag] = value[0]
    if not rows:
        text = f"an event file of TensorBoard {why}"
        return Log(dialect=None, attempts=(), num_bytes=num_bytes, table=text)
    return log_of([Row(n, {**rows[step], "step": step}) for n, step in enumerate(sorted(rows), 1)], num_bytes, None)


def log_of(rows: Sequence[Row], num_bytes: int, damage: str | None) -> Log:
    """Return the log of a table; without a known column it has no record, and `Log.table` lists them."""
    columns = list(dict.fromkeys(name for row in rows for name in row.cells))
    vocabulary, findings = Vocabulary.of(columns), Findings(TABLE)
    known = vocabulary.quantities
    is_timed = {"iteration"} < known and known & _TIMES and known & _SIZES
    if "iteration" in known and any(map(_REINFORCED.search, columns)):
        findings.refuse(REINFORCED)
    elif vocabulary.twice:
        several = ", ".join(vocabulary.twice[:4])
        findings.refuse(f"the table has columns of several runs ({several}): export each run on its own")
    elif not (known & {*RATES} or is_timed):
        text = _NO_TRAINING.format(columns=", ".join(columns[:40])) if len(rows) > 1 else ""
        return Log(dialect=None, attempts=(), num_bytes=num_bytes, damage=damage, table=text)
    else:
        if any("rewards/chosen" in column for column in columns):
            findings.doubt(PAIRS)
        _doubt(vocabulary, findings)
        _take(rows, vocabulary, findings)
    return findings.result(num_bytes=num_bytes, damage=damage, common=dict[str, Fact]())


def _doubt(vocabulary: Vocabulary, findings: Findings) -> None:
    """Doubt a time without a unit and a rate without its scope, unless other columns check them."""
    known = vocabulary.quantities
    for column, name in vocabulary.columns.items():
        quantity = COLUMNS[name].rstrip("?")
        times, has_size = known & _TIMES - {quantity}, known & _SIZES
        if quantity == "elapsed_s":
            is_checked = times or (has_size and "tokens_per_second" in known)
        else:
            is_checked = (times and has_size) or "tokens_per_second_per_device" in known
        if COLUMNS[name].endswith("?") and not is_checked:
            findings.doubt(
                f"the column {column} does not say {_UNSAID[quantity]}, and no other column checks "
                "it, so that it proves nothing"
            )


def _take(rows: Iterable[Row], vocabulary: Vocabulary, findings: Findings) -> None:
    """Record the quantities of each step: services write one row for each metric of it."""
    merged: list[tuple[int, dict[str, float]]] = []
    for row in rows:
        values = vocabulary.values(row.cells)
        step = values.get("iteration")
        if merged and step is not None and merged[-1][1].get("iteration") == step:
            merged[-1] = merged[-1][0], values | merged[-1][1]
        elif values.keys() - {"iteration", "stamp_s"}:
            merged.append((row.number, values))
    has_times = any({"elapsed_s", "clock_s"} & values.keys() for _, values in merged)
    name = "clock_s" if has_times else "stamp_s"
    clocks = [values[name] for _, values in merged if name in values]
    is_coarse = bool(clocks) and all(clock == int(clock) for clock in clocks)
    last = -math.inf
    for number, values in merged:
        if name in values and "elapsed_s" not in values:
            if is_coarse and last <= values[name] < last + COARSE_S:
                continue
            last = values[name]
            values["clock_s"] = last - (0.0 if has_times else clocks[0])
        findings.record(Line(number, number, b"", True, lambda _: []), values)
