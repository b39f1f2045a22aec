"""The dialect of Megatron-LM: upstream's `(ms)` line, the JUPITER suite's `(s)` line, and our own.

Sources: NVIDIA/Megatron-LM megatron/training/training.py `training_log` (`elapsed time per iteration (ms): {:.1f}`) and
FZJ-JSC/jubench-megatron-lm benchmark/aux/add_tflops_logging.patch (`(s): {:.4f}`, `samples per second`, `TFLOPs: {:.2f}`).
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from nlp_bench.logs.lines import Line
from nlp_bench.logs.record import LogRecord

NAME = "megatron-lm"
NEEDLES = (b"iteration", b"seq_length", b"world_size", b"log_interval", b" arguments ---")
ARGUMENTS_BEGIN = re.compile(rb"-{5} arguments -{5}")
ARGUMENT = re.compile(rb"(?:^|[\s:])(seq_length|world_size|log_interval|global_batch_size) \.{2,} (\d{1,18})\s*$")

_START = re.compile(rb"(?<![\w-])iteration\s+(\d{1,18})\s*/\s*(\d{1,18})\s*\|")
_RANK = re.compile(rb"\[default\d+\]|\[rank\s?\d+\]|\[\d+,\d+\]<\w+>|^\s*\w*\d+(?=:)")
_NUMBER = re.compile(rb"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)
_WHOLE = re.compile(rb"\d{1,18}")


def _number(text: bytes) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _count(text: bytes) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def _milliseconds(text: bytes) -> float | None:
    value = _number(text)
    return None if value is None else value / 1000.0


# The unit of the time is read from the name of the field: a reader that ignores it is wrong by 1000.
_FIELDS: dict[bytes, tuple[str, Callable[[bytes], float | int | None]]] = {
    b"consumed samples": ("consumed_samples", _count),
    b"elapsed time per iteration (s)": ("elapsed_s", _number),
    b"elapsed time per iteration (ms)": ("elapsed_s", _milliseconds),
    b"global batch size": ("global_batch_size", _count),
    b"lm loss": ("lm_loss", _number),
    b"lm-loss": ("lm_loss", _number),
    b"grad norm": ("grad_norm", _number),
    b"number of skipped iterations": ("num_skipped", _count),
    b"number of nan iterations": ("num_nan", _count),
    b"TFLOPs": ("tflops", _number),
    b"model TFLOP/s/GPU": ("model_tflops", _number),
}


def parse_line(line: Line) -> Iterator[LogRecord]:
    """Yield every record that begins on this line; two processes may have written into one line."""
    starts = list(_START.finditer(line.text))
    for position, start in enumerate(starts):
        is_last = position == len(starts) - 1
        end = len(line.text) if is_last else starts[position + 1].start()
        # Text before the next record on the same line was not ended by its writer.
        yield _record(line, start, end, is_ended=line.is_ended and is_last)


def _record(line: Line, start: re.Match[bytes], end: int, *, is_ended: bool) -> LogRecord:
    values: dict[str, Any] = {}
    is_torn = False
    # What follows the last bar is no finished field: a cut number would look like a smaller one.
    for piece in line.text[start.end() : end].split(b"|")[:-1]:
        key, _, text = piece.partition(b":")
        name, convert = _FIELDS.get(key.strip(), ("", _number))
        if not name or name in values:
            continue
        value = convert(text.strip())
        is_torn |= value is None
        values[name] = value
    label = _RANK.search(line.text[: start.start()])
    is_whole = is_ended and not is_torn and "elapsed_s" in values and "num_nan" in values
    return LogRecord(
        iteration=int(start[1]),
        total_iterations=int(start[2]),
        is_whole=is_whole,
        rank_label=label[0].decode(errors="replace").strip() if label else "",
        line_number=line.number,
        **values,
    )
