"""Logs that hold odd bytes on their way to JUBE's table, and logs that others write while they are read."""

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.ours import write_our_run
from support.processes import NLP_BENCH, surroundings

from nlp_bench.config.run import Run
from nlp_bench.logs.reader import read_log
from nlp_bench.logs.source import ANEW

pytestmark = pytest.mark.slow

HEADS = [
    f"[default0]: iteration {number:8d}/   40000 | elapsed time per iteration (ms): 10.0 | "
    for number in range(1, 10_001)
]
WRITER = """
import os, sys
path, way, heads = sys.argv[1], sys.argv[2], open(sys.argv[3]).read().splitlines()
generation = 0
while True:
    generation += 1
    flags = os.O_TRUNC if way == "anew" else 0
    target = path if way == "anew" else path + ".new"
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | flags)
    if way != "anew":
        os.rename(target, path)
    text = "".join(f"{head}global batch size: 8 | lm loss: {generation}.0 |\\n" for head in heads).encode()
    for begin in range(0, len(text), 50_001):
        os.write(file, text[begin : begin + 50_001])
    os.close(file)
"""
CHATTER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
while True:
    os.write(file, b"[rank7]: UserWarning: torch.cuda.amp.autocast(args) is deprecated\\n" * 1000)
    time.sleep(0.05)
"""


@contextmanager
def writing(path: Path, way: str) -> Iterator[None]:
    """Have another process write log after log to `path`, each with a loss of its own: `renewed` or `anew` in place."""
    heads = path.with_name("heads")
    heads.write_text("\n".join(HEADS))
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), way, str(heads)])
    try:
        while not path.exists() or path.stat().st_size < 300_000:
            assert writer.poll() is None
        yield
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.parametrize("way", ["renewed", "anew"])
def test_a_log_that_is_written_while_it_is_read(tmp_path: Path, way: str) -> None:
    """What is read is the beginning of one log that was there; if it is not, that is said."""
    path = tmp_path / "job.out"
    num_said, lengths = 0, set()
    with writing(path, way):
        for _ in range(15):
            log = read_log(str(path))
            if log.damage:
                num_said += 1
                assert log.damage == ANEW or log.damage.startswith("the file was cut while it was read")
                continue
            records = [record for attempt in log.attempts for record in attempt.records]
            lengths.add(len(records))
            assert [record.iteration for record in records] == list(range(1, len(records) + 1))
            assert len({record.lm_loss for record in records if record.is_whole}) <= 1
    assert lengths
    assert way == "anew" or not num_said


def test_a_run_is_measured_while_a_rank_still_writes(tmp_path: Path) -> None:
    folder = write_our_run(tmp_path / "run")
    subprocess.run([*NLP_BENCH, "measure", str(folder)], env=surroundings(), check=True, capture_output=True)
    alone = (folder / "metrics.txt").read_text()
    assert "outcome: VALID" in alone
    writer = subprocess.Popen([sys.executable, "-c", CHATTER, str(folder / "job.out")])
    try:
        done = subprocess.run(
            [*NLP_BENCH, "measure", str(folder)], env=surroundings(), check=True, capture_output=True, text=True
        )
    finally:
        writer.kill()
        writer.wait()
    assert (folder / "metrics.txt").read_text() == alone, done.stderr


@pytest.mark.usefixtures("newer_jube")
@pytest.mark.jube
def test_odd_bytes_reach_the_table_of_jube(
    stub_run: Callable[..., Run], jube_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JUBE reads metrics.txt alone: one byte that is no text in any log it analysed would cost the whole table."""
    file = jube_file(plain=stub_run("ok", launcher="local"), odd=stub_run("odd", launcher="local"))
    monkeypatch.chdir(file.parent)
    for words in (("run", str(file), "--hide-animation"), ("result", "-a", "runs", "--id", "last")):
        done = subprocess.run(
            ["jube", *words], env=surroundings(), capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
    logs = {path.parts[-3]: path.read_bytes() for path in file.parent.glob("runs/*/*_train/work/job.out")}
    assert sorted(b"\xff" in log and b"\x00" in log and b"\x1b[" in log for log in logs.values()) == [False, True]
    rows = list(csv.DictReader(next(file.parent.rglob("result/result.dat")).read_text(encoding="utf-8").splitlines()))
    assert {row["case"]: row["outcome"] for row in rows} == {"plain": "VALID", "odd": "VALID"}
    assert all(float(row["tokens"]) > 0 for row in rows)
