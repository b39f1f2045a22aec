"""One truth of the same run, in every command; and who waits for the history is told for whom."""

import contextlib
import gzip
import json
import re
import sqlite3
from pathlib import Path

import pytest
from support.command import Ask
from support.repeated import write_log, write_runs

from nlp_bench.cli.main import main


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    """A log; the same with other line ends, packed and cut."""
    whole = write_log(tmp_path / "a.log", 65000, seed=3)
    other, packed, cut = (tmp_path / name for name in ("b.log", "a.log.gz", "c.log"))
    other.write_bytes(whole.read_bytes().replace(b"\n", b"\r\n"))
    packed.write_bytes(gzip.compress(whole.read_bytes()))
    cut.write_text("".join(whole.read_text().splitlines(keepends=True)[:32]))
    return [cut, whole, other, packed]


def test_a_copy_of_a_run_is_no_repeat_of_it(copies: list[Path], told: Ask) -> None:
    """One truth for report, history and compare: packed, with other line ends or cut."""
    file = ("--file", str(copies[0].with_name("h")))
    assert len(re.findall("a copy, counted once", told("report", *copies, "--allow-measured").out)) == 3
    for path in copies:
        assert main(["history", "add", str(path), *file]) == 0
    said = told("history", "trend", *file, "--allow-measured", "--format", "json")
    assert [each["runs"] for each in json.loads(said.out)["configurations"]] == [[2]]
    assert "run 1, 3, 4: a copy of another run, whole or cut: counted once" in said.err
    record = told("history", "variance", *file, "--allow-measured", "--format", "json").json
    assert [each["runs"] for each in record["configurations"]] == [[2]]
    for one, two in ((str(copies[1]), str(copies[0])), ("history:2", str(copies[3])), (str(copies[1]), "history:1")):
        text = told("compare", one, two, *file, "--gate", "3", "--strict", "--allow-measured", code=1).out
        assert "1 run(s) of B are runs of A, whole or cut" in text
        assert "GATE NOT PROVEN: a run that is on both sides says nothing" in text
    assert "no earlier valid run of this configuration" in told("compare", "history:last", copies[3], *file, code=2).err


def test_runs_of_rounded_times_are_no_copies(tmp_path: Path, told: Ask) -> None:
    """Two runs that print whole seconds may begin alike."""
    folder = write_runs(tmp_path, 65000, 65010)
    for path in folder.iterdir():
        path.write_text(re.sub(r"(elapsed.*?: )(\d+)\.\d", r"\g<1>4000.0", path.read_text(), count=12))
    assert "a copy" not in told("report", folder, "--allow-measured").out


@pytest.mark.slow
def test_who_waits_for_the_history_is_told_for_whom(tmp_path: Path, told: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.files.PATIENCE_S", 0.1)
    monkeypatch.setattr("nlp_bench.analysis.store.WAIT_S", 1.0)
    log, file = write_log(tmp_path / "a.log", 65000), tmp_path / "h"
    assert main(["history", "add", str(log), "--file", str(file)]) == 0
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        said = told("history", "add", log, "--file", file, code=1).err
    assert f"nlp-bench: waiting for another process that is writing {file}" in said
    assert "database is locked; another process is writing it" in said
