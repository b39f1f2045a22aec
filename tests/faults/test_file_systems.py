"""File systems that answer otherwise than a local disk: without modes, flushing or locks, a request sent twice, a lost file, short reads."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from support.ours import seal_run, write_our_run

from nlp_bench.cli.main import main
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.launch.folder import prepare
from nlp_bench.seal import sealed_log_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shim") / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"], check=True, timeout=60)
    return made


def nlp_bench(shim: Path, fault: str, *words: object) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "LD_PRELOAD": str(shim), "FAULT": fault}
    return subprocess.run(
        [sys.executable, "-m", "nlp_bench", *map(str, words)], env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["no_modes", "no_flush", "sent_twice"])
def test_a_record_is_written_and_written_again(shim: Path, tmp_path: Path, fault: str) -> None:
    """CIFS has no modes, some file systems cannot flush, NFS may say ENOENT of a rename that it has done."""
    folder = write_our_run(tmp_path / "run")
    for _ in range(2):
        done = nlp_bench(shim, fault, "measure", folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(path.name for path in folder.iterdir() if ".part" in path.name) == []
    assert done.stdout.startswith((folder / "metrics.txt").read_text())


def test_a_job_script_without_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    run = resolve(Request(model="tiny", launcher="local", data_path="mock"), ask_scheduler=False)
    assert prepare(run, root=ROOT, run_dir=tmp_path).read_text().startswith("#!/usr/bin/env bash")


@pytest.mark.slow
def test_without_locks_a_history_is_not_written(shim: Path, tmp_path: Path) -> None:
    done = nlp_bench(
        shim, "no_locks", "history", "add", write_our_run(tmp_path / "run"), "--file", tmp_path / "h.sqlite3"
    )
    assert done.returncode == 1
    assert "this file system has no locks: name a file of another one" in done.stderr


@pytest.mark.slow
def test_a_history_is_written_where_processes_cannot_share_a_file(shim: Path, tmp_path: Path) -> None:
    """BeeGFS with its buffered cache, 9p and some FUSE map no memory that several processes share."""
    words = "history", "add", write_our_run(tmp_path / "run"), "--file", tmp_path / "h.sqlite3"
    assert [nlp_bench(shim, "no_sharing", *words).stdout[:5] for _ in range(2)] == ["run 1", "run 1"]


@pytest.mark.slow
def test_a_colleagues_history_in_a_scratch_with_the_sticky_bit_is_written(shim: Path, tmp_path: Path) -> None:
    run, file = write_our_run(tmp_path / "run"), tmp_path / "h?.sqlite3"
    for fault in ("", "protected"):
        done = nlp_bench(shim, fault, "history", "add", run, "--file", file)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_file_that_the_server_has_lost_is_one_row(shim: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_our_run(tmp_path / name)
    done = nlp_bench(shim, "lost", "report", tmp_path)
    assert done.returncode == 1
    assert done.stdout.count("UNKNOWN") == 2
    assert done.stdout.count("Stale file handle") == 2
    done = nlp_bench(shim, "lost", "measure", tmp_path / "a")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot read {tmp_path / 'a'}: Stale file handle" in done.stderr


@pytest.mark.slow
def test_short_reads_change_nothing(shim: Path, tmp_path: Path) -> None:
    folder = write_our_run(tmp_path / "run")
    assert nlp_bench(shim, "short", "measure", folder).stdout == nlp_bench(shim, "", "measure", folder).stdout != ""


def test_a_log_that_is_not_seen_yet_was_not_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory whose list is cached: outcome.json is there already, job.out not yet."""
    folder = write_our_run(tmp_path / "run")
    seal_run(folder)
    (folder / "job.out").rename(tmp_path / "away")
    assert main(["measure", str(folder)]) == 0
    assert "job.out is missing; or not seen from here yet" in capsys.readouterr().out
    (tmp_path / "away").rename(folder / "job.out")
    assert main(["measure", str(folder)]) == 0
    assert "outcome: VALID" in capsys.readouterr().out


def test_a_log_with_a_hole_is_read_in_little_memory(tmp_path: Path) -> None:
    """A sparse file: what was never written reads as one line of zeros, larger than the memory."""
    folder = write_our_run(tmp_path / "run")
    seal_run(folder)
    before = sealed_log_of(folder / "job.out")
    os.truncate(folder / "job.out", 100 << 20)
    tracemalloc.start()
    after = sealed_log_of(folder / "job.out")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 20 << 20
    assert [part.closed for part in after.parts] == [part.closed for part in before.parts] != [None]
