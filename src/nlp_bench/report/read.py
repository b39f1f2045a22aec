"""One item to entries: what goes wrong with one of many stays with that one."""

from dataclasses import dataclass, replace
from pathlib import Path

from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.logs.reader import Progress
from nlp_bench.logs.source import is_packed, open_log
from nlp_bench.measure.curves import curves_of
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.foreign import NOTHING, measure_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.report.earlier import refused
from nlp_bench.report.find import Item, Kind
from nlp_bench.report.lean import lean
from nlp_bench.report.quote import with_quotes
from nlp_bench.show.escape import one_line

SNIFFED_BYTES = 8192


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is wanted of every item."""

    overrides: Overrides
    """What the command line adds to logs that do not say it."""
    is_alone: bool = False
    """Whether there is only one item: its fault is then that of the whole command."""
    with_quotes: bool = False
    """Whether the text of the first records is wanted."""
    with_samples: bool = False
    """Whether the points of plots are wanted, and not only the sums."""
    with_records: bool = False
    """Whether every sample is wanted."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """What one item gave."""

    entries: tuple[RunEntry, ...] = ()
    """Its runs; none for a file that was only found and is no log."""
    is_binary: bool = False
    """Whether it was passed over because its first bytes are no text."""


def read_item(item: Item, wish: Wish, progress: Progress | None = None) -> Read:
    """Read `item`. Raises NlpBenchError only when it is alone: among others its fault becomes a row."""
    if wish.is_alone:
        return _read(item, wish, progress)
    try:
        return _read(item, wish, progress)
    except NlpBenchError as error:
        return broken(item, str(error))
    except OSError as error:
        return broken(item, f"cannot read {error.filename or item.path}: {explained(error)}")
    except Exception as error:  # noqa: BLE001  # a fault of this program in one log must not cost the other 9999
        return broken(item, f"reading failed: {type(error).__name__}: {error}")


def broken(item: Item, reason: str) -> Read:
    """Return the row of an item that could not be read."""
    outcome = Outcome.UNKNOWN if item.kind is Kind.RUN else Outcome.REFUSED
    why = Reason("unreadable", one_line(reason))
    return Read(entries=(RunEntry(source=one_line(item.path), outcome=outcome, reasons=(why,)),))


def _read(item: Item, wish: Wish, progress: Progress | None) -> Read:
    if item.kind is Kind.BROKEN:
        raise UsageError(item.problem)
    if item.kind is Kind.TABLE:
        from nlp_bench.report.reference import read_reference_table  # noqa: PLC0415  # few need it

        return Read(entries=tuple(read_reference_table(item.file)))
    if item.kind is Kind.RECORD and (earlier := refused(item.file, one_line(item.path))):
        return Read(entries=(earlier,))
    if item.kind is Kind.RUN:
        entries = [_read_run(item, wish.overrides)]
    elif item.is_found and _is_binary(item.path):
        return Read(is_binary=True)
    else:
        entries = measure_log(item.path, wish.overrides, progress)
        entries = [] if item.is_found and all(map(_is_silent, entries)) else entries
    if wish.with_quotes:
        entries = [with_quotes(str(item.file), entry) for entry in entries]
    if wish.with_samples:
        entries = [replace(e, curves=curves_of(e.records, e.throughput)) if e.throughput else e for e in entries]
    return Read(entries=tuple(entries if wish.with_records else map(lean, entries)))


def _is_silent(entry: RunEntry) -> bool:
    # A second reason tells of something in the file that was read: torn records, a cut compressed stream.
    return entry.dialect is None and len(entry.reasons) == 1 and entry.reasons[0].code in NOTHING


def _is_binary(path: str) -> bool:
    """Say whether the first bytes, unpacked, hold a NUL: checkpoints, images and event files do, text does not."""
    try:
        with Path(path).open("rb", buffering=0) as stream:
            head = stream.read(SNIFFED_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if is_packed(head):
        with open_log(path) as source:
            block = next(source.blocks(), None)
            head = bytes(block.data[block.begin : min(block.end, block.begin + SNIFFED_BYTES)]) if block else b""
    return b"\0" in head


def _read_run(item: Item, overrides: Overrides) -> RunEntry:
    from nlp_bench.measure.folder import measure_folder  # noqa: PLC0415  # logs of others do not need it

    try:
        entry = measure_folder(item.folder, one_line(item.path)).entry
    except NlpBenchError as error:
        # An unfinished or damaged run stays a row, also when it is alone: `report` shows what became of runs.
        why = Reason("unreadable", one_line(error))
        return RunEntry(source=one_line(item.path), outcome=Outcome.UNKNOWN, reasons=(why,))
    if overrides == Overrides():
        return entry
    ignored = (
        "--sequence-length, --global-batch-size and --num-gpus are for logs without a run.json, and are not used here"
    )
    return replace(entry, remarks=(*entry.remarks, ignored))
