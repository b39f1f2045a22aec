"""Where each number of a run comes from: lines and bytes of the log, options, derivations, and what was left out."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field

import numpy as np

from nlp_bench.escape import from_to
from nlp_bench.immutable import immutable
from nlp_bench.logs.quantity import OPTIONS
from nlp_bench.logs.record import Attempt, Column, Log, Records
from nlp_bench.measure import Json, Texts
from nlp_bench.measure.series import Mask, Numbers, finite
from nlp_bench.measure.sizes import Overrides, Sizes
from nlp_bench.measure.throughput import Throughput

_MAX_STARTS = 50  # of more starts than these the sum alone is named: a log may have thousands


@immutable(kw_only=False)
class LogPosition:
    """Where one record stands in the log."""

    iteration: int  # the last iteration that the record covers
    line: int
    offset: int  # byte at which that line begins, after decompression
    text: str | None = None  # the line itself, where a person wants to see it; no part of the record

    def to_json(self) -> dict[str, int]:
        """Return where it stands."""
        return {"iteration": self.iteration, "line": self.line, "offset": self.offset}


@immutable(kw_only=False)
class Origin:
    """One quantity that a number was computed from."""

    value: float | int | None  # in the unit of its name; None where it is not known or changes from record to record
    source: str | None
    """`log line N`, `log lines N to M`, `command line --option`, `run.json` or `derived: how`; None where not known."""
    is_logged: bool = False  # whether lines of the log state it


@immutable(kw_only=False)
class LeftOut:
    """Something in the log that no number was computed from."""

    what: str
    count: int
    why: str
    lines: tuple[int, int] | None = None  # first and last line, where they stand together


@immutable
class Arithmetic:
    """The few numbers that the two rates are computed from, for a pocket calculator."""

    tokens_per_iteration: float | None  # of the reference value; None where the log gives none
    mean_s: float | None  # mean of all times, the divisor of the reference value
    num_times: int
    window_tokens: float  # tokens of the steady window, the dividend; a sum of rates where the log has rates alone
    window_seconds: float  # seconds of the steady window; the number of its iterations where the log has rates alone
    window_iterations: int


@immutable
class Provenance:
    """All of it for one run."""

    first_record: LogPosition | None = None
    last_record: LogPosition | None = None
    window_first_record: LogPosition | None = None  # the first record of the steady window
    window_last_record: LogPosition | None = None
    quantities: Mapping[str, Origin] = field(default_factory=dict)  # by name with its unit; none: not measured
    arithmetic: Arithmetic | None = None  # None where nothing was measured
    left_out: tuple[LeftOut, ...] = ()
    remarks: Texts = ()  # what the dialect has to say about its numbers

    def to_json(self) -> Json:
        """Return the `provenance` object of nlp-bench/report/1."""
        positions = ("first_record", "last_record", "window_first_record", "window_last_record")
        return {
            **{name: place.to_json() if (place := getattr(self, name)) else None for name in positions},
            "quantities": {name: {"value": one.value, "from": one.source} for name, one in self.quantities.items()},
            "arithmetic": asdict(self.arithmetic) if self.arithmetic else None,
            "left_out": [{**asdict(left), "lines": left.lines and list(left.lines)} for left in self.left_out],
            "remarks": list(self.remarks),
        }


def provenance_of(
    log: Log, attempt: Attempt | None, sizes: Sizes | None, throughput: Throughput | None, overrides: Overrides
) -> Provenance:
    """Return where the numbers of `attempt`, one of `log`, come from; it and `sizes` are None without a record, `throughput` without a number."""
    left_out = tuple(_left_out(log, attempt, throughput))
    if attempt is None or sizes is None or not len(attempt.records):
        return Provenance(left_out=left_out, remarks=log.remarks)
    window = throughput.window.spans.records if throughput else None
    return Provenance(
        first_record=_position(attempt.records, 0),
        last_record=_position(attempt.records, -1),
        window_first_record=_position(window, 0) if window else None,
        window_last_record=_position(window, -1) if window else None,
        quantities=_quantities(attempt, sizes, overrides),
        arithmetic=arithmetic_of(throughput) if throughput else None,
        left_out=left_out,
        remarks=log.remarks,
    )


def _position(records: Records, index: int) -> LogPosition:
    iteration = int(records.column("iteration")[index])
    return LogPosition(iteration, int(records.numbers[index]), int(records.offsets[index]))


def arithmetic_of(measured: Throughput) -> Arithmetic:
    """Return the numbers behind both rates; `measured` still has its samples."""
    sizes, window = measured.sizes, measured.window
    timed = np.isfinite(sizes.elapsed_s)
    return Arithmetic(
        tokens_per_iteration=float(sizes.tokens[timed][0]) if measured.reference else None,
        mean_s=sizes.mean_s if measured.reference else None,
        num_times=int(timed.sum()) if measured.reference else 0,
        window_tokens=window.num_tokens,
        window_seconds=window.seconds,
        window_iterations=int(window.spans.num_iterations.sum()),
    )


def _quantities(attempt: Attempt, sizes: Sizes, overrides: Overrides) -> dict[str, Origin]:
    """Return the quantities of one attempt, each with whoever states the value that was used as its source."""
    series = {"tokens_per_second": ("tokens_per_second", sizes.tokens, sizes.how_tokens)}
    if sizes.has_times:
        series = {
            "tokens_per_iteration": ("tokens", sizes.tokens, sizes.how_tokens),
            "seconds_per_iteration": ("elapsed_s", sizes.elapsed_s, sizes.how_time),
        }
    counts = {
        "sequence_length": ("sequence_length", sizes.how_sequence),
        "global_batch_size": ("global_batch_size", sizes.how_batch),
        "num_gpus": ("num_devices", "rate of the machine / rate of one device"),
    }
    found = {name: _of_series(attempt, *how) for name, how in series.items()}
    for name, (fact, how) in counts.items():
        value: int | None = getattr(sizes, fact)
        if value is not None and name in overrides.counts:
            found[name] = Origin(value, overrides.source(f"command line {OPTIONS[fact]}"))
        else:
            found[name] = _of_count(attempt, fact, value, how)
    if attempt.facts.get("log_interval"):
        found["log_interval"] = _of_fact(attempt, "log_interval", attempt.count("log_interval"))
    return found


def _of_series(attempt: Attempt, name: str, used: Column, how: str) -> Origin:
    """Return a quantity that each record has: its value only where it is the same for all."""
    values, stated = finite(used), attempt.records.column(name)
    value = float(values[0]) if len(values) and np.all(values == values[0]) else None
    is_stated = len(values) and np.array_equal(stated, used, equal_nan=True)
    return _stated(attempt, name, value, np.isfinite(stated) if is_stated else None, how if len(values) else "")


def _of_count(attempt: Attempt, name: str, value: int | None, how: str) -> Origin:
    """Return one of the three counts that a person could have given."""
    stated = attempt.records.column(name)
    is_stated = value in stated[stated > 0][-1:]
    return _stated(attempt, name, value, stated > 0 if is_stated else None, how if value is not None else "")


def _stated(attempt: Attempt, name: str, value: float | None, where: Mask | None, how: str) -> Origin:
    """Return a value with the lines `where` all records state it, else the one line that does, else how it was derived."""
    if where is not None:
        numbers = attempt.records.numbers[where]
        return Origin(value, from_to("log line", int(numbers[0]), int(numbers[-1])), is_logged=True)
    if value is not None and attempt.fact(name) == value:
        return _of_fact(attempt, name, value)
    return Origin(value, f"derived: {how}" if how else None)


def _of_fact(attempt: Attempt, name: str, value: float | None) -> Origin:
    line = attempt.facts[name].line_number
    return Origin(value, f"log line {line}" if line else "log, not a line of its own", is_logged=bool(line))


def _left_out(log: Log, attempt: Attempt | None, measured: Throughput | None) -> Iterator[LeftOut]:
    counted = (
        ("unreadable training line(s)", log.num_unreadable, "of these at most finished fields are used"),
        ("echo(es) of records", log.num_echoes, "another process had printed them already"),
    )
    yield from (LeftOut(what, count, why) for what, count, why in counted if count)
    if attempt is None or not len(attempt.records):
        return
    own = attempt.records.offsets
    if len(log.attempts) > _MAX_STARTS:
        own_start = bisect_right(log.first_offsets, int(own[0])) - 1
        count = log.num_records - len(log.attempts[own_start].records)
        yield LeftOut("record(s) of other starts of the program", count, "each start is a run")
    else:
        what, why = "record(s) of another start of the program", "each start is a run"
        for records in (each.records for each in log.attempts):
            if records.offsets[-1] < own[0] or records.offsets[0] > own[-1]:
                yield LeftOut(what, len(records), why, _ends(records.numbers))
    if measured is None:
        return
    if unusable := len(attempt.records) - measured.num_records:
        yield LeftOut("record(s)", unusable, "without a time or a size in tokens")
    iterations = measured.spans.records.column("iteration")
    for excluded in measured.window.excluded:
        first, last = excluded.first_iteration, excluded.last_iteration
        numbers = measured.spans.records.numbers[(iterations >= first) & (iterations <= last)]
        what, why = f"record(s) of iterations {first} to {last}", f"{excluded.why}, not in the steady value"
        yield LeftOut(what, len(numbers), why, _ends(numbers))


def _ends(numbers: Numbers) -> tuple[int, int] | None:
    return (int(numbers[0]), int(numbers[-1])) if len(numbers) else None
