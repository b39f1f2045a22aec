"""Disks that are full or can only be read, mounted for real in a namespace of their own, and runs in a folder on them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import gone, surroundings

from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.scheduler import local
from nlp_bench.launch.submission import Submission

pytestmark = pytest.mark.slow

Stub = Callable[..., Run]
NLP_BENCH = f'"{sys.executable}" -m nlp_bench'


@pytest.fixture
def on_disk(tmp_path: Path) -> Callable[[str], str]:
    """Run a shell script in a folder on a small disk that is there for it alone; return what it printed, stderr too."""

    def run(script: str, *, path: str = "") -> str:
        disk = tmp_path / "disk"
        disk.mkdir(exist_ok=True)
        whole = f'mount -t tmpfs -o size=1m none "{disk}" && cd "{disk}" && {{ {script}\n}}'
        words = ["unshare", "-rm", "bash", "-c"]
        if not shutil.which("unshare") or subprocess.run([*words, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode:  # fmt: skip
            pytest.skip("no mount may be made here")
        environment = surroundings(PATH=f"{path}{os.environ['PATH']}")
        done = subprocess.run(
            [*words, whole], env=environment, capture_output=True, text=True, timeout=200, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    return run


def test_the_disk_fills_up_while_a_run_trains(on_disk: Callable[[str], str], stub_run: Stub, tmp_path: Path) -> None:
    """The training goes to its end, its last lines have no room: a word, no number, and nothing waits."""
    record = stub_run("fill", launcher="local").write(tmp_path)
    said = on_disk(
        f'{NLP_BENCH} submit --run "{record}" --run-dir run; echo "submit: $?"; ls -A run | grep part; rm run/filling\n'
        f'{NLP_BENCH} sync run; {NLP_BENCH} measure run; echo "measure: $?"; cp run/* "{tmp_path}" 2> /dev/null'
    )
    assert "submit: 1" in said, said
    assert "run/outcome.json: No space left on device; the file system is full: make room" in said
    assert ".part" not in said
    outcome = json.loads((tmp_path / "outcome.json").read_text())["outcome"]
    assert outcome in {"INCOMPLETE", "FAILED", "UNKNOWN"}, said
    metrics = (tmp_path / "metrics.txt").read_text()
    assert f"outcome: {outcome}" in metrics
    assert "tokens_per_second" not in metrics


def test_a_run_whose_record_has_no_room_is_ended(
    stub_run: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its process in submit.json nobody would keep a training's time limit."""

    def full(submission: Submission, _: Path) -> None:
        if submission.script_pid:
            raise NlpBenchError("cannot write submit.json: No space left on device")

    monkeypatch.setattr(Submission, "write", full)
    script = tmp_path / "submit.job"
    script.write_text("sleep 1000\n")
    handle = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    with pytest.raises(NlpBenchError, match="No space left"):
        local.train(stub_run("ok", launcher="local"), script, chain=1, lock=handle)
    os.close(handle)
    assert gone(str(script))


@pytest.mark.parametrize("launcher", ["slurm", "local"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_submitted(
    on_disk: Callable[..., str], stub_run: Stub, tmp_path: Path, launcher: str
) -> None:
    record = stub_run("ok", launcher=launcher).write(tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sbatch", "squeue", "scontrol"):
        (tools / name).write_text(f'#!/bin/sh\necho {name} >> "{tmp_path}/asked"\nexit 1\n')
        (tools / name).chmod(0o755)
    submit = f'{NLP_BENCH} submit --run "{record}" --no-follow --run-dir'
    said = on_disk(
        f"mkdir there; head -c 2M /dev/zero > fill 2> /dev/null\n{submit} there; echo full: $?\nrm fill; mount -o remount,ro .\n"
        f"{submit} there; echo there: $?; {submit} new; echo new: $?; {submit} there/under; echo under: $?; ls -A there",
        path=f"{tools}:",
    )
    refused = [line.removesuffix(": 2") for line in said.splitlines() if line.endswith(": 2")]
    assert refused == ["full", "there", "new", "under"], said
    assert "--run-dir: there is not writable: No space left on device; the file system is full: make room" in said
    assert (
        "--run-dir: there is not writable: Read-only file system; the file system can only be read here: name a folder"
        in said
    )
    assert (
        "--run-dir: cannot create new: Read-only file system; the file system can only be read here: name a folder of another one; or name another folder"
        in said
    )
    assert not (tmp_path / "asked").exists()
