"""Many logs by several processes: the same answer, no orphan, and no log that hides another."""

import gzip
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.processes import execute, is_running, text_of, until
from support.published import published_log
from support.users import ROOT, as_user, open_folder

from nlp_bench.inputs.find import Item, Kind
from nlp_bench.inputs.pool import read_many
from nlp_bench.inputs.read import ReadOptions
from nlp_bench.inputs.sources import read_sources
from nlp_bench.measure.sizes import Overrides
from nlp_bench.report.report import Report

pytestmark = pytest.mark.slow

__all__ = ["open_folder"]

OVERRIDES = Overrides(sequence_length=2048)
OPTIONS = ReadOptions(overrides=OVERRIDES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(90):
        (tmp_path / f"{number:02d}.log").write_text(published_log(total=100 + number))
    (tmp_path / "50.txt").write_text("nothing\n")
    (tmp_path / "51.log").write_bytes(gzip.compress(published_log().encode())[:60])
    return tmp_path


def as_json(folder: Path, alone_s: float) -> str:
    found = read_sources([str(folder)], OVERRIDES, alone_s=alone_s)
    return json.dumps(Report(entries=found.entries, tokens=1, passed_over=found.passed_over).to_json())


def test_several_processes_give_the_same_answer_in_the_same_order(folder: Path) -> None:
    assert as_json(folder, alone_s=0) == as_json(folder, alone_s=1e9)
    assert multiprocessing.active_children() == []


def test_the_text_of_records_comes_from_other_processes_too(folder: Path) -> None:
    assert len(read_sources([str(folder)], OVERRIDES, alone_s=0, with_quotes=True).entries) == 90


@contextmanager
def killing() -> Iterator[None]:
    """Kill every child that has done nothing for two seconds: it waits for the pipe, or for another one that does."""
    is_over = threading.Event()

    def kill() -> None:
        seen: dict[tuple[int | None, str], float] = {}
        while not is_over.wait(0.1):
            for child in multiprocessing.active_children():
                now_s = time.monotonic()
                if now_s - seen.setdefault((child.pid, worked(child.pid)), now_s) > 2:
                    child.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    yield
    is_over.set()
    thread.join()


def worked(pid: int | None) -> str:
    """What the system has counted of the work of a process."""
    try:
        return " ".join(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
    except OSError:
        return ""


def test_a_log_that_kills_its_reader_is_a_row_and_the_others_are_read(folder: Path) -> None:
    os.mkfifo(folder / "40.pipe")  # whoever opens it waits until he is killed
    items = [Item(path=str(path), kind=Kind.LOG, is_regular=True) for path in sorted(folder.iterdir())]
    work = [(number, item, OPTIONS) for number, item in enumerate(items)]
    shown: list[tuple[int, int]] = []
    with killing():
        results = read_many(work, lambda files, size: shown.append((files, size)))
    assert len(results) == 92
    for number, item, _ in work:
        (entry,) = results[number].entries
        assert entry.source == item.path
        expected = "killed" if item.path.endswith("pipe") else "training line" if "50.txt" in item.path else ""
        assert expected in " ".join(entry.reason_texts)
        assert entry.has_number == (not expected and "51.log" not in item.path)
    assert shown


@pytest.mark.parametrize("lack", ["/bin/false", "/no/such/program", "processes", "shared memory"])
def test_where_no_process_can_be_started_the_logs_are_read_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lack: str
) -> None:
    """The file system of shared memory may be absent, closed to this user, or read-only."""
    expected = as_json(folder, alone_s=1e9)
    resource_tracker.ensure_running()
    if lack == "processes":
        none = Mock(side_effect=BlockingIOError(11, "Resource temporarily unavailable"))
        monkeypatch.setattr("multiprocessing.popen_spawn_posix.Popen._launch", none)
    elif lack == "shared memory":
        none = Mock(side_effect=PermissionError(13, "Permission denied"))
        monkeypatch.setattr("multiprocessing.heap.Arena.__init__", none)
        monkeypatch.setattr("multiprocessing.heap.BufferWrapper._heap", multiprocessing.heap.Heap())
    else:
        multiprocessing.set_executable(lack)
    try:
        assert as_json(folder, alone_s=0) == expected
    finally:
        multiprocessing.set_executable(sys.executable)


def test_readers_that_die_while_others_are_started_hold_nobody_up(folder: Path) -> None:
    program = folder.parent / "now and then"
    program.write_text(f"#!/bin/bash\nif ((RANDOM % 3)); then exit 1; fi\nexec '{sys.executable}' \"$@\"\n")
    program.chmod(0o755)
    items = [Item(path=str(path), kind=Kind.LOG, is_regular=True) for path in sorted(folder.glob("[0-4]*.log"))] * 2
    work = [(number, item, OPTIONS) for number, item in enumerate(items)]
    resource_tracker.ensure_running()  # with the interpreter that there is
    multiprocessing.set_executable(str(program))
    try:
        for _ in range(6):
            results = read_many(work, lambda *_: None)
            assert all(entry.has_number for result in results.values() for entry in result.entries)
            assert multiprocessing.active_children() == []
    finally:
        multiprocessing.set_executable(sys.executable)


PROGRAM = """
import sys
from nlp_bench.inputs import sources
sources.read_sources.__kwdefaults__["alone_s"] = 0
from nlp_bench.cli.main import main
if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("most", [2, 3, 4, 5, 6])
def test_where_a_login_node_allows_few_more_processes_the_logs_are_read(open_folder: Path, most: int) -> None:
    """Threads count too: the one that hands out the work cannot be started, or the one that it needs, or a reader's own."""
    (open_folder / "logs").mkdir()
    for number in range(70):  # for two processes
        (open_folder / f"logs/{number}.log").write_text(published_log(total=100 + number))
    (open_folder / "program").write_text(PROGRAM)
    limited = ["bash", "-c", f'ulimit -u {most}; exec "$@"', "bash", sys.executable, str(open_folder / "program")]
    words = [*as_user(20080 + most), *limited, "logs", "--sequence-length", "2048", "--format", "csv"]
    variables = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"}
    done = execute(*words, cwd=open_folder, env=variables, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("MEASURED") == 70


def children(pid: int) -> list[int]:
    return [int(word) for word in text_of(Path(f"/proc/{pid}/task/{pid}/children")).split()]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_end_from_outside_leaves_no_process_and_no_trace(tmp_path: Path, end: signal.Signals) -> None:
    (tmp_path / "0.log").write_text(published_log())
    member = gzip.compress(b"NCCL INFO noise that is no record\n" * 200_000, 1)
    for name in ("1.gz", "2.gz"):
        (tmp_path / name).write_bytes(member * 2000)  # 13 GB of text: minutes
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    started = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until(lambda: len(children(started.pid)) >= 3, 30)  # two readers and Python's resource tracker
    readers = children(started.pid)
    time.sleep(0.5)
    if end == signal.SIGINT:
        os.killpg(started.pid, end)  # as a terminal does
    else:
        started.kill()
    out, err = started.communicate(timeout=20)
    assert (started.returncode, out) == (130 if end == signal.SIGINT else -9, "")
    assert "Traceback" not in err
    if end == signal.SIGINT:
        assert err == "nlp-bench: interrupted; repeat the same command to go on\n"
    until(lambda: not any(map(is_running, readers)), 10)
