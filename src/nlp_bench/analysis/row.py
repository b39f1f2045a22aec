"""One run of the history: which run it is, what the columns of its row hold, and how rows are shown."""

import datetime as dt
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from nlp_bench.analysis.repeats import (
    Observation,
    Pool,
    Starts,
    different_runs,
    digest,
    digest_of,
    grouped,
    identity_of,
    too_alike_line,
)
from nlp_bench.config.table import build, check_types
from nlp_bench.errors import UsageError
from nlp_bench.escape import one_line
from nlp_bench.files import parse_json, read_object
from nlp_bench.immutable import immutable
from nlp_bench.logs.clean import HEAD_BYTES, has_zone, stamp_s
from nlp_bench.logs.source import open_log
from nlp_bench.measure import REPORT_TOKENS
from nlp_bench.measure.estimate import Estimate, Uncertainty
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.trace import Kin, Trace
from nlp_bench.measure.workload import Setting, lookup
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.seal import LOG, OUTCOME, RUN
from nlp_bench.show.table import as_text, columns_of
from nlp_bench.walk import is_run

_BLOCK_BYTES = 1 << 20


def key_of(entry: RunResult) -> str:
    """Return the SHA-256 of run.json and log; of several runs in one log, each with its first record.

    An entry without a file (standard input) is identified by its numbers, a run of ours that left no record by its outcome too: the
    run.json of two repeats is the same.
    """
    found = hashlib.sha256()
    files = files_of(entry)
    for path in files:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                found.update(block)
        found.update(b"\0")
    first = entry.provenance.first_record if entry.provenance else None
    found.update(f"{first.line if first else None}".encode())
    folder = run_folder(entry)
    if folder and not first and (folder / OUTCOME).is_file():
        found.update((folder / OUTCOME).read_bytes())
    if not files:
        numbers = (entry.steady, entry.reference, entry.num_records, entry.throughput and entry.throughput.estimate)
        found.update(f"{digest(entry)} {numbers}".encode())
    return found.hexdigest()


def files_of(entry: RunResult) -> list[Path]:
    """Return run.json and log of a run folder of ours, the log of others; empty where there is no file of that name."""
    folder = run_folder(entry)
    paths = [folder / RUN, folder / LOG] if folder else [Path(entry.source)]
    return [path for path in paths if path.is_file()]


def run_folder(entry: RunResult) -> Path | None:
    """Return the run folder of ours that `entry` was read from, None for logs of others."""
    path = Path(entry.source)
    folder = path.parent if path.name == LOG else path
    return folder if is_run(folder) else None


_ESTIMATE, _OPENING, _TRACE, _STOPPED, _STARTS = "estimate", "opening", "trace", "stopped", "starts"
_DATED, _ENDED, _AT_END = "dated_by_file", "ended_s", "ending_seconds_per_token"
_WITH_YEAR_S = 978_307_200.0  # 2001 in seconds since 1970: a stamp without a year counts as in 2000
_CLOCKS_S = 86_400.0
"""By how much the clock, or the time zone, of where a run ended may be ahead of this one's: no run ends after it was added."""
_YEAR_9999_S = 253_370_764_800.0
"""Its first second: a stamp from then on is damaged, and no time zone moves an earlier one over the end of the calendar."""


@immutable
class Row:
    """One run."""

    id: int = 0  # its number in the file, 0 before it is there
    key: str  # which run it is: `key_of`
    name: str = ""  # given by the user, perhaps to several runs
    added: str = ""  # when it was added to the file, ISO 8601 with offset
    ended: str  # when the run ended, else when its log was last written; ISO 8601 with offset
    ended_s: float  # the same in seconds since 1970, to sort by
    source: str
    nlp_bench_commit: str | None = None  # of the checkout that ran it, where run.json has it
    job_id: str | None = None
    system: str | None = None
    model: str | None = None
    accelerator: str | None = None
    num_gpus: int | None = None
    identity: str  # short name of workload, configuration and machine: equal for repeats
    outcome: str
    tokens_per_second_reference: float | None = None  # by the published formula
    tokens_per_second_steady: float | None = None  # over the steady window
    ci95_low: float | None = None  # lower end of its 95 % interval, tokens per second
    ci95_high: float | None = None
    time_to_report_s: float | None = None  # seconds for 20 million tokens at the steady rate
    standard_error: float | None = None  # of the mean seconds per token within the run
    degrees: float | None = None
    num_intervals: int | None = None
    settings: str = "{}"  # JSON of what is known of workload, configuration and machine: name to [value, source]
    entry: str = "{}"
    """JSON of the run's object in nlp-bench/report/1, its `Estimate` as `estimate`, what its first records are known by as `opening`,
    lines by which its parts are known as `trace`, how its log says that it was ended early as `stopped`, what it says of several starts as `starts`, when it ended as `ended_s`, and as `dated_by_file` whether
    nothing but its file says when it ended."""

    @property
    def is_dated_by_file(self) -> bool:
        """Say whether its time is only that of its file, which a copy has anew."""
        return bool(json.loads(self.entry).get(_DATED))

    @property
    def what(self) -> str:
        """Short label: model, machine and ranks."""
        ranks = f"{self.num_gpus} {'CPU' if self.accelerator == 'cpu' else 'GPUs'}" if self.num_gpus else None
        return one_line(", ".join(word for word in (self.model, self.system, ranks) if word)) or "not stated"

    @property
    def ci95(self) -> tuple[float, float] | None:
        """95 % interval of the steady rate within the run."""
        return (self.ci95_low, self.ci95_high) if self.ci95_low and self.ci95_high else None

    def check(self, columns: Sequence[str], where: str) -> None:
        """Raise UsageError for the first of `columns`, read from a file, that has another type, or another value than its own record states."""
        values = {name: getattr(self, name) for name in columns}
        check_types(Row, values, where)
        wrong = [(name, "there is a value in each row") for name in _REQUIRED if values.get(name, "") is None]
        wrong += [(name, "it is above 0") for name in _ABOVE_0 if values.get(name) is not None and values[name] <= 0]
        if self.outcome not in _OUTCOMES:
            wrong.append(("outcome", f"an outcome is one of {', '.join(sorted(_OUTCOMES))}"))
        if "entry" in values and not wrong:
            stated = self._stated(where)
            wrong = [(name, f"its own record says {one!r}") for name, one in stated.items() if values[name] != one]
        for name, why in wrong:
            raise UsageError(f"{where}.{name}: it is {str(values[name])[:80]!r}, but {why}")

    def _stated(self, where: str) -> dict[str, Any]:
        """Return the columns that `entry` and `settings` state. Raises UsageError for a part of them that has another form than ours."""
        record, settings = (_object(getattr(self, name), f"{where}.{name}") for name in ("entry", "settings"))
        check_types(_Kept, record, f"{where}.entry")
        check_types(_Settings, {"settings": [*settings.values()]}, where)
        try:
            if parts := record.get(_ESTIMATE):
                build(Estimate, parts, f"{where}.entry.estimate")
            known, stated = self.observation().settings, _stated_by(record)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{where}.entry or .settings: a part of it has another form: {error}") from None
        identity = {"identity": digest_of(identity_of(known))} if known else {}
        # The time of a file may be that of a copy: of several the earlier one stays.
        ended = {_ENDED: record[_ENDED]} if record.get(_ENDED) and not record.get(_DATED) else {}
        return stated | identity | ended

    def observation(self) -> Observation:
        """Return the run as one observation, as `Observation.of` does with a fresh entry, without the sizes that a person overruled; a row of before its slower end was kept lacks that too."""
        rate, estimate, where = self.tokens_per_second_steady, None, f"history run {self.id}"
        entry: dict[str, Any] = json.loads(self.entry)
        if parts := entry.get(_ESTIMATE):
            made_of = parts.get("uncertainty")
            estimate = Estimate(**{**parts, "uncertainty": Uncertainty(**made_of) if made_of else None})
        known: dict[str, Any] = json.loads(self.settings)
        return Observation(
            source=f"{where}: {self.source}",
            outcome=Outcome(self.outcome),
            seconds_per_token=1 / rate if rate else None,
            estimate=estimate,
            num_intervals=self.num_intervals,
            settings={name: Setting(value, f"{where}, {source}") for name, (value, source) in known.items()},
            program=entry.get("dialect"),
            reasons=tuple(entry.get("reasons", ())),
            doubts=tuple(Reason(**found) for found in entry.get("doubts", ())) if rate else (),
            sustained_tokens_per_second=(entry.get("sustained") or {}).get("tokens_per_second"),
            ending_seconds_per_token=entry.get(_AT_END),
            stopped=entry.get(_STOPPED),
            starts=_starts(*said) if (said := entry.get(_STARTS)) else None,
            opening=entry.get(_OPENING),
            trace=Trace.from_json(found) if (found := entry.get(_TRACE)) else None,
            key=self.key,
        )


@immutable
class _Rates:
    reference: float | None
    steady: float | None
    ci95: tuple[float, ...] | None


@immutable
class _Window:
    num_records: int


@immutable
class _Sustained:
    tokens_per_second: float | None


@immutable
class _TraceKept:
    quantity: str
    lines: tuple[tuple[float, ...], ...]
    first: tuple[float | None, ...]
    last: tuple[float | None, ...]
    step: int
    period_s: float | None


@immutable
class _Settings:
    settings: tuple[tuple[str | float | bool | None, ...], ...]


@immutable
class _Kept:
    """What is read of `Row.entry`, with its types."""

    outcome: str
    dialect: str | None
    reasons: tuple[str, ...]
    doubts: tuple[Reason, ...]
    num_gpus: int | None
    tokens_per_second: _Rates
    time_to_report_s: _Rates
    window: _Window | None
    sustained: _Sustained | None
    opening: str | None
    estimate: Estimate | None
    trace: _TraceKept | None
    stopped: str | None
    starts: tuple[str | float, ...] | None
    ending_seconds_per_token: float | None
    dated_by_file: bool
    ended_s: float | None


def _stated_by(record: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that the record of a run, `Row.entry`, states."""
    rates, times, estimate, window = (
        record.get(name) or {} for name in ("tokens_per_second", "time_to_report_s", _ESTIMATE, "window")
    )
    low, high = rates.get("ci95") or (None, None)
    return {
        "outcome": record.get("outcome"),
        "num_gpus": record.get("num_gpus"),
        "tokens_per_second_reference": rates.get("reference"),
        "tokens_per_second_steady": rates.get("steady"),
        "ci95_low": low,
        "ci95_high": high,
        "time_to_report_s": times.get("steady"),
        "standard_error": estimate.get("standard_error"),
        "degrees": estimate.get("degrees"),
        "num_intervals": window.get("num_records"),
    }


def _starts(text: str, slower: float) -> Starts:
    return Starts(text, float(slower))


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{where}: it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{where}: {text[:40]!r} is no JSON object")
    return found


_OUTCOMES = {outcome.value for outcome in Outcome}
_REQUIRED = ("id", "key", "name", "added", "ended", "ended_s", "source", "identity", "outcome", "settings", "entry")
_ABOVE_0 = (
    "num_gpus", "tokens_per_second_reference", "tokens_per_second_steady", "ci95_low", "ci95_high", "time_to_report_s", "degrees",
    "num_intervals",
)  # fmt: skip
COLUMNS = tuple(field.name for field in fields(Row))
SHORT = tuple(name for name in COLUMNS if name not in {"settings", "entry"})  # without the two long texts


def row_of(entry: RunResult, *, name: str, added: str) -> Row:
    """Return the row of a run that a report has read."""
    run = Observation.of(entry)
    estimate, system = run.estimate, run.settings.get("system")
    kept: dict[str, Any] = {
        _ESTIMATE: asdict(estimate) if estimate else None,
        _OPENING: run.opening,
        _STOPPED: run.stopped,
        _STARTS: run.starts,
        _AT_END: run.ending_seconds_per_token,
    }
    kept[_TRACE] = run.trace.to_json() if run.trace else None
    folder, files = run_folder(entry), files_of(entry)
    requested, ending = (read_object(folder / file) if folder else {} for file in (RUN, OUTCOME))
    present = dt.datetime.fromisoformat(added)
    moment = _moment(ending.get("ended")) or _last_stamp(entry, files[-1] if files else None)
    # A machine that has just started may not know the year: then nothing is later than now.
    latest_s = present.timestamp() if present.timestamp() >= _WITH_YEAR_S else math.inf
    if moment and not _WITH_YEAR_S <= moment.timestamp() <= latest_s + _CLOCKS_S:
        moment = None  # by a node whose clock is years off
    kept[_DATED] = moment is None and bool(files)
    if moment is None and files and (written_s := files[-1].stat().st_mtime) >= _WITH_YEAR_S:
        moment = dt.datetime.fromtimestamp(min(written_s, latest_s), dt.timezone.utc).astimezone()
    moment = moment or present
    kept[_ENDED] = moment.timestamp()
    record = {**entry.to_json(REPORT_TOKENS), **kept}
    row = Row(
        key=key_of(entry),
        name=name,
        added=added,
        ended=moment.isoformat(timespec="seconds"),
        ended_s=kept[_ENDED],
        # Absolute: the history is read from other folders.
        source=str(Path(entry.source).absolute()) if Path(entry.source).exists() else entry.source,
        nlp_bench_commit=_text(lookup(requested, "nlp_bench.commit")),
        job_id=_text(ending.get("job_id")),
        system=_text(system.value if system else None),
        model=entry.model,
        accelerator=entry.accelerator,
        identity=digest(entry),
        **_stated_by(record),
        settings=json.dumps({key: [found.value, found.source] for key, found in run.settings.items()}),
        entry=json.dumps(record),
    )
    # SQLite takes UTF-8 alone: a path of other bytes has them as escapes.
    texts = {name: getattr(row, name) for name in COLUMNS if isinstance(getattr(row, name), str)}
    changed = {name: text.encode("utf-8", "backslashreplace").decode() for name, text in texts.items()}
    return replace(row, **changed)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _moment(text: object) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(str(text))
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError):  # no time, or one at an end of the calendar that no time zone has
        return None


def _last_stamp(entry: RunResult, log: Path | None) -> dt.datetime | None:
    """Return when the last line that states a time was written, None where none does with its year. A time without a zone is of this machine's."""
    stamps = entry.records.column("stamp_s").tolist()
    last = next((index for index in reversed(range(len(stamps))) if math.isfinite(stamps[index])), None)
    if last is None or not _WITH_YEAR_S <= stamps[last] < _YEAR_9999_S:
        return None
    moment = dt.datetime.fromtimestamp(stamps[last], dt.timezone.utc)
    line = _line_at(log, int(entry.records.offsets[last])) if log else b""
    if not has_zone(line) and stamp_s(line) == stamps[last]:
        moment = moment.replace(tzinfo=None)
    return moment.astimezone()


def _line_at(log: Path, offset: int) -> bytes:
    """Return the first bytes of the line at `offset`, which counts unpacked ones."""
    with open_log(str(log)) as source:
        for block in source.blocks():
            at = block.begin + offset - block.offset
            if at < block.end:
                return bytes(block.data[at : at + HEAD_BYTES])
    return b""


_MOST_DOUBTED = 10


def without_copies(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return the runs, each once and in their order, which others are copies of them, and what speaks against their numbers; of rows with all columns."""
    measured = [(row, row.observation()) for row in rows if row.tokens_per_second_steady]
    doubted = [f"run {row.id} is counted, and in doubt: {run.doubts[0]}" for row, run in measured if run.doubts]
    groups = grouped(measured, lambda pair: pair[0].identity)
    found = [different_runs(run for _, run in group) for group in groups]
    kin = {run.key: why for _, copies in found for run, why in copies}
    said = []
    for is_part in (False, True):
        of_kind = sorted(row.id for row in rows if row.key in kin and (kin[row.key] is Kin.PARTS) is is_part)
        what = Kin.PARTS.value if is_part else "a copy of another run, whole or cut: counted once"
        more = ", ..." if len(of_kind) > 10 else ""
        said += [f"run {', '.join(map(str, of_kind[:10]))}{more}: {what}"] if of_kind else []
    said += doubted[:_MOST_DOUBTED]
    said += [f"{len(doubted) - _MOST_DOUBTED} more are in doubt"] if len(doubted) > _MOST_DOUBTED else []
    pools = [Pool(runs=tuple(runs)) for runs, _ in found]
    said += [f"{pool.runs[0].source}: {line}" for pool in pools if (line := too_alike_line(pool))]
    return [row for row in rows if row.key not in kin], said


_RIGHT = {
    "id", "tokens/s", "95 % interval", "time s", "runs", "failed", "levels", "level tokens/s", "latest", "against level",
}  # fmt: skip


def table(lines: Sequence[dict[str, str]]) -> str:
    """Return lines, whose keys are the headings, as a table; nothing for no line."""
    columns = columns_of([list(line.items()) for line in lines], lines[0].keys() - _RIGHT if lines else ())
    return "\n".join(as_text(columns)) + "\n" if lines else ""
