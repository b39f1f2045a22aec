"""The file of the history: SQLite in write-ahead mode, with a lock file next to it, so that many processes and users may write and read.

Sources: https://www.sqlite.org/wal.html (write-ahead log; all writers on one host), https://www.sqlite.org/pragma.html
(application_id and user_version, by which the file says what it is and which version of its tables it has).
"""

import contextlib
import errno
import fcntl
import functools
import mmap
import os
import re
import shlex
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from nlp_bench.analysis.baseline import ACCEPTED, Decision, Judged, State, accepted, before_it, states
from nlp_bench.analysis.contrast import Word
from nlp_bench.analysis.levels import MIN_LEVEL
from nlp_bench.analysis.repeats import (
    Identity,
    Observation,
    apart_words,
    digest_of,
    identity_of,
    nearest,
    of_these,
)
from nlp_bench.analysis.row import COLUMNS, SHORT, Row, key_of, row_of
from nlp_bench.clock import now
from nlp_bench.errors import REMEDIES, NlpBenchError, UsageError, explained
from nlp_bench.escape import one_line, some
from nlp_bench.files import locked, reported_late, user_name
from nlp_bench.immutable import immutable
from nlp_bench.inputs.sources import read_sources
from nlp_bench.measure.result import refuse_against_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome

REMEDIES_OF_SQLITE = {
    "database is locked": "another process is writing it (`fuser FILE` names it); try again once it has ended",
    "database or disk is full": REMEDIES[errno.ENOSPC],
    "disk I/O error": f"{REMEDIES[errno.EIO]}; or {REMEDIES[errno.ENOSPC]}",  # a full disk gives this message, too
    "attempt to write a readonly database": "you may not write to it, or its file system can only be read: check the owner and the rights (`ls -ld`), or give another --file",
}
"""Messages by which SQLite replaces errors of the operating system, and the remedy of each."""

VERSION = 2
"""1 had no table of decisions."""
APPLICATION = 0x6E6C7062  # the letters nlpb
WAIT_S = 60.0
_TYPES = {
    "id": "INTEGER PRIMARY KEY", "key": "TEXT NOT NULL UNIQUE", "ended_s": "REAL", "num_gpus": "INTEGER",
    "tokens_per_second_reference": "REAL", "tokens_per_second_steady": "REAL", "ci95_low": "REAL", "ci95_high": "REAL",
    "time_to_report_s": "REAL", "standard_error": "REAL", "degrees": "REAL", "num_intervals": "INTEGER",
}  # fmt: skip
_DECISION = tuple(field.name for field in fields(Decision))
_TYPES_OF_DECISION = {"id": "INTEGER PRIMARY KEY", "run": "INTEGER NOT NULL", "percent": "REAL"}
"""SQL types of the columns that are not TEXT."""


@immutable
class Filter:
    """Which runs; None means all."""

    ids: Sequence[int] | None = None
    name: str | None = None
    identity: str | None = None  # short name of the configuration, or its beginning
    model: str | None = None
    system: str | None = None
    last: int | None = None  # the latest ones only

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition of an SQL query and its values."""
        equal = {name: value for name in ("name", "model", "system") if (value := getattr(self, name)) is not None}
        parts, values = [f"{name} = ?" for name in equal], list[Any](equal.values())
        if self.identity is not None:
            parts.append("substr(identity, 1, ?) = ?")
            values += [len(self.identity), self.identity]
        if self.ids is not None:
            parts.append(f"id IN ({','.join('?' * len(self.ids))})")
            values += self.ids
        return " AND ".join(parts) or "1", values


class Store:
    """An open history."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection, self.path = connection, path

    def add(self, rows: Iterable[Row]) -> list[tuple[int, bool]]:
        """Write all rows or, when the program is killed, none; return for each its number and whether it is new. A run that is there already is updated."""
        names = [column for column in COLUMNS if column != "id"]
        # A name given before stays unless a new one is given; `added` stays.
        sets = [f"{name} = excluded.{name}" for name in names if name not in {"key", "added", "name"}]
        sets.append("name = CASE excluded.name WHEN '' THEN name ELSE excluded.name END")
        sql = (
            f"INSERT INTO runs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "  # noqa: S608  # our own words
            f"ON CONFLICT (key) DO UPDATE SET {', '.join(sets)}"
        )
        found = []
        with self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            for row in rows:
                is_new = self._id(row.key) is None
                kept = row if is_new else self._dated(row)
                self.connection.execute(sql, [getattr(kept, name) for name in names])
                found.append((self._id(row.key) or 0, is_new))
        return found

    def _dated(self, row: Row) -> Row:
        """Return the row with the earlier time, where nothing but a file says when the run ended: a copy is no later run."""
        told = self.connection.execute("SELECT ended, ended_s FROM runs WHERE key = ?", [row.key]).fetchone()
        is_sound = isinstance(told[0], str) and isinstance(told[1], float)
        is_later = is_sound and row.ended_s > told[1] and row.is_dated_by_file
        return replace(row, ended=told[0], ended_s=told[1]) if is_later else row

    def _id(self, key: str) -> int | None:
        row = self.connection.execute("SELECT id FROM runs WHERE key = ?", [key]).fetchone()
        return int(row[0]) if row else None

    def rows(self, wanted: Filter, columns: Sequence[str] = SHORT) -> list[Row]:
        """Return runs from the oldest to the latest; fields that are no `columns` are empty. Raises NlpBenchError for a value that cannot be the run's."""
        where, values = wanted.where()
        limit = "" if wanted.last is None else f" LIMIT {int(wanted.last)}"
        sql = f"SELECT {', '.join(columns)} FROM runs WHERE {where} ORDER BY ended_s DESC, id DESC{limit}"  # noqa: S608  # our own words
        latest_first = self.connection.execute(sql, values).fetchall()
        return [self._checked(Row(**dict(zip(columns, row, strict=True))), columns) for row in reversed(latest_first)]

    def _checked(self, row: Row, columns: Sequence[str]) -> Row:
        try:
            row.check(columns, f"{self.path}: runs[{row.id}]")
        except UsageError as error:
            again = command(f"history add {shlex.quote(str(row.source or 'PATH'))}", self.path)
            raise NlpBenchError(
                f"{error}; the file was changed or is damaged, and nothing of it is used; measure the run anew with: {again}; "
                "or put back a copy of the file"
            ) from None
        return row

    def decisions(self) -> list[Decision]:
        """Return what persons and gates said about runs, the latest last."""
        if "decisions" not in {name for _, name, _ in _schema(self.connection)}:
            return []  # version 1
        sql = f"SELECT {', '.join(_DECISION)} FROM decisions ORDER BY id"  # noqa: S608  # our own words
        return [Decision(**dict(zip(_DECISION, row, strict=True))) for row in self.connection.execute(sql)]

    def judged(self, wanted: Filter) -> list[Judged]:
        """Return runs from the oldest to the latest, with all columns and their state."""
        rows, decisions = self.rows(wanted, COLUMNS), self.decisions()
        found: dict[int, State] = {}
        for identity in dict.fromkeys(row.identity for row in rows):
            found |= states(self.rows(Filter(identity=identity), COLUMNS), decisions)
        return [
            Judged(row=row, state=found[row.id], decisions=tuple(one for one in decisions if one.run == row.id))
            for row in rows
        ]

    def decide(self, decision: Decision) -> None:
        """Write a decision down."""
        names = _DECISION[1:]
        sql = f"INSERT INTO decisions ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608  # our own words
        self.connection.execute(sql, [getattr(decision, name) for name in names])

    def keys(self) -> dict[str, int]:
        """Return the number of each run by its key."""
        return dict(self.connection.execute("SELECT key, id FROM runs"))

    def count(self) -> int:
        """Return how many runs there are."""
        return int(self.connection.execute("SELECT count(*) FROM runs").fetchone()[0])


@contextlib.contextmanager
def open_to_write(path: Path) -> Iterator[Store]:
    """Open the history at `path`, made with its folder where there is none. Raises NlpBenchError where it cannot be written, is no history or is newer than this program."""
    _refuse_other_kinds(path)
    with _explained_errors(path), locked(lock_of(path), "give a --file in a folder that you may write to"):
        # With the rights of the umask: a file that SQLite makes is never writable for a group. Where this is refused, SQLite would leave
        # files of ours next to that of another user, who could not write it any more.
        # One of another user in a folder with the sticky bit must not be opened as if to make it (fs.protected_regular of Linux).
        path.open("r+b" if path.exists() else "ab").close()
        uri = f"{path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, timeout=WAIT_S, isolation_level=None, uri=True)
        with contextlib.closing(connection), _patience(path):
            # SQLite needs shared memory for several at once; the lock file leaves one writer.
            if not _can_share_memory(path.parent):
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            _check(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            _create(connection)
            yield Store(connection, path)


def _can_share_memory(folder: Path) -> bool:
    """Say whether processes can map the same file of this folder; BeeGFS with a buffered cache, 9p and some FUSE have no such memory."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(mmap.PAGESIZE)
        try:
            mmap.mmap(file.fileno(), mmap.PAGESIZE).close()
        except OSError:
            return False
    return True


def _refuse_other_kinds(path: Path) -> None:
    """Raise UsageError for a folder, a pipe or a device, which would be waited for."""
    if path.exists() and not path.is_file():
        raise UsageError(f"--file {path} is no regular file; name one, or one that is still to be made")


def _patience(path: Path) -> contextlib.AbstractContextManager[object]:
    return reported_late(
        f"waiting for another process that is writing {path} (`fuser {shlex.quote(str(path))}` names it)"
    )


def command(words: str, file: Path) -> str:
    """Return a command on the history at `file`, as it is typed."""
    return f"nlp-bench {words} --file {shlex.quote(str(file))}"


def lock_of(path: Path) -> Path:
    """Return the lock file of a history: one writer at a time, or readers."""
    return path.with_name(f"{path.name}.lock")


@contextlib.contextmanager
def open_to_read(path: Path) -> Iterator[Store]:
    """Open the history at `path`; nothing is written. Raises UsageError when there is none, NlpBenchError when it is no history or newer than this program."""
    _refuse_other_kinds(path)
    if not path.is_file():
        raise UsageError(f"--file {path} does not exist; fill it with: {command('history add PATH', path)}")
    with _explained_errors(path), contextlib.ExitStack() as stack:
        # Keep writers out, where there is a lock file that we may open.
        with contextlib.suppress(OSError), _patience(path):
            fcntl.flock(stack.enter_context(lock_of(path).open("rb")), fcntl.LOCK_SH)
        path.open("rb").close()  # SQLite does not say why it cannot
        with _patience(path), contextlib.closing(_reader(path)) as connection:
            _check(connection, path)
            yield Store(connection, path)


def _reader(path: Path) -> sqlite3.Connection:
    """Open the file so that nothing is written next to it: a reader's SQLite files would keep the owner from writing.

    Only what a writer that was killed has left in its write-ahead log needs them.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    log = path.with_name(f"{path.name}-wal")
    if not log.exists() or not log.stat().st_size:
        return sqlite3.connect(f"{uri}&immutable=1", uri=True)
    connection = sqlite3.connect(uri, timeout=WAIT_S, uri=True)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        connection.close()
        if not isinstance(error, sqlite3.OperationalError):
            raise
        # In a folder that may not be written the log's shared memory cannot be made, and there is no writer.
        return sqlite3.connect(f"{uri}&immutable=1", uri=True)
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if application != APPLICATION and not (is_empty and application == 0):
        raise NlpBenchError(f"{path} is a database of another program; give the history's own --file")
    if version > VERSION:
        raise NlpBenchError(
            f"{path} has version {version} of the history's tables, this nlp-bench reads up to {VERSION}; install a newer one"
        )
    if not is_empty and (foreign := _schema(connection) ^ _own_schema(version)):
        kind, name, _ = min(foreign)
        raise NlpBenchError(
            f"{path}: its {one_line(kind)} {one_line(name)[:80]!r} is not as nlp-bench makes it: a trigger, a view or a rule of somebody else "
            "may change what is written or read; nothing of it was used; keep the runs in a new --file"
        )


def _schema(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return kind, name and definition of all that the file holds, but for what SQLite itself makes."""
    sql = "SELECT type, name, coalesce(sql, '') FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' OR type NOT IN ('table', 'index')"
    return set(connection.execute(sql))


@functools.cache
def _own_schema(version: int) -> set[tuple[str, str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _create(connection, version)
        return _schema(connection)


def _create(connection: sqlite3.Connection, version: int = VERSION) -> None:
    """Make the tables of this version, those that are not there yet."""
    there = connection.execute("PRAGMA user_version").fetchone()[0]
    if there >= version:
        return
    tables = {"runs": (COLUMNS, _TYPES), "decisions": (_DECISION, _TYPES_OF_DECISION)}
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for name, (columns, kinds) in [*tables.items()][there:version]:
            made = ", ".join(f"{column} {kinds.get(column, 'TEXT')}" for column in columns)
            connection.execute(f"CREATE TABLE {name} ({made})")
        if not there:
            connection.execute("CREATE INDEX runs_by_time ON runs (ended_s, id)")
            connection.execute("CREATE INDEX runs_by_identity ON runs (identity, ended_s)")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {version}")


@contextlib.contextmanager
def _explained_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        remedy = REMEDIES_OF_SQLITE.get(str(error), "is it a history of nlp-bench, and may you write there?")
        raise NlpBenchError(f"{path}: {error}; {remedy}; nothing of it was changed") from error
    except OSError as error:
        raise NlpBenchError(f"{path}: {explained(error)}; nothing of it was changed") from error


MAX_LAST = 500
_MAX_IDS = 10  # runs that a sentence names
EARLIER = 20  # runs before a single one that show the scatter between runs
_DIGEST = re.compile(r"[0-9a-f]{6,12}")
_FORMS = "last (the run before the other side's), last-N (the N before), a number, a name, or a configuration (12 hex digits)"


def named(file: Path | None, word: str) -> list[Observation]:
    """Return the runs that `word` names: a name, a number, or the beginning of a configuration's short name. Raises UsageError when there are none."""
    path = file or default_file()
    with open_to_read(path) as store:
        rows = store.rows(Filter(name=word), COLUMNS) if word else []
        if not rows and word.isdecimal():
            rows = store.rows(Filter(ids=[int(word)]), COLUMNS) if len(word) < 18 else []
        if not rows and _DIGEST.fullmatch(word):
            rows = store.rows(Filter(identity=word), COLUMNS)
    if not rows:
        raise UsageError(f"history:{word} is not in {path}; give {_FORMS}; see: {command('history list', path)}")
    return [row.observation() for row in rows]


def before(file: Path | None, word: str, others: list[Observation]) -> tuple[list[Observation], list[Observation], str]:
    """Return, for each configuration of `others`, the last accepted run (or the last N) that is none of them, those before it, and where there is none why.

    Of those before it there are up to EARLIER where one run is requested, or the baseline is a new one of a few runs; several show their
    scatter themselves. `others` have keys. Where a run of `others` is in the history itself, only runs before it count. Raises UsageError where
    there is no history, unless no run of `others` has a number that could be compared with one.
    """
    path, number = file or default_file(), _number(word)
    if not path.exists() and not any(run.seconds_per_token for run in others):
        return [], [], ""
    found: list[Observation] = []
    earlier: list[Observation] = []
    with open_to_read(path) as store:
        decisions = store.decisions()
        for identity in dict.fromkeys(digest_of(identity_of(run.settings)) for run in others):
            rows = _before_these(store.rows(Filter(identity=identity), COLUMNS), others)
            runs = accepted(rows, decisions)
            found += [row.observation() for row in runs[-number:]]
            rest = runs[:-1] if number == 1 else []
            if len(runs) < MIN_LEVEL:  # a person has just accepted it
                rest = before_it(rows, decisions) or rest
            earlier += [row.observation() for row in rest[-EARLIER:]]
        near = "" if found else _nearest(store, path, identity_of(others[-1].settings))
    return found, earlier, near


def _nearest(store: Store, file: Path, own: Identity) -> str:
    """Return which configuration with a valid run is nearest to `own`, in brackets, and how a run of `own` gets there; empty where there is none.

    One that only states less may be `own`, added by a version that read less: its runs that are still there can be measured anew.
    """
    rows = [row for row in reversed(store.rows(Filter(), COLUMNS)) if row.outcome == Outcome.VALID.value]
    known = [identity_of(row.observation().settings) for row in rows]
    near = nearest(own, known)
    if not near:
        return ""
    text = f" (the nearest one there is {digest_of(near)}, {apart_words(near, own)})"
    paths = dict.fromkeys(row.source for row, identity in zip(rows, known, strict=True) if identity == near)
    again = some((shlex.quote(path) for path in paths if Path(path).exists()), 20, " ")
    if not again or not set(near) < set(own):
        return text
    anew = command(f"history add {again}", file)
    return f"{text}; an older nlp-bench that read less may have added the nearest: this measures it anew: {anew}"


def _before_these(rows: list[Row], others: list[Observation]) -> list[Row]:
    """Return the rows before the first that is a run of `others`, all where none is."""
    keys, measured = {run.key for run in others}, [run for run in others if run.seconds_per_token]
    own = (at for at, row in enumerate(rows) if row.key in keys or of_these([row.observation()], measured))
    return rows[: next(own, len(rows))]


def _number(word: str) -> int:
    match = re.fullmatch(r"last(?:-([0-9]{1,4}))?", word)
    number = int(match[1] or 1) if match else 0
    if not 1 <= number <= MAX_LAST:
        raise UsageError(f"history:{word[:40]} is unknown; give {_FORMS}; N is from 1 to {MAX_LAST}")
    return number


def record_verdicts(file: Path | None, verdicts: Mapping[str, str], percent: float) -> list[int | None]:
    """Write down what a gate said about runs, by their keys, and return the numbers of those that failed, None for one that is not in the history.

    Only what changes whether a run counts is written: a FAIL, and the verdict that takes its place. Raises NlpBenchError where it cannot be written.
    """
    path = file or default_file()
    with open_to_read(path) as store:
        numbers = store.keys()
        last = {decision.run: decision for decision in store.decisions() if decision.word != ACCEPTED}
    known = {numbers[key]: word for key, word in verdicts.items() if key in numbers}
    fail = Word.FAIL.value
    failed = [numbers.get(key) for key, word in verdicts.items() if word == fail]
    new = [run for run, word in known.items() if fail in {word, last[run].word if run in last else None}]
    if new:
        with open_to_write(path) as store:
            for run in new:
                store.decide(_decision(run, known[run], percent=percent))
    return failed


def _decision(run: int, word: str, *, percent: float | None = None, why: str = "") -> Decision:
    text = why.encode("utf-8", "backslashreplace").decode()  # SQLite takes UTF-8 alone
    return Decision(run=run, word=word, percent=percent, who=user_name(os.geteuid()), added=now(), why=text)


def accept(file: Path | None, word: str, why: str) -> str:
    """Write down that a person accepts the run `word`, its number or its path, and return what it means. Raises UsageError for a run that cannot be a baseline."""
    path = file or default_file()
    see = command("history list", path)
    with open_to_read(path) as store:
        numbers = store.keys()
        decisions = store.decisions()
        found = [int(word)] if word.isdecimal() and len(word) < 18 else _numbers_at(word, numbers)
        rows = store.rows(Filter(ids=found), COLUMNS)
        if len(rows) != 1:
            raise UsageError(
                f"history accept: {word[:80]} is {len(rows)} runs of {path}, and has to be one; see: {see}"
            )
        row = rows[0]
        every = store.rows(Filter(identity=row.identity), COLUMNS)
    if not row.tokens_per_second_steady:
        raise UsageError(f"history accept: run {row.id} is {row.outcome} and has no number to compare with; see: {see}")
    counts = [one.id for one in accepted(every, decisions)]
    if row.id in counts:
        return f"run {row.id} counts already: the baseline of {row.identity} is run {some(counts, _MAX_IDS)}"
    with open_to_write(path) as store:
        store.decide(_decision(row.id, ACCEPTED, why=why))
        decisions = store.decisions()
    counts = [one.id for one in accepted(every, decisions)]
    what = f"the baseline of {row.identity} begins with it: run {some(counts, _MAX_IDS)}"
    return f"run {row.id} accepted: {what}; runs before it are no baseline any more"


def _numbers_at(word: str, numbers: Mapping[str, int]) -> list[int]:
    """Return the numbers of the runs at a path."""
    keys = dict.fromkeys(key_of(entry) for entry in read_sources([word], Overrides()).entries)
    return [numbers[key] for key in keys if key in numbers]


def why_no_name(word: str) -> str | None:
    """Return why `word` cannot be a user's name for runs, None where it can."""
    if not re.fullmatch(r"[A-Za-z][\w.-]{0,63}", word):
        return "a name begins with a letter and holds letters, digits, ., - and _ (64 at most)"
    if word.startswith("last") or _DIGEST.fullmatch(word):
        return "the name could be taken for history:last or for a configuration"
    return None


def add_runs(
    paths: Sequence[str], file: Path, *, name: str = "", overrides: Overrides | None = None
) -> tuple[list[str], list[str]]:
    """Add every ended run below `paths`, the failed ones too: they are part of what happened to the machine.

    Return a line for each run that is in the history now, and one for each entry that is no ended run: a log without number and
    end (REFUSED, UNKNOWN), a published table. Raises NlpBenchError where the file cannot be written, and where one of `overrides`
    contradicts a log; none of the runs is then added.
    """
    added = now()
    rows, refused = [], []
    entries = read_sources(paths, overrides or Overrides()).entries
    refuse_against_log(entries)
    for entry in entries:
        if entry.outcome in {Outcome.REFUSED, Outcome.UNKNOWN}:
            refused.append(f"{entry.source}: {'; '.join(entry.reason_texts) or entry.outcome.value}")
        elif entry.published_tokens_per_second is not None:
            refused.append(f"{entry.source}: a published value is no run; compare it with: nlp-bench report")
        else:
            rows.append(row_of(entry, name=name, added=added))
    found: list[tuple[int, bool]] = []
    names: dict[str, str] = {}
    if rows:
        with open_to_write(file) as store:
            names = dict(store.connection.execute("SELECT key, name FROM runs"))
            found = store.add(rows)
    lines = []
    for row, (number, is_new) in zip(rows, found, strict=True):
        older = one_line(names.get(row.key) or "")
        is_renamed = name and older not in {"", name}
        renamed = f"; named {older} until now, it is no run of history:{older} any more" if is_renamed else ""
        rate = f" {row.tokens_per_second_steady:.2f} tokens/s" if row.tokens_per_second_steady else ""
        starts = f"; {run.starts.text}" if (run := row.observation()).starts else ""
        what = "added" if is_new else "was there, measured anew"
        said = f"{row.identity} {row.what} {row.outcome}{rate} ({one_line(row.source)}){starts}{renamed}"
        lines.append(f"run {number} {what}: {said}")
    return lines, refused


def default_file() -> Path:
    """Return reports/history.sqlite3 of the checkout."""
    from nlp_bench.config.catalog import root  # noqa: PLC0415  # --help stays light

    return root() / "reports" / "history.sqlite3"
