"""Scans blocks of a log in one pass, in C where that is built: clean records become rows of numbers, other lines are handed on.

The grammar is the strict form of Megatron-LM's line; a line with a needle that departs from it is handed to the dialects' parsers as text.
"""

import ctypes
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache, cached_property, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nlp_bench.immutable import immutable
from nlp_bench.logs.clean import HEAD_BYTES, PLAIN_STAMP, row_stamp_s
from nlp_bench.logs.record import COLUMN, NO_RECORDS, ROW, Records
from nlp_bench.logs.source import Block

MAX_NUMBER_BYTES = 64  # more than any program prints
NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(NUMBER)
_COUNT = re.compile(rb"\d{1,18}")
_UNSAFE = re.compile(rb"[\x1b\r\x80-\xff]")
_TIME_STAMP = re.compile(rb"\[20\d\d[-/.][^\]]*\]|[ \t]+|" + PLAIN_STAMP)
_BLANKS = b" \t"
_SHAPE = bytes.maketrans(b"0123456789abcdef", bytes(16))
MAX_SHAPES = 1 << 15  # of lines of one log, and kinds of them
STAMP = COLUMN["stamp_s"]


class Line(NamedTuple):
    """One line that contains a needle and is no row."""

    number: int  # line number in the log, counted from 1
    offset: int  # byte offset of its beginning in the log, after decompression
    text: bytes  # the bytes as they are, without the line feed (a carriage return stays)
    is_ended: bool  # False where the line feed is missing: the line may be cut anywhere
    following: Callable[[int], list[bytes]]
    """following(k): up to k of the next lines, without line feeds; only until the next block is read. Only complete lines: a
    last one without its line feed may be cut, and a cut number looks like a smaller one."""
    shape: int = 0  # a hash of the text without its hexadecimal digits


def slim(line: Line) -> Line:
    """Return a copy of the line to keep, with only the head of its text, which has the time stamp."""
    return Line(line.number, line.offset, line.text[:HEAD_BYTES], True, lambda _: [])


@immutable(kw_only=False)
class Grammar:
    """`start N / M | key : value | key : value |`, and which keys mean what."""

    start: bytes  # the text before the iteration and the total; also a needle
    keys: Mapping[bytes, tuple[str, float, bool]]
    """Key (ASCII, with none of `:|` in it and no blank at an end) to (quantity of `record.ROW`, divisor, is_count): it is
    float(value) / divisor; a count has 1 to 18 digits."""
    required: tuple[str, ...] = ()  # quantities without which a line is no row
    reads_stamps: bool = False
    """Whether `stamp_s`, where no key gives it, is `clean.row_stamp_s` of the text before the record; a line with a time of day in
    another form is then no row."""

    def places(self) -> dict[bytes, tuple[int, float, bool]]:
        """Return the keys with the places of their quantities in ROW."""
        return {key: (COLUMN[name], divisor, is_count) for key, (name, divisor, is_count) in self.keys.items()}


class Until(IntEnum):
    """How long lines of a shape are left out: as long as the log, or until another line changes something, or until the next record."""

    END = 0
    CHANGE = 1
    RECORD = 2


OPEN = (Until.CHANGE, Until.RECORD)


class Shapes:
    """The kinds of lines of one log that no parser needs, each of one or more shapes; the scanner leaves such lines out."""

    def __init__(self) -> None:
        self.table = np.zeros(2 * MAX_SHAPES, np.int64)  # a hash table with linear probing, as in scan.c
        self.kinds = np.zeros(len(self.table), np.int64)  # of the shapes in the table
        self.until = np.full(MAX_SHAPES, -1, np.int64)  # of each kind: `now` of its Until when it was closed
        self.now = [0, 1, -2]  # for each Until, a number that changes when it is over
        self._slots: dict[int, int] = {}

    def add(self, shape: int, kind: int) -> None:
        """Leave out lines of this shape as long as their kind is closed; of a log with ever new ones not all are remembered."""
        if not shape or shape in self._slots or len(self._slots) >= MAX_SHAPES:
            return
        slot = shape % len(self.table)
        while self.table[slot]:
            slot = (slot + 1) % len(self.table)
        self._slots[shape] = slot
        self.table[slot], self.kinds[slot] = shape, kind

    def close(self, kind: int, until: Until) -> None:
        """Leave out the lines of a kind until then."""
        self.until[kind] = self.now[until]

    def is_closed(self, kind: int) -> bool:
        """Say whether lines of a kind are left out now."""
        return int(self.until[kind]) in self.now

    def reopen(self, until: Until) -> None:
        """Read lines again that were left out until now; a change ends both."""
        self.now[Until.RECORD] -= 1
        self.now[Until.CHANGE] += until is Until.CHANGE

    def state(self, shape: int) -> Until | None:
        """Return how long lines of this shape are left out, None where they are read."""
        slot = self._slots.get(shape)
        kind = None if slot is None else int(self.kinds[slot])
        return None if kind is None or not self.is_closed(kind) else Until(self.now.index(int(self.until[kind])))


class Scanner:
    """Finds the lines that contain a needle, and reads those that fit the grammar.

    `needles` are non-empty byte strings without line feeds; a line with any of them is returned, as a row or as text.
    The engine in Python gives the same results; it is used where the shared object is missing or old.
    """

    def __init__(self, needles: Iterable[bytes], grammar: Grammar | None) -> None:
        self._words = tuple(dict.fromkeys([*needles, *([grammar.start] if grammar else [])]))
        self._grammar, self._num_small = grammar, 0

    def scan(self, block: Block, shapes: Shapes | None = None) -> Iterator[tuple[Records, list[Line]]]:
        """Yield parts of the block: the records of its rows, and its other lines with a needle, in the order of the file.

        Lines of `shapes` are left out, from the next part on also those that are added between two parts.
        """
        is_small = block.is_last and block.end - block.begin <= SMALL_BYTES
        self._num_small += is_small
        is_in_python = is_small and self._num_small <= MANY_SMALL
        engine = self._engine_in_python if is_in_python else self._engine
        return engine.scan(block, shapes or Shapes())

    @cached_property
    def _engine(self) -> "_CEngine | _PythonEngine":
        library = _library()
        return _CEngine(library, self._words, self._grammar) if library else self._engine_in_python

    @cached_property
    def _engine_in_python(self) -> "_PythonEngine":
        return _PythonEngine(self._words, self._grammar)


def label_of(prefix: bytes) -> int:
    """Return a hash of the text before a record, 0 for none: it identifies the process.

    Blanks and time stamps (`[2026-...]`, `2026-01-31 23:59:59,123`) are left out. The hash is FNV-1a of 64 bits (Fowler, Noll, Vo), signed.
    """
    return _hash(_TIME_STAMP.sub(b"", prefix))


@lru_cache(maxsize=1 << 16)
def _hash(text: bytes) -> int:
    label = 0xCBF29CE484222325
    for byte in text:
        label = (label ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    label ^= 0xCBF29CE484222325
    return label - (1 << 64) if label >> 63 else label


def _line(block: Block, begin: int, end: int, number: int, shape: int) -> Line:
    is_ended = end < block.end
    following = partial(_following, block, end + is_ended)
    return Line(number, block.offset + begin - block.begin, bytes(block.data[begin:end]), is_ended, following, shape)


def _following(block: Block, at: int, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count and (end := block.data.find(b"\n", at, block.lookahead_end)) >= 0:
        found.append(bytes(block.data[at:end]))
        at = end + 1
    return found


@lru_cache(maxsize=64)
def _pattern(needles: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Return the pattern of all needles; of none it is found nowhere."""
    rests: dict[bytes, list[bytes]] = {}  # by the first byte: `re` would try all needles where any may begin
    for needle in needles:
        rests.setdefault(needle[:1], []).append(re.escape(needle[1:]))
    forms = (re.escape(first) + b"(?:" + b"|".join(rest) + b")" for first, rest in rests.items())
    return re.compile(b"|".join(forms) or b"(?!)")


def _columns(rows: list[tuple[list[float], int, int, int]]) -> Records:
    if not rows:
        return NO_RECORDS
    values = np.array([row[0] for row in rows], np.float64)
    columns = {ROW[i]: values[:, i].copy() for i in np.flatnonzero(~np.isnan(values).all(axis=0)).tolist()}
    offsets, numbers, labels = (np.array([row[place] for row in rows], np.int64) for place in (1, 2, 3))
    return Records(columns, offsets, numbers, labels=labels)


class _PythonEngine:
    """The engine for a machine without a compiler; the reference of the C engine in tests."""

    def __init__(self, needles: tuple[bytes, ...], grammar: Grammar | None) -> None:
        self.needles, self.grammar = needles, grammar
        word = re.escape(grammar.start) if grammar else b"(?!)"  # of none it is found nowhere
        self.start = re.compile(rb"(?<![\w-])%b[ \t]+(\d{1,18})[ \t]*/[ \t]*(\d{1,18})[ \t]*\|" % word)
        self.again = re.compile(rb"%b[ \t]*\d" % word)
        self.keys = grammar.places() if grammar else {}
        self.required = [COLUMN[name] for name in grammar.required] if grammar else []

    def scan(self, block: Block, shapes: Shapes) -> Iterator[tuple[Records, list[Line]]]:
        data, at, needles = block.data, block.begin, self.needles
        if block.end - at <= SMALL_BYTES:  # a pattern of all takes longer to make than so few bytes to read
            needles = tuple(needle for needle in needles if data.find(needle, at, block.end) >= 0)
        find = _pattern(needles).search
        counted_to, number = block.begin, block.number
        rows: list[tuple[list[float], int, int, int]] = []
        lines: list[Line] = []
        while found := find(data, at, block.end):
            begin = data.rfind(b"\n", at, found.start()) + 1 or at
            end = data.find(b"\n", found.end(), block.end)
            is_ended = end >= 0
            end = end if is_ended else block.end
            number += data.count(b"\n", counted_to, begin)
            counted_to, at = begin, end + is_ended
            text = bytes(data[begin:end])
            row = self.row(text) if is_ended else None
            if row is not None:
                rows.append((row[0], block.offset + begin - block.begin, number, row[1]))
                continue
            shape = hash(text.translate(_SHAPE)) or 1
            until = shapes.state(shape)
            if len(lines) == _MAX_LINES or (until in OPEN and lines) or (until is Until.RECORD and rows):
                yield _columns(rows), lines
                rows, lines = [], []
                until = shapes.state(shape)
            if until is None:
                lines.append(_line(block, begin, end, number, shape))
        block.num_line_ends = number - block.number + data.count(b"\n", counted_to, block.end)
        yield _columns(rows), lines

    def row(self, text: bytes) -> tuple[list[float], int] | None:
        if self.grammar is None or (at := text.find(self.grammar.start)) < 0:
            return None
        text = text.removesuffix(b"\r")
        start = self.start.match(text, at)
        *pieces, rest = text[start.end() if start else 0 :].split(b"|")
        if not start or not pieces or rest.strip(_BLANKS) or _UNSAFE.search(text):
            return None
        values = [math.nan] * len(ROW)
        values[:2] = float(start[1]), float(start[2])
        if not all(self.take(piece, values) for piece in pieces):
            return None
        if any(math.isnan(values[column]) for column in self.required):
            return None
        if self.grammar.reads_stamps and math.isnan(values[STAMP]):
            stamp = row_stamp_s(text[:at])
            if stamp is None:
                return None
            values[STAMP] = stamp
        return values, label_of(text[:at])

    def take(self, piece: bytes, values: list[float]) -> bool:
        """Put the piece into its column; False when it makes the line no row."""
        key, colon, text = piece.partition(b":")
        meaning = self.keys.get(key.strip(_BLANKS))
        if meaning is None:
            return bool(colon) and not self.again.search(piece)
        column, divisor, is_count = meaning
        text = text.strip(_BLANKS)
        is_plain = (_COUNT if is_count else _NUMBER).fullmatch(text) and len(text) <= MAX_NUMBER_BYTES
        if not colon or not is_plain or not math.isnan(values[column]):
            return False
        values[column] = float(text) / divisor
        return math.isfinite(values[column])


MANY_SMALL = 4
"""Small logs that are read in Python, before the tables of the compiled engine, which take milliseconds to make, pay off."""
SMALL_BYTES = 1 << 16  # making the tables of the compiled engine takes longer than reading so few bytes in Python
_INTERFACE = 5  # as in scan.c: an object of another version is not used
_MAX_ROWS = 1 << 15
_FIRST_LINES, _MAX_LINES = 1 << 6, 1 << 10
"""Lines of the first part of a block, and at most: what the parsers need not see, the next part leaves out."""
_NUM_BUCKETS = 8
_PLACES = 3  # bytes of a word that are looked up, as in scan.c
_PIECE_BYTES = 1 << 10  # of a log, of which a sample has 16
_MAX_GRAMS = 1 << 11  # the most common ones of a sample, which make up most of it
_MAX_FALSE = 1_000_000  # false candidates that take longer than making tables anew, which takes 10 ms


def _guess() -> list[float]:
    weights = [2.0] * 256
    for text, power in ((b" ", 9), (b"0123456789", 8), (b"etaoinsr", 7), (b".:-_/[],=", 6), (b"bcdfghjklmpquvwxyz", 5)):
        for byte in text:
            weights[byte] = 2.0**power
    return weights


_INT, _POINTER = ctypes.c_int64, ctypes.c_void_p
_OF_ROW = ("row_begin", "row_number", "row_label")
_OF_LINE = ("line_begin", "line_end", "line_number", "line_shape")


class _Word(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char_p), ("length", _INT), ("shift", _INT))


class _Key(ctypes.Structure):
    _fields_ = (
        *(("text", ctypes.c_char_p), ("length", _INT), ("column", _INT)),
        *(("divisor", ctypes.c_double), ("is_count", _INT)),
    )


class _Plan(ctypes.Structure):
    """`struct plan` of scan.c."""

    _fields_ = (
        ("table", ctypes.c_uint8 * 256 * _PLACES),
        *(("low", ctypes.c_uint8 * 16 * _PLACES), ("high", ctypes.c_uint8 * 16 * _PLACES)),
        *(("bucket", _INT * 9), ("words", ctypes.POINTER(_Word))),
        *(("start", ctypes.c_char_p), ("start_length", _INT)),
        *(("keys", ctypes.POINTER(_Key)), ("num_keys", _INT), ("num_columns", _INT)),
        *(("required", ctypes.POINTER(_INT)), ("num_required", _INT), ("stamp", _INT)),
        *(("num_checked", _INT), ("expected", _INT * 64)),
    )


class _Output(ctypes.Structure):
    """`struct output` of scan.c."""

    _fields_ = (
        *(("at", _INT), ("num_line_ends", _INT), ("values", _POINTER), ("given", ctypes.c_uint64)),
        *((name, _POINTER) for name in _OF_ROW),
        *(("max_rows", _INT), ("num_rows", _INT)),
        *((name, _POINTER) for name in _OF_LINE),
        *(("max_lines", _INT), ("num_lines", _INT)),
        *(
            ("shapes", _POINTER),
            ("kinds", _POINTER),
            ("until", _POINTER),
            ("change", _INT),
            ("record", _INT),
            ("num_slots", _INT),
        ),
    )


OBJECT = Path(__file__).with_name("_scan.abi3.so")
"""The shared object, built by pip where there is a C compiler, or by `nlp-bench build --scanner`."""
LARGE_BYTES = 1 << 26  # size of a log from which `why_slow` is printed


def why_slow() -> str:
    """Return why logs are read by the engine in Python, and the remedy; empty where they are not."""
    if _library():
        return ""
    what = "is of another version" if OBJECT.exists() else "has not been built"
    return f"the compiled reader of logs {what}, so that they are read several times slower; build it: nlp-bench build --scanner"


@cache
def _library() -> ctypes.CDLL | None:
    """Return the shared object, None where there is none for this version of scan.py."""
    try:
        library = ctypes.CDLL(str(OBJECT))
    except OSError:
        return None
    library.nlp_bench_scan.argtypes = (ctypes.POINTER(_Plan), _POINTER, _INT, _INT, ctypes.POINTER(_Output))
    library.nlp_bench_scan_prepare.argtypes = (ctypes.POINTER(_Plan),)
    library.nlp_bench_scan.restype = _INT
    library.nlp_bench_scan_interface.restype = _INT
    return library if library.nlp_bench_scan_interface() == _INTERFACE else None


def _shift(word: bytes, weights: list[float], counts: Counter[bytes]) -> int:
    """Return the offset of the word's rarest consecutive bytes, as many as are looked up."""

    def frequency(at: int) -> tuple[int, float]:
        found = word[at : at + _PLACES]
        return counts[found], math.prod(weights[byte] for byte in found)

    return min(range(max(len(word) - _PLACES + 1, 1)), key=frequency)


def _places(prints: Sequence[bytes]) -> NDArray[np.bool_]:
    """Return which [fingerprint, byte, half, value of 16] match; after a short word any byte does."""
    found = np.ones((len(prints), _PLACES, 2, 16), np.bool_)
    for nibbles, word in zip(found, prints, strict=True):
        nibbles[: len(word)] = False
        for place, byte in enumerate(word):
            nibbles[place, 0, byte >> 4] = nibbles[place, 1, byte & 15] = True
    return found


def _buckets(prints: Iterable[bytes], weights: list[float], counts: Counter[bytes]) -> list[list[bytes]]:
    """Distribute the fingerprints so that few places of a log match by chance: each goes where it adds the least.

    What matches is counted in the sample, whose `counts` of grams are given, and estimated from how often each byte is there: text is
    looked up by nibble, so that a bucket of several fingerprints matches what has its nibbles from any of them.
    """
    words = sorted(set(prints))
    if not counts:
        return [words[at::_NUM_BUCKETS] for at in range(_NUM_BUCKETS)]
    by_nibble = np.array(weights).reshape(16, 16) / sum(weights)
    common = [(gram, times) for gram, times in counts.most_common(_MAX_GRAMS) if len(gram) == _PLACES]
    grams = np.frombuffer(b"".join(gram for gram, _ in common), np.uint8).reshape(-1, _PLACES).T
    times = np.array([count for _, count in common], np.float64)

    def estimate(nibbles: NDArray[np.bool_]) -> NDArray[np.float64]:
        upper, lower = nibbles[:, :, 0], nibbles[:, :, 1]
        return np.prod(np.sum(upper @ by_nibble * lower, axis=2), axis=1) * counts.total()  # type: ignore[no-any-return]

    alone = _places(words)
    bits = (1 << np.arange(2 * _PLACES, dtype=np.uint8)).reshape(_PLACES, 2, 1, 1)
    upper, lower = alone[:, :, 0, :, None] * bits[:, 0], alone[:, :, 1, None, :] * bits[:, 1]
    tables = (upper | lower).reshape(len(words), _PLACES, 256)  # [fingerprint, byte, value of both halves]
    whole = (1 << 2 * _PLACES) - 1
    buckets: list[list[bytes]] = [[] for _ in range(_NUM_BUCKETS)]
    nibbles = np.zeros((_NUM_BUCKETS, *alone.shape[1:]), np.bool_)
    fits = np.zeros((_NUM_BUCKETS, len(common)), np.uint8)  # a bit for each half of each byte that matches
    costs = np.zeros(_NUM_BUCKETS)
    for at in np.argsort(-estimate(alone), kind="stable"):
        with_it = nibbles | alone[at]
        fits_with_it = fits | np.bitwise_or.reduce([table[byte] for table, byte in zip(tables[at], grams, strict=True)])
        costs_with_it = estimate(with_it) + (fits_with_it == whole) @ times
        best = int(np.argmin(costs_with_it - costs))
        buckets[best].append(words[at])
        nibbles[best], fits[best], costs[best] = with_it[best], fits_with_it[best], costs_with_it[best]
    return buckets


def _plan(words: tuple[bytes, ...], grammar: Grammar | None, sample: bytes = b"") -> _Plan:
    """Return the tables for the words and the grammar, for a log like the sample."""
    weights = (np.bincount(np.frombuffer(sample, np.uint8), minlength=256) + 1.0).tolist() if sample else _guess()
    counts = Counter(sample[at : at + _PLACES] for at in range(len(sample)))
    shifts = {word: _shift(word, weights, counts) for word in words}
    prints = {word: word[shift : shift + _PLACES] for word, shift in shifts.items()}
    plan, ordered = _Plan(), []
    for number, bucket in enumerate(_buckets(prints.values(), weights, counts)):
        ordered += [word for word in words if prints[word] in bucket]
        plan.bucket[number + 1] = len(ordered)
        for word, place in product(bucket, range(_PLACES)):
            # After a word that is too short for this place any byte matches.
            for byte in word[place : place + 1] or range(256):
                plan.table[place][byte] |= 1 << number
    plan.words = (_Word * len(words))(*(_Word(word, len(word), shifts[word]) for word in ordered))
    if grammar:
        plan.start, plan.start_length = grammar.start, len(grammar.start)
        plan.keys = (_Key * len(grammar.keys))(*(_Key(key, len(key), *what) for key, what in grammar.places().items()))
        plan.num_keys, plan.num_columns = len(grammar.keys), len(ROW)
        plan.required = (_INT * len(grammar.required))(*(COLUMN[name] for name in grammar.required))
        plan.num_required = len(grammar.required)
        plan.stamp = STAMP if grammar.reads_stamps else -1
    return plan


class _CEngine:
    """The engine in scan.c; its arrays are reused for every block, by one thread at a time: logs that threads read share an engine."""

    def __init__(
        self, library: ctypes.CDLL, words: tuple[bytes, ...], grammar: Grammar | None, *, is_simple: bool = False
    ) -> None:
        self.library, self.is_simple = library, is_simple
        self.words, self.grammar = words, grammar
        self.plan: _Plan | None = None
        self.lock = threading.Lock()
        self.num_false = 0  # candidates in which no word was found, since these tables were made
        self.values = np.empty((len(ROW) if grammar else 0, _MAX_ROWS), np.float64)
        self.rows = np.empty((3, _MAX_ROWS), np.int64)
        self.lines = np.empty((4, _MAX_LINES), np.int64)
        row, line = self.rows.ctypes.data, self.lines.ctypes.data
        self.output = _Output(
            values=self.values.ctypes.data,
            **{name: row + i * _MAX_ROWS * 8 for i, name in enumerate(_OF_ROW)},
            **{name: line + i * _MAX_LINES * 8 for i, name in enumerate(_OF_LINE)},
            max_rows=_MAX_ROWS,
            max_lines=_MAX_LINES,
        )

    def scan(self, block: Block, shapes: Shapes) -> Iterator[tuple[Records, list[Line]]]:
        with self.lock:
            address = np.frombuffer(block.data, np.uint8).ctypes.data
            output, is_full, num_found, num_parts = self.output, 1, 0, 0
            plan = self.plan if self.plan and self.num_false < _MAX_FALSE else self.prepare(block)
            plan.num_checked = 0
            output.at, output.num_line_ends = block.begin, 0
            output.shapes, output.kinds, output.until = (
                each.ctypes.data for each in (shapes.table, shapes.kinds, shapes.until)
            )
            output.num_slots = len(shapes.table)
            while is_full:
                output.change, output.record = shapes.now[Until.CHANGE], shapes.now[Until.RECORD]
                output.num_rows = output.num_lines = output.given = 0
                output.max_lines = min(_FIRST_LINES << num_parts, _MAX_LINES)
                is_full = self.library.nlp_bench_scan(plan, address, block.end, self.is_simple, output)
                num_found += output.num_rows + output.num_lines
                num_parts += 1
                block.num_line_ends = output.num_line_ends
                yield (
                    self.taken(block, output.num_rows) if output.num_rows else NO_RECORDS,
                    [
                        _line(block, begin, end, block.number + number, shape)
                        for begin, end, number, shape in self.lines[:, : output.num_lines].T.tolist()
                    ],
                )
            self.num_false += plan.num_checked - num_found

    def prepare(self, block: Block) -> _Plan:
        """Make the tables for a log like the block, or for any if the log is short; only the speed depends on them."""
        pieces = range(block.begin, block.end, max((block.end - block.begin) // 16, _PIECE_BYTES))
        sample = b"" if block.is_last else b"".join(block.data[at : at + _PIECE_BYTES] for at in pieces)
        self.plan, self.num_false = _plan(self.words, self.grammar, sample), 0
        self.library.nlp_bench_scan_prepare(ctypes.byref(self.plan))
        return self.plan

    def taken(self, block: Block, count: int) -> Records:
        begins, numbers, labels = self.rows[:, :count]
        columns = {ROW[i]: column[:count].copy() for i, column in enumerate(self.values) if self.output.given >> i & 1}
        offsets = begins + (block.offset - block.begin)
        return Records(columns, offsets, numbers + block.number, labels=labels.copy())
