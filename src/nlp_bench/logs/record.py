"""The content of a training log of any dialect: logged intervals, attempts, and what was left out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from nlp_bench.immutable import immutable
from nlp_bench.outcome import Outcome


@immutable
class LogRecord:
    """One logged interval: the iterations since the previous line. Missing is None, never 0; units are in the names."""

    iteration: int = 0  # the last iteration of the interval, as the log counts
    total_iterations: int | None = None  # the iteration at which this training would end
    elapsed_s: float | None = None  # seconds per iteration, the mean of the interval; finite and above 0
    tokens: float | None = None  # tokens per iteration of the whole machine
    tokens_per_device: float | None = None  # tokens per iteration of one device
    tokens_per_second: float | None = None  # rate of the whole machine
    tokens_per_second_per_device: float | None = None  # rate of one device
    samples_per_second: float | None = None  # rate of the whole machine
    samples_per_second_per_device: float | None = None  # rate of one device
    global_batch_size: int | None = None  # samples per iteration at the last iteration of the interval
    sequence_length: int | None = None  # tokens per sample
    num_devices: int | None = None  # devices of the whole run
    consumed_samples: int | None = None  # samples since the start of the training
    consumed_tokens: int | None = None  # tokens since the start of the training
    clock_s: float | None = None  # the training's own clock: seconds of training since its start
    stamp_s: float | None = None  # when the line was written, in seconds since an arbitrary fixed moment
    lm_loss: float | None = None  # mean training loss of the interval; may be NaN or infinite, as the log says
    learning_rate: float | None = None  # learning rate after the last iteration
    grad_norm: float | None = (
        None  # norm of the gradient at the last iteration; may be NaN or infinite, as the log says
    )
    loss_scale: float | None = None  # factor of the loss in 16-bit training; likewise
    num_skipped: int | None = None  # iterations of the interval whose update was skipped (loss scaling)
    num_nan: int | None = None  # iterations of the interval with a NaN gradient
    tflops: float | None = None  # TFLOP/s per device by the legacy x4/3 count, field `TFLOPs:`
    model_tflops: float | None = None  # TFLOP/s per device of the model alone
    joules_per_device: float | None = None  # energy of one device per iteration, the mean of all devices
    watts_per_device: float | None = None  # mean power of one device over the interval
    is_whole: bool = True  # False where the line was cut or spliced: only complete fields are given
    line_number: int = 0  # line of the file, counted from 1 (a carriage return does not end a line here)
    offset: int = 0  # byte offset of the line in the file, after decompression

    def why_broken(self) -> str | None:
        """Return what makes the training invalid, a loss that is not finite or a NaN iteration; else None."""
        if self.lm_loss is not None and not math.isfinite(self.lm_loss):
            return f"lm loss is {self.lm_loss} at iteration {self.iteration}"
        if self.num_nan:
            return f"{self.num_nan} NaN iteration(s) up to iteration {self.iteration}"
        return None


ROW = tuple(f.name for f in fields(LogRecord) if f.name not in {"is_whole", "line_number", "offset"})
"""Columns of a record."""
COLUMN = {name: index for index, name in enumerate(ROW)}  # quantity to its place in ROW
_COUNTS = {f.name for f in fields(LogRecord) if "int" in str(f.type) and f.name in COLUMN}
MAY_BE_NAN = frozenset(
    {"lm_loss", "grad_norm", "loss_scale", "learning_rate"}
)  # what says by a NaN that training failed
LOSS_NAN = -1.7976931348623157e308
"""In the columns of MAY_BE_NAN, a value that the log prints as nan: NaN itself means "missing" in every column."""
NO_LOSS = -1.0  # what torchtitan prints for the loss on ranks that have none: all stages of a pipeline but the last

Column = NDArray[np.float64]


def constant(value: float, size: int) -> Column:
    """Return a column of one value, which takes the memory of one and cannot be written."""
    return np.broadcast_to(np.float64(value), size)


class Records(Sequence[LogRecord]):
    """Intervals in the order of the log, as columns: a million of them take 100 MB less than as objects."""

    def __init__(
        self,
        columns: Mapping[str, Column],
        offsets: NDArray[np.int64],
        numbers: NDArray[np.int64],
        whole: NDArray[np.bool_] | None = None,
        labels: NDArray[np.int64] | None = None,
    ) -> None:
        """Make it of columns of equal length by the names of ROW; NaN is missing (see LOSS_NAN), as is an absent column.

        `labels` are numbers for the processes that wrote the records (`scan.label_of`), 0 for all by default; by default all are whole.
        """
        self.columns, self.offsets, self.numbers = dict(columns), offsets, numbers
        self.whole = np.ones(len(offsets), dtype=np.bool_) if whole is None else whole
        self.labels = np.zeros(len(offsets), dtype=np.int64) if labels is None else labels

    @classmethod
    def in_file_order(cls, parts: "Sequence[Records]") -> "Records":
        """Return all parts as one, in the order of their lines: within a block scanner and parser alternate."""
        names = {name: None for part in parts for name in part.columns}
        joined = cls(
            {name: np.concatenate([part._stored(name) for part in parts]) for name in names},  # noqa: SLF001
            *(
                np.concatenate(of)
                for of in zip(*((p.offsets, p.numbers, p.whole, p.labels) for p in parts), strict=True)
            ),
        )
        is_ordered = bool(np.all(joined.offsets[1:] >= joined.offsets[:-1]))
        return joined if is_ordered else joined.chosen(np.argsort(joined.offsets, kind="stable"))

    def column(self, name: str) -> Column:
        """Return the values of one quantity of ROW, NaN where missing (and for MAY_BE_NAN also where the log says nan); to read alone."""
        column = self._stored(name)
        return np.where(column == LOSS_NAN, np.nan, column) if name in MAY_BE_NAN else column

    def _stored(self, name: str) -> Column:
        column = self.columns.get(name)
        return constant(np.nan, len(self)) if column is None else column

    def has(self, name: str) -> NDArray[np.bool_]:
        """Return where the quantity is given."""
        return ~np.isnan(self._stored(name))

    def chosen(self, where: "NDArray[Any] | slice[Any, Any, Any]") -> "Records":
        """Return the records of a mask, of indices or of a slice."""
        columns = {name: column[where] for name, column in self.columns.items()}
        return Records(columns, self.offsets[where], self.numbers[where], self.whole[where], self.labels[where])

    @cached_property
    def stamp_resolution_s(self) -> float | None:
        """The coarsest of 1, 0.1, 0.01 and 0.001 s of which all of `stamp_s` are multiples, else 1e-6; None without any stamp."""
        stamps = self.column("stamp_s")
        stamps = stamps[np.isfinite(stamps)]
        if not len(stamps):
            return None
        steps = (1.0, 0.1, 0.01, 0.001)
        # A double resolves the seconds since 1970 to 0.2 microseconds.
        return next((step for step in steps if np.all(np.abs(stamps - np.round(stamps / step) * step) < 1e-6)), 1e-6)

    def first_broken(self) -> LogRecord | None:
        """Return the first record whose `why_broken` is not None."""
        loss = self._stored("lm_loss")
        broken = np.isinf(loss) | (loss == LOSS_NAN) | (self._stored("num_nan") > 0)
        return self[int(np.argmax(broken))] if broken.any() else None

    def lacks(self, name: str) -> "NDArray[np.bool_]":
        """Say of each record whether it has no value of a quantity that it could have.

        Megatron-LM prints no loss where it skipped every update of the interval.
        """
        lacking = ~self.has(name)
        return lacking & ~(self.column("num_skipped") > 0) if name == "lm_loss" else lacking

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> LogRecord: ...
    @overload
    def __getitem__(self, index: "slice[Any, Any, Any]") -> "Records": ...
    def __getitem__(self, index: "int | slice[Any, Any, Any]") -> "LogRecord | Records":
        if isinstance(index, slice):
            return self.chosen(index)
        given: dict[str, Any] = {}
        for name, column in self.columns.items():
            value = float(column[index])
            if not math.isnan(value):
                given[name] = int(value) if name in _COUNTS else math.nan if value == LOSS_NAN else value
        return LogRecord(
            **given,
            is_whole=bool(self.whole[index]),
            line_number=int(self.numbers[index]),
            offset=int(self.offsets[index]),
        )


def stored(name: str, value: float | None) -> float:
    """Return `value` as it is stored in a column."""
    if value is None:
        return math.nan
    return LOSS_NAN if name in MAY_BE_NAN and math.isnan(value) else value


NO_RECORDS = Records({}, np.empty(0, np.int64), np.empty(0, np.int64))
FIRST_RECORDS = 6  # records that identify a run, also where its log was cut


class Fact(NamedTuple):
    """A value that the log states once, and its line."""

    value: float | str  # a number in the unit of its name, or text
    line_number: int  # line of the file, counted from 1; 0 where it is derived from several lines
    other: "Fact | None" = None  # a later statement of another value: then neither counts

    @property
    def number(self) -> float | None:
        """The value if it is a number and counts, else None."""
        return float(self.value) if self.other is None and not isinstance(self.value, str) else None


@immutable
class Copies:
    """How the values that several processes print for the same iterations differ, in one quantity."""

    num_iterations: int  # iterations that more than one process prints with this quantity
    num_differing: int  # those in which the copies are not the same number
    between_processes: float
    """The time of the slowest process over that of the fastest one, less 1, summed over the iterations that each shares with the
    process printed first, so that jitter cancels. Or the share that the times of a process with fewer than half of the iterations
    would add to the whole, if that is more."""
    line_numbers: tuple[int, int]
    """Lines of the fastest and the slowest copy where the difference is largest; (0, 0) where none differs."""


@immutable
class Attempt:
    """The records of one start of the training program; iterations rise."""

    facts: Mapping[str, Fact] = field(default_factory=dict)
    """By the names of `quantity.FACTS`, and of what only some dialects find: precision, least_parameters, tokens_vary, curriculum_length."""
    records: Records = NO_RECORDS
    """The intervals in the order of the log; where several processes print them, those of the slowest one."""
    copies: Mapping[str, Copies] = field(default_factory=dict)
    """By the times and rates of `record.ROW` that several processes print; empty where one process prints all."""
    num_lost: int = 0  # training lines without a time that can be read, whose iterations no other line gives
    num_unreadable: int = 0  # lines with the names of a training line of which a part or all cannot be read
    unreadable: tuple[int, ...] = ()  # numbers of the first of these lines, ascending

    def fact(self, name: str) -> float | None:
        """Return the number that the log states for `name`, None where it states none or two different ones."""
        return self.facts[name].number if name in self.facts else None

    def count(self, name: str) -> int | None:
        """Return the fact as a whole number above 0, None where the log states none."""
        value = self.fact(name)
        return int(value) if value and value > 0 else None


@immutable(kw_only=False)
class Event:
    """Something other than training that a line of the log mentions."""

    kind: str  # "evaluation", "checkpoint" (one that was written), "profiler" or LOAD
    offset: int  # byte offset of its line in the file, after decompression
    line_number: int  # line of the file, counted from 1


LOAD = "load"  # a checkpoint was loaded: the training goes on with a later iteration


@immutable(kw_only=False)
class EndMark:
    """A line that shows how a program ended (`logs.end_marks`)."""

    outcome: Outcome  # what it means: VALID where the program logs that its training is done
    offset: int  # byte offset of the line in the file, after decompression
    line_number: int  # line of the file, counted from 1
    text: str  # the line, or the exception in it
    num_done: float | None = None  # iterations that it says were trained, inf for all; None where it does not say
    stamp_s: float | None = None  # its time of day, as that of a record


@immutable(kw_only=False)
class Refusal:
    """Why a log of a known dialect gives no tokens per second."""

    reason: str  # one sentence
    missing: tuple[str, ...] = ()  # facts (names of `quantity.OPTIONS`) that the command line could supply


@immutable
class Log:
    """The content of one file."""

    dialect: str | None  # name of the dialect, None when no record was found
    attempts: tuple[Attempt, ...]  # starts of the program with at least one record, in the order of the file
    num_bytes: int  # bytes after decompression
    counts_from: int = 1  # number of the first iteration of a training in this dialect
    refusal: Refusal | None = None  # why the log as a whole gives no number, even where it has records
    remarks: tuple[str, ...] = ()  # sentences of the dialect on its numbers
    doubts: tuple[str, ...] = ()  # those by which the numbers prove nothing
    num_unreadable: int = 0
    """Lines with the names of a training line of which a part or all cannot be read: cut, spliced, in unknown digits, a time or rate of 0,
    below 0 or not finite."""
    num_echoes: int = 0  # records that another process had already printed
    damage: str | None = None  # why not all was read (a cut compressed file), None if it was
    table: str = ""  # why a table of metrics gives no record, with its columns; empty for any other log
    settings: Mapping[str, Fact] = field(default_factory=dict)
    """The program's settings and versions, by the names of `logs.common`; the last value counts."""
    changes: Mapping[str, Sequence[Fact]] = field(
        default_factory=dict
    )  # all values that a setting has had, in their order
    starts: tuple[int, ...] = ()  # lines in which the program says that it starts, where a record may stand before it
    events: tuple[Event, ...] = ()  # evaluations, checkpoints and profiled iterations, in the order of the log
    loads: tuple[Event, ...] = ()  # lines that tell of a loaded checkpoint, in the order of the log
    ends: tuple[EndMark, ...] = ()  # end marks in the order of the log; of very many the last ones

    @cached_property
    def num_records(self) -> int:
        """Records of all attempts."""
        return sum(len(attempt.records) for attempt in self.attempts)

    def settings_of(self, attempt: Attempt) -> Mapping[str, Fact]:
        """Return the settings that hold for an attempt: the last ones before the program started again behind it."""
        last = int(attempt.records.numbers.max())
        end = next((start for start in self.starts if start > last), None)
        if end is None:
            return self.settings
        known = {name: [fact for fact in facts if fact.line_number < end] for name, facts in self.changes.items()}
        return {name: facts[-1] for name, facts in known.items() if facts}

    def numbered(self, attempts: Sequence[Attempt]) -> dict[int, Records]:
        """Return the records of some of the attempts, by the attempt's number in the file, from 1."""
        chosen = set(map(id, attempts))
        return {number: each.records for number, each in enumerate(self.attempts, 1) if id(each) in chosen}

    @cached_property
    def first_offsets(self) -> list[int]:
        """Byte offset of each attempt's first record, ascending."""
        return [int(attempt.records.offsets[0]) for attempt in self.attempts]
