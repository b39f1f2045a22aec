"""One file is a scheduler: with toy_scheduler.py and an entry point a run is submitted, watched, synced and reported."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import NLP_BENCH, surroundings, text_of, until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
Command = Callable[..., "subprocess.CompletedProcess[str]"]
SYSTEM = """\
schema = "nlp-bench/system/1"
description = "a box with a toy queue"
launcher = "toy"
accelerator = "cpu"
gpus_per_node = 1
[environment]
PYTHONPATH = "{stub}:{package}"
NLP_BENCH_STUB = "{mode}"
"""


@pytest.fixture
def toy(tmp_path: Path) -> Command:
    """nlp-bench on a machine where a package with the toy scheduler is installed."""
    package, queue = tmp_path / "package", tmp_path / "queue"
    made = package / "toy_box-1.dist-info"
    made.mkdir(parents=True)
    queue.mkdir()
    shutil.copy(ROOT / "tests/launch/toy_scheduler.py", package / "toy_box.py")
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-box\nVersion: 1\n")
    (made / "entry_points.txt").write_text("[nlp_bench.schedulers]\ntoy = toy_box:Toy\n")
    environment = surroundings(PYTHONPATH=f"{package}:{ROOT / 'src'}", TOY_QUEUE=str(queue))

    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*NLP_BENCH, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )  # fmt: skip

    return call


def request(folder: Path, mode: str, *further: str) -> list[str]:
    """Return the options of a run whose training is the stub of tests/faults."""
    (folder / "box.toml").write_text(
        SYSTEM.format(stub=ROOT / "tests/faults/stub", package=folder / "package", mode=mode)
    )
    words = "--model tiny --nodes 1 --gpus-per-node 1 --tp 1 --pp 1 --iterations 4 --data-path mock"
    return ["--system", str(folder / "box.toml"), *words.split(), *further]


def until_ended(toy: Command, run_dir: Path) -> dict[str, object]:
    outcome = run_dir / "outcome.json"
    until(lambda: toy("sync", str(run_dir)) and outcome.exists(), 90, (run_dir / "job.err").read_text)
    record: dict[str, object] = json.loads(outcome.read_text())
    return record


def test_a_run_is_submitted_watched_and_reported(toy: Command, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = ["submit", *request(tmp_path, "slow 1"), "--run-dir", str(run_dir), "--no-follow"]
    done = toy(*words)
    assert done.stdout == "Submitted batch job toy-1\n", done.stderr
    script = (run_dir / "submit.job").read_text().splitlines()
    assert script[1] == "#TOY name=nlp-bench-tiny"
    assert not any("SBATCH" in line or "SLURM" in line for line in script)
    assert (
        "on the move" in toy("watch", "--once", str(run_dir)).stderr or "iteration" in (run_dir / "job.out").read_text()
    )
    again = toy("submit", "--run", str(run_dir / "run.json"), "--run-dir", str(run_dir))
    assert "nothing was submitted again" in again.stderr or again.stdout.startswith("VALID")
    record = until_ended(toy, run_dir)
    assert record["outcome"] == "VALID", record
    assert (record["job_id"], record["sources"]["toy"]["state"]) == ("toy-1", "on the move")  # type: ignore[index]
    report = toy("report", str(run_dir), "--format", "json")
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)["runs"][0]["outcome"] == "VALID"
    assert "VALID" in toy("watch", "--once", str(run_dir)).stderr


def test_a_failure_names_the_scheduler_and_its_commands(toy: Command, tmp_path: Path) -> None:
    run_dir, queue = tmp_path / "run", tmp_path / "queue"
    assert toy("submit", *request(tmp_path, "hang"), "--run-dir", str(run_dir), "--no-follow").returncode == 0
    until(lambda: text_of(run_dir / "job.out").count("elapsed time") == 2)  # of 4, then nothing
    os.utime(run_dir / "job.out", (time.time() - 1000,) * 2)
    assert f"see cat {queue}/toy-1.json" in toy("watch", "--once", str(run_dir)).stderr
    (queue / "silent").touch()
    assert "Toy does not answer" in toy("sync", str(run_dir)).stdout
    (queue / "silent").unlink()
    os.killpg(json.loads((queue / "toy-1.json").read_text())["pid"], 9)
    (queue / "toy-1.status").write_text("137")
    record = until_ended(toy, run_dir)
    assert (record["outcome"], record["reasons"]) == ("CANCELLED", ["Toy: taken away"])
    assert record["sources"]["decided_by"] == "Toy's state"  # type: ignore[index]


def test_what_it_refuses_is_refused(toy: Command, tmp_path: Path) -> None:
    request(tmp_path, "ok")
    words = ["check", "--system", str(tmp_path / "box.toml"), "--model", "tiny"]
    many = toy(*words, "--nodes", "2", "--launcher", "toy")
    assert (many.returncode, "but Toy has one" in many.stderr) == (2, True), many.stderr
    option = toy(*words, "--nodes", "1", "--sbatch-arg=--qos=x")
    assert (option.returncode, "Toy takes none: --qos=x" in option.stderr) == (2, True), option.stderr
    (tmp_path / "queue/closed").touch()
    run_dir = tmp_path / "run"
    closed = toy("submit", *request(tmp_path, "ok"), "--run-dir", str(run_dir), "--no-follow")
    assert "Toy refuses all jobs today" in closed.stderr
    assert not (run_dir / "submit.json").exists()
    (tmp_path / "queue").rename(tmp_path / "elsewhere")
    away = toy(*words, "--launcher", "toy")
    assert "launch.launcher: toy, but no Toy answers here (TOY_QUEUE names no folder); make it" in away.stderr
