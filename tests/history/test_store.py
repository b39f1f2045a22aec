"""The file of the history: nothing lost, nothing twice, nothing of others touched."""

import contextlib
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Cli
from support.nights import row
from support.repeated import write_log, write_runs

from nlp_bench.analysis.baseline import ACCEPTED, Decision, State
from nlp_bench.analysis.repeats import digest_of, identity_of
from nlp_bench.analysis.row import COLUMNS
from nlp_bench.analysis.store import Filter, open_to_read, open_to_write
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.measure.workload import Setting

WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from nlp_bench.analysis.row import Row
from nlp_bench.analysis.store import open_to_write
for n in range(20):
    row = Row(key=f"{sys.argv[2]}-{n}", ended="", ended_s=n, source="", identity="", outcome="VALID")
    with open_to_write(Path(sys.argv[1])) as store:
        store.add([row])
"""


@pytest.mark.slow
def test_eight_writers_lose_nothing(tmp_path: Path) -> None:
    """Each opens the file anew for each of its 20 runs, also when it does not exist yet."""
    file = tmp_path / "a folder" / "history.sqlite3"
    command = [sys.executable, "-c", WRITER, str(file)]
    writers = [subprocess.Popen([*command, str(n)], stderr=subprocess.PIPE) for n in range(8)]
    for writer in writers:
        said = writer.communicate(timeout=120)[1]
        assert writer.returncode == 0
        # On a loaded machine they say what they wait for: the lock, or the file system that answers for it.
        assert [line for line in said.splitlines() if not line.startswith(b"nlp-bench: waiting for ")] == []
    with open_to_read(file) as store:
        rows = store.rows(Filter())
    assert sorted(row.key for row in rows) == sorted(f"{w}-{n}" for w in range(8) for n in range(20))
    assert sorted(row.id for row in rows) == list(range(1, 161))


def test_the_same_run_is_one_row_and_measured_anew(tmp_path: Path) -> None:
    file = tmp_path / "h"
    with open_to_write(file) as store:
        assert store.add([row(1, 100.0, name="good"), row(2, 100.0)]) == [(1, True), (2, True)]
        again = [row(1, 110.0, added="later"), row(3, 1.0, key="0123456789ab-2", name="new")]
        assert store.add(again) == [(1, False), (2, False)]
        rows = store.rows(Filter())
    assert [(r.id, r.tokens_per_second_steady, r.name) for r in rows] == [(1, 110.0, "good"), (2, 1.0, "new")]
    assert rows[0].added == row(1, 1.0).added


def test_all_or_none(tmp_path: Path) -> None:
    file = tmp_path / "h"
    with open_to_write(file) as store, pytest.raises(sqlite3.IntegrityError):
        store.add([row(1, 1.0), row(2, 1.0, key=None)])
    with open_to_read(file) as store:
        assert store.count() == 0


def test_every_column_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "h"
    identity = digest_of(identity_of({"model": Setting("tiny", "x")}))
    wanted = row(
        5, 2.5, identity, job_id="007", nlp_bench_commit="abc", system="s'; DROP TABLE runs", num_gpus=384, num_intervals=7,
        time_to_report_s=1.5, tokens_per_second_reference=2.0, accelerator="cuda", name="n", settings='{"model": ["tiny", "x"]}',
    )  # fmt: skip
    with open_to_write(file) as store:
        store.add([wanted])
        (found,) = store.rows(Filter(), COLUMNS)
    assert vars(found) == {**vars(wanted), "id": 1}


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (Filter(), [3, 1, 2]),
        (Filter(last=2), [1, 2]),
        (Filter(model="tiny"), [3, 2]),
        (Filter(model="tiny", last=1), [2]),
        (Filter(name="x"), [1]),
        (Filter(identity="0123"), [3, 1]),
        (Filter(identity="%"), []),
        (Filter(ids=[1, 2]), [1, 2]),
        (Filter(ids=[]), []),
        (Filter(system="local"), []),
    ],
)
def test_filters(tmp_path: Path, wanted: Filter, ids: list[int]) -> None:
    """From the oldest to the latest by the end of the run, whenever it was added."""
    with open_to_write(tmp_path / "h") as store:
        store.add([row(2, 1.0, model="13", name="x"), row(3, 1.0, "ffff"), row(1, 1.0)])
        assert [found.id for found in store.rows(wanted)] == ids


def refused(file: Path, message: str) -> None:
    for opened in (open_to_write, open_to_read):
        with pytest.raises(NlpBenchError, match=message), opened(file):
            pass


def test_a_newer_file_is_refused_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "h"
    with open_to_write(file) as store:
        store.add([row(1, 1.0)])
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    refused(file, r"has version 3 .* reads up to 2; install a newer one")


def test_what_is_no_history_is_refused_and_stays(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("no database " * 100)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()
    for path, message in ((text, "is it a history"), (other, "a database of another program")):
        content = path.read_bytes()
        refused(path, message)
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    "hostile",
    [
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
        "CREATE VIEW runs2 AS SELECT * FROM runs",
        "CREATE INDEX late ON runs (key) WHERE ended_s > 0",
        "ALTER TABLE runs ADD COLUMN twice AS (ended_s * 2)",
        "ALTER TABLE runs RENAME TO others; CREATE VIEW runs AS SELECT * FROM others",
        "CREATE TABLE further (x)",
    ],
)
def test_a_file_whose_tables_are_not_ours_is_refused_and_stays(tmp_path: Path, hostile: str) -> None:
    """A trigger deleted the rows, and `history add` said "added"."""
    file = tmp_path / "h"
    with open_to_write(file) as store:
        store.add([row(1, 100.0)])
        store.connection.executescript(hostile)
    refused(file, "is not as nlp-bench makes it")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)


def test_what_sqlite_itself_makes_is_no_foreign_table(tmp_path: Path) -> None:
    with open_to_write(tmp_path / "h") as store:
        store.add([row(1, 100.0)])
        store.connection.execute("ANALYZE")
    with open_to_write(tmp_path / "h") as store:
        assert store.count() == 1


def test_reading_makes_no_file(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"does not exist; fill it with: nlp-bench history add"),
        open_to_read(tmp_path / "h"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_writer_who_may_not_write_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NlpBenchError, match="give a --file in a folder"), open_to_write(tmp_path / "file" / "h"):
        pass


SIX_PER_CENT = (
    "tokens_per_second_steady=tokens_per_second_steady*0.94, ci95_low=ci95_low*0.94, ci95_high=ci95_high*0.94"
)


@pytest.mark.parametrize(
    ("change", "column"),
    [
        (SIX_PER_CENT, "tokens_per_second_steady"),
        ("tokens_per_second_steady='abc'", "tokens_per_second_steady"),
        ("tokens_per_second_steady=-1", "tokens_per_second_steady"),
        ("tokens_per_second_steady=NULL", "tokens_per_second_steady"),
        ("standard_error=standard_error*100", "standard_error"),
        ("degrees='x'", "degrees"),
        ("num_intervals=7", "num_intervals"),
        ("num_gpus=8.5", "num_gpus"),
        ("ci95_low='x'", "ci95_low"),
        ("ended_s='x'", "ended_s"),
        ("ended_s=9e999", "ended_s"),
        ("ended_s=ended_s+86400, entry=json_set(entry, '$.dated_by_file', json('false'))", "ended_s"),
        ("ended=NULL", "ended"),
        ("identity='0123456789ab'", "identity"),
        ("outcome='SUPER'", "outcome"),
        ("outcome='SUPER', entry=json_set(entry, '$.outcome', 'SUPER')", "outcome"),
        ("entry='{'", "entry"),
        ("entry='[]'", "entry"),
        ("entry='{}'", "outcome"),
        ("entry=json_set(entry, '$.estimate.degrees', 'x')", "entry.estimate.degrees"),
        ("entry=json_remove(entry, '$.estimate.seconds_per_token')", "entry.estimate.seconds_per_token"),
        ("entry=json_remove(entry, '$.trace.lines')", "entry"),
        ("entry=json_set(entry, '$.trace.step', 'x')", "entry.trace.step"),
        ("entry=json_set(entry, '$.reasons', 5)", "entry.reasons"),
        ("entry=json_set(entry, '$.estimate', 5)", "entry.estimate"),
        ("entry=json_set(entry, '$.tokens_per_second.ci95', json('[1]'))", "entry"),
        ("entry=json_set(entry, '$.starts', json('[\"a\", \"b\"]'))", "entry"),
        (
            "entry=json_set(entry, '$.tokens_per_second.steady', -5.0), tokens_per_second_steady=-5",
            "tokens_per_second_steady",
        ),
        ("source=NULL", "source"),
        ("settings='[]'", "settings"),
        ("settings='{\"model\": 5}'", "settings"),
        ('settings=\'{"model": ["x"]}\'', "entry"),
    ],
)
def test_a_value_that_is_not_the_runs_is_named_and_nothing_is_judged(
    tmp_path: Path, file: str, history: Cli, cli: Cli, change: str, column: str
) -> None:
    """Most of these were a traceback; the first let a slower run pass."""
    history("add", write_runs(tmp_path / "before", 65000, 65100, 64900))
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"UPDATE runs SET {change}")  # noqa: S608  # our own words
    tonight = write_log(tmp_path / "tonight.log", 62000, 9)
    words = (["compare", "history:last-10", tonight, "--gate", "3"], ["history", "list"], ["history", "trend"])
    for action in words:
        found = cli(*action, "--file", file, code=1)
        assert found.out == ""
        assert re.search(rf"{file}: runs\[\d\]\.{column}(: | or )", found.err), found.err
        path = "PATH" if column == "source" else f"{tmp_path}/before/run"
        assert f"measure the run anew with: nlp-bench history add {path}" in found.err
    history("add", tmp_path / "before")
    assert "GATE FAIL" in cli(*words[0], "--file", file, code=1).out


def test_a_history_of_before_the_decisions_is_read_and_gets_their_table(tmp_path: Path) -> None:
    file = tmp_path / "h"
    with open_to_write(file) as store:
        store.add([row(1, 100.0)])
        store.connection.executescript("DROP TABLE decisions; PRAGMA user_version = 1")
    with open_to_read(file) as store:
        assert store.decisions() == []
        assert [found.state for found in store.judged(Filter())] == [State.ACCEPTED]
    decision = Decision(run=1, word=ACCEPTED, who="me", added="now")
    with open_to_write(file) as store:
        store.decide(decision)
    with open_to_read(file) as store:
        assert store.decisions() == [replace(decision, id=1)]
