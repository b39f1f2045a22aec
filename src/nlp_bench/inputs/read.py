"""Reads one item to runs; among many items an error affects only its own."""

import contextlib
import re
import shlex
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from nlp_bench.bytecode import cut_bytecode
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.escape import one_line, shortened, some
from nlp_bench.files import read_object
from nlp_bench.immutable import immutable
from nlp_bench.inputs.find import FAMILY, Item, Kind
from nlp_bench.inputs.reference import read_reference_table
from nlp_bench.logs.reader import Progress
from nlp_bench.logs.record import FIRST_RECORDS
from nlp_bench.logs.source import HEAD_BYTES, is_packed, open_log
from nlp_bench.measure.curves import curves_of
from nlp_bench.measure.foreign import NOTHING
from nlp_bench.measure.provenance import LogPosition
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.measure.trace import trace_of
from nlp_bench.outcome import Outcome
from nlp_bench.packages import lacking
from nlp_bench.reason import Reason
from nlp_bench.rules.apply import judged, measured_folder, measured_log
from nlp_bench.terminal import say
from nlp_bench.walk import TOP

_MAX_SOURCES = 10


def refusal_of_record(path: Path, source: str) -> RunResult | None:
    """Return the refusal of a record, shown as `source`, with what to give in its place; None for a file that is no record of ours."""
    record = read_object(path)
    schema = str(record.get("schema"))
    if not schema.startswith(FAMILY):
        return None
    runs = record.get("runs", [record.get("run")])
    runs = runs if isinstance(runs, list) else []
    named = [str(run["source"]) for run in runs if isinstance(run, dict) and "source" in run]
    sources = list(dict.fromkeys(named)) if not (path.parent / "run.json").is_file() else [str(path.parent)]
    reason = f"a record of nlp-bench ({schema}), which holds no log lines to derive its numbers from"
    if sources:
        command = some(map(shlex.quote, sources), _MAX_SOURCES, " ")
        reason += f"; give what it was made from, with the same options: nlp-bench report {command}"
    elif schema.startswith(f"{FAMILY}bid/"):
        reason += "; a bid is predicted: give the logs of a run that proves it, or hold two sheets side by side, by eye"
    elif schema.startswith(f"{FAMILY}rehearsal/"):
        reason += "; a rehearsal has no times: give the logs of a run"
    page = path.with_suffix(".html")
    if page.is_file():
        reason += f"; its table is in {page}"
    return RunResult(source=source, outcome=Outcome.REFUSED, reasons=(Reason("earlier-record", one_line(reason)),))


MAX_BYTES = 4096
MAX_LENGTH = 600


def with_quotes(path: str, entry: RunResult) -> RunResult:
    """Return `entry` with the text of its first record and of the window's first one; unchanged where it cannot be read, or is compressed (offsets count decompressed bytes)."""
    found = entry.provenance
    if found is None or path == "-" or not Path(path).is_file():
        return entry
    first, window = (_quoted(path, place) for place in (found.first_record, found.window_first_record))
    return replace(entry, provenance=replace(found, first_record=first, window_first_record=window))


def _quoted(path: str, place: LogPosition | None) -> LogPosition | None:
    if place is None:
        return None
    try:
        with Path(path).open("rb") as stream:
            if is_packed(stream.read(HEAD_BYTES)):
                return place
            stream.seek(place.offset)
            line = stream.readline(MAX_BYTES)
    except OSError:
        return place
    text = " ".join(one_line(line.decode(errors="replace")).split())
    return replace(place, text=shortened(text, MAX_LENGTH))


def lean(entry: RunResult) -> RunResult:
    """Return `entry` without samples. One without a provenance keeps them: nothing else shows where its numbers are from."""
    if entry.provenance is None:
        return entry
    # Copied: a view would keep all of them alive. The first ones identify the run.
    every = range(len(entry.records))
    records = entry.records.chosen(np.array(sorted({*every[:FIRST_RECORDS], *every[-1:]}), dtype=np.intp))
    throughput = entry.throughput.without_samples() if entry.throughput else None
    trace = trace_of(entry.records) if throughput else None
    return replace(entry, records=records, attempts={}, throughput=throughput, trace=trace)


SNIFFED_BYTES = 8192


@immutable
class ReadOptions:
    """How items are read."""

    overrides: Overrides  # sizes of the command line, for logs that do not state them
    is_alone: bool = False  # whether there is only one item: its error is then that of the whole command
    with_quotes: bool = False  # whether to read the text of the first records
    with_samples: bool = False  # whether to return the points of plots, not only the sums
    with_records: bool = False
    rules: str | None = None  # path of the rules for the runs (`rules.apply.wanted`); None for the default of each


@immutable
class Read:
    """The result of one item."""

    entries: tuple[RunResult, ...] = ()  # its runs; none for a file found below a folder that is no log
    is_binary: bool = False  # whether it was skipped because its first bytes are no text


def read_item(item: Item, options: ReadOptions, progress: Progress | None = None) -> Read:
    """Read `item`. Raises NlpBenchError only when it is alone: among others its error becomes a row."""
    if options.is_alone:
        return _read(item, options, progress)
    try:
        return _read(item, options, progress)
    except NlpBenchError as error:
        return broken(item, str(error), options)
    except OSError as error:
        return broken(item, f"cannot read {error.filename or item.path}: {explained(error)}", options)
    except ImportError as error:
        if needed := lacking(error, "reading it"):
            return broken(item, str(needed).replace("\n  ", ": "), options)
        raise
    except Exception as error:  # a bug that one log triggers must not cost the other 9999
        if why := cut_bytecode(error):
            raise NlpBenchError(why) from error
        return broken(item, f"reading failed: {type(error).__name__}: {error}", options)


def broken(item: Item, reason: str, options: ReadOptions) -> Read:
    """Return the row of an item that could not be read."""
    outcome = Outcome.UNKNOWN if item.kind is Kind.RUN else Outcome.REFUSED
    why = Reason("unreadable", one_line(reason))
    return _judged(RunResult(source=one_line(item.path), outcome=outcome, reasons=(why,)), options=options)


def _judged(*entries: RunResult, options: ReadOptions) -> Read:
    """Return runs that were not measured, judged by the rules of the options."""
    return Read(entries=tuple(judged(entry, rules=options.rules) for entry in entries))


def _read(item: Item, options: ReadOptions, progress: Progress | None) -> Read:
    if item.kind in {Kind.BROKEN, Kind.STEP}:
        raise UsageError(item.problem)
    if item.kind is Kind.TABLE:
        return _judged(*read_reference_table(item.file), options=options)
    if item.kind is Kind.RECORD and (refusal := refusal_of_record(item.file, one_line(item.path))):
        return _judged(refusal, options=options)
    if item.kind is Kind.RUN:
        entries = [_read_run(item, options)]
    elif item.is_found and _is_binary(item.path):
        return Read(is_binary=True)
    elif item.is_regular and _REPORT.match(_head(item.path)):
        reason = "a report of nlp-bench, which quotes lines of the logs that it was made from; give those logs"
        return Read() if item.is_found else broken(item, reason, options)
    else:
        with _said_while_open(item.path):
            entries = measured_log(item.path, options.overrides, progress, rules=options.rules)
        entries = [] if item.is_found and all(map(_has_no_training_line, entries)) else entries
    if options.with_quotes:
        entries = [with_quotes(str(item.file), entry) for entry in entries]
    if options.with_samples:
        entries = [replace(e, curves=curves_of(e.records, e.throughput)) if e.throughput else e for e in entries]
    return Read(entries=tuple(entries if options.with_records else map(lean, entries)))


EXPLAINED = "nlp-bench report --explain: each number, and the log lines that it is from"
"""The first line of what `--explain` prints: it quotes training lines, and is no log."""
_REPORT = re.compile(
    EXPLAINED.encode()
    + rb"|(?: [^\n]*\n)?source +(?:model +)?outcome  |source,(?:model,)?outcome,|# nlp-bench report\n|<!DOCTYPE html>[^\0]{,4000} - nlp-bench report</title>"
)
"""How reports that quote training lines begin: those of `--explain`, the table in a bundle, the files of `--output`."""


OPEN_S = 10.0  # after which it is said that standard input has not ended


@contextlib.contextmanager
def _said_while_open(path: str) -> Iterator[None]:
    """Say, once, that standard input is still read: one that is followed never ends."""
    if path != "-":
        yield
        return
    text = "standard input is read until it ends; one that is followed (tail -f, kubectl logs -f) never does: give the log itself"
    timer = threading.Timer(OPEN_S, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _has_no_training_line(entry: RunResult) -> bool:
    # A second reason is about something that was read: torn records, a cut compressed stream.
    return entry.dialect is None and len(entry.reasons) == 1 and entry.reasons[0].code in NOTHING


_MOST_NULS = 1 << 26  # bytes of NULs at the front that are looked behind: a log cut while its job writes begins so
_CONTROL = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")  # in no text; a terminal's escapes are
_LEAST_HOLE = 4  # bytes of text per stretch of NULs, at least: numbers and UTF-16 have one behind each character


def _is_binary(path: str) -> bool:
    """Whether the first bytes, decompressed, are no text, as those of checkpoints, images and event files; a text may have holes of NULs."""
    head = _head(path)
    is_compressed = is_packed(head)
    if not is_compressed and b"\0" not in head:
        return False
    with open_log(path) as source:
        for block in source.blocks():
            text = bytes(block.data[block.begin : block.end]).lstrip(b"\0")[:SNIFFED_BYTES]
            if text:
                plain, holes = text.replace(b"\0", b""), len(re.findall(rb"\0+", text))
                return holes > 0 and (bool(_CONTROL.search(plain)) or len(plain) < _LEAST_HOLE * holes)
            if block.offset > _MOST_NULS:
                return True
        # Nothing but NULs, a bundle of ours, or an archive that is not read.
        return source.num_bytes > 0 or not is_compressed or source.member.startswith(f"{TOP}/".encode())


def _head(path: str) -> bytes:
    try:
        with Path(path).open("rb", buffering=0) as stream:
            return stream.read(SNIFFED_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _read_run(item: Item, options: ReadOptions) -> RunResult:
    try:
        entry = measured_folder(item.folder, one_line(item.path), rules=options.rules).entry
    except NlpBenchError as error:
        # An unfinished or damaged run is a row, also when it is alone: `report` shows how runs ended.
        return broken(item, str(error), options).entries[0]
    if options.overrides == Overrides():
        return entry
    ignored = (
        "--sequence-length, --global-batch-size and --num-gpus are for logs without a run.json, and are not used here"
    )
    return replace(entry, remarks=(*entry.remarks, ignored))
