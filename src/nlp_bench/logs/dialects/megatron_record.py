"""One record of Megatron-LM's line: its pieces, and the lines that it was wrapped into."""

import math
import re
from typing import NamedTuple

from nlp_bench.logs.clean import first_piece
from nlp_bench.logs.dialects.megatron_keys import field_of, is_rounded, normal, value_of
from nlp_bench.logs.quantity import RATES
from nlp_bench.logs.scan import Line

# ALCF's fork writes `iteration=`. The word comes before the look behind it: so the engine searches for it alone.
_START = re.compile(rb"iteration(?<![\w-]iteration)(?:=|(?=\s))\s*(\d{1,18})\s*/\s*(\d{1,18})\s*\|")
_END = re.compile(rb"nan\s?iterations\s*:\s*\d+\s*\|")
_MAX_WRAPPED = 12
_SAME = 0.005
"""Share by which a time or a rate that stands twice in one record may differ; of two that differ the slower one is read."""
_NO_RATE = {b"None", b"N/A"}
"""What forks print for a learning rate that there is not."""
_KEY = re.compile(rb"(?:\[[A-Z]{2}\])?[\w /().,@%-]{1,64}")
_VALUE = re.compile(rb"\s*(?:[-+]?[\d.][-+\w.%/ :()]{0,80}|nan|inf|N/A)\s*", re.IGNORECASE)


class Record(NamedTuple):
    """One record as text."""

    prefix: bytes
    """What stands before it, behind another record on the same line."""
    iteration: float
    """Its number."""
    total: float
    """The last one of the training."""
    body: bytes
    """Everything behind the first bar."""
    is_ended: bool
    """False where its writer did not end it: it may be cut anywhere."""


def records_in(text: bytes, line: Line, *, is_last_text: bool) -> list[Record]:
    """Return the records that begin in a text of the line; the last one may go on in the lines that follow."""
    records: list[Record] = []
    starts = list(_START.finditer(text)) if b"iteration" in text else []
    ends = [*(start.start() for start in starts[1:]), len(text)]
    begin = 0
    for start, end in zip(starts, ends, strict=False):
        # Text before the next record on the same line was not ended by its writer.
        is_last = end == len(text)
        prefix, body = text[begin : start.start()], text[start.end() : end]
        begin = max(text.rfind(b"|", start.end(), end) + 1, start.end())
        if is_last and is_last_text and line.is_ended:
            body = _unwrapped(body, line)
        records.append(Record(prefix, float(start[1]), float(start[2]), body, line.is_ended and is_last))
    return records


def key_and_text(piece: bytes) -> tuple[bytes, bytes]:
    """Return key and value of `key: value`, `key=value` or, as before 2020, `key value`."""
    for separator in (b":", b"="):
        key, found, text = piece.partition(separator)
        if found:
            return key, text
    key, _, text = piece.rstrip().rpartition(b" ")
    return key, text


class Fields(NamedTuple):
    """What the finished pieces of a record say."""

    values: dict[str, float]
    """Quantities in their units."""
    programs: set[str]
    """Programs that alone print such fields."""
    is_torn: bool
    """Whether a known field is no number."""
    curriculum: float
    """Length of the samples where it changes, so that one length says nothing about an interval; NaN where it cannot be read, else 0."""


def fields_of(finished: list[bytes]) -> Fields:
    """Return what the pieces before the last bar say.

    What follows the last bar is no finished field: a cut number would look like a smaller one.
    """
    values: dict[str, float] = {}
    programs: set[str] = set()
    is_torn, curriculum = False, 0.0
    num_twice = 0
    read: set[bytes] = set()
    for piece in finished:
        key, text = key_and_text(piece)
        field = field_of(key)
        if field.program:
            programs.add(field.program)
        if field.hides_length:
            curriculum = float(text) if text.strip().isdigit() else math.nan
        name = field.quantity
        num_twice += bool(field.name) and normal(key) in read
        if num_twice > 1:
            return Fields({}, programs, is_torn=True, curriculum=curriculum)  # the halves of two records
        read.add(normal(key))
        again = value_of(field, text) if name in RATES and name in values else None
        if name and again is not None and abs(again - values[name]) > _SAME * values[name]:
            is_torn = True
            values[name] = (max if name == "elapsed_s" else min)(values[name], again)
        if not name or name in values or (name == "consumed_tokens" and is_rounded(text)):
            continue
        value = value_of(field, text)
        if value is None and name == "learning_rate" and text.strip() in _NO_RATE:
            continue
        if value is None:
            is_torn = True
        else:
            values[name] = value
    if curriculum:
        values.pop("sequence_length", None)
    return Fields(values, programs, is_torn, curriculum)


def _unwrapped(body: bytes, line: Line) -> bytes:
    """Return the record with the next lines that go on with it: a terminal or an editor has cut it anywhere."""
    if _END.search(body) and not body.rpartition(b"|")[2].strip():
        return body
    for text in line.following(_MAX_WRAPPED):
        follower = first_piece(text)
        if not follower or _START.search(follower) or not _goes_on(body, follower):
            break
        body = body.rstrip() + follower
    return body


def _goes_on(body: bytes, follower: bytes) -> bool:
    """Say whether `follower` finishes the last field of `body`, or goes on with another field of a record."""
    tail = body.rpartition(b"|")[2].strip()
    key, value = key_and_text(tail + follower.partition(b"|")[0])
    if field_of(key).name:
        return value_of(field_of(key), value) is not None
    is_field = bool(_KEY.fullmatch(key.strip()) and _VALUE.fullmatch(value))
    if tail or _END.search(body):
        return is_field and bool(tail)
    return is_field and bool(fields_of(follower.split(b"|")).values)
