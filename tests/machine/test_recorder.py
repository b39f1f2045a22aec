"""The recorder as a process: it writes beside its parent, ends with it however that ends, and never disturbs it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command import Cli
from support.processes import execute, is_running, until

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.launch.nodes.torchrun import rank_environment
from nlp_bench.machine.recorder import interval_s, recorder_command

PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-m", "nlp_bench.machine.recorder", sys.argv[1], "--parent", str(os.getpid()), *sys.argv[2:]],
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)
print(child.pid, flush=True)
os.execvp("sleep", ["sleep", "60"])  # as torchrun takes the launcher's place
"""


class Recording:
    """A parent with its recorder."""

    def __init__(self, run_dir: Path, *options: str) -> None:
        command = [sys.executable, "-c", PARENT, str(run_dir), *options]
        variables = {**os.environ, "SLURMD_NODENAME": "n1"}
        self.parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
        self.pid = int(self.parent.stdout.readline())
        self.folder = run_dir / "machine"

    def lines(self) -> list[str]:
        path = self.folder / "n1.samples.csv"
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        self.parent.kill()
        self.parent.wait()
        self.parent.stdout.close()
        until(lambda: not is_running(self.pid))


@pytest.mark.slow
@pytest.mark.usefixtures("four_gpus")
def test_it_records_and_ends_with_a_parent_that_is_killed(tmp_path: Path, node: Path) -> None:
    options = ("--gpus", "4", "--interval-s", "0.05", "--root", str(node))
    recording = Recording(tmp_path, *options)
    until(lambda: len(recording.lines()) > 5)
    assert is_running(recording.pid)
    killed_s = time.time()
    recording.parent.send_signal(signal.SIGKILL)
    assert recording.parent.wait() == -signal.SIGKILL
    until(lambda: not is_running(recording.pid))
    recording.close()
    facts = json.loads((recording.folder / "n1.json").read_text())
    assert (facts["schema"], facts["node"], facts["interval_s"]) == ("nlp-bench/machine/1", "n1", 0.05)
    assert (facts["driver"], len(facts["gpus"]), facts["no_meter"]) == ("535.104.05", 4, None)
    header, *rows = recording.lines()
    assert header.startswith(
        "unix_time_s,load_1min,gpu0_energy_mj,gpu0_power_w,gpu0_sm_clock_mhz,gpu0_throttle_reasons,"
    )
    times = [float(row.split(",")[0]) for row in rows]
    assert times == sorted(times)
    assert times[-1] >= killed_s - 1e-3  # one sample more after the end, so that the last interval is covered
    counters = [[int(row.split(",")[2]) for row in rows], [int(row.split(",")[7]) for row in rows]]
    watts = [(c[-1] - c[0]) / 1e3 / (times[-1] - times[0]) for c in counters]
    assert watts == pytest.approx([100, 110], rel=0.25)
    assert sorted(path.name for path in recording.folder.iterdir()) == ["n1.json", "n1.samples.csv"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_whole_lines(tmp_path: Path, number: signal.Signals) -> None:
    recording = Recording(tmp_path, "--interval-s", "0.05")
    until(lambda: len(recording.lines()) > 2)
    os.kill(recording.pid, number)
    until(lambda: not is_running(recording.pid))
    assert recording.parent.poll() is None
    assert (recording.folder / "n1.samples.csv").read_bytes().endswith(b"\n")
    recording.close()


SET_FORWARD = """
import itertools, time
calls, real = itertools.count(), time.time
time.time = lambda: real() + 300 * next(calls)
time.time_ns = lambda: int(time.time() * 1e9)
"""
TRAINED = (
    "--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 1 "
    "--global-batch-size 2 --train-iters 8 --log-interval 1 --lr 1e-2 --mllog --mock-data --vocab-size 512"
)


@pytest.mark.slow
def test_a_clock_that_is_set_in_mid_run_enters_neither_the_lines_nor_the_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: `sustained` of a VALID row was 86494 s, not 11374 s, where NTP had set the node's clock 300 s forward."""
    (tmp_path / "sitecustomize.py").write_text(SET_FORWARD)
    began_s = time.time()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    recording = Recording(tmp_path, "--interval-s", "0.05")
    until(lambda: len(recording.lines()) > 5)
    recording.close()
    training = execute(sys.executable, "-m", "nlp_bench.train", *TRAINED.split(), check=True)
    events = re.findall(r':::MLLOG .*"time_ms": (\d+)', training.stdout)
    lines = [float(stamp) for stamp in re.findall(r"unix time: (\S+) ", training.stdout)]
    assert len(lines) == 8
    samples = [float(row.split(",")[0]) for row in recording.lines()[1:]]
    for stamps in (lines, samples, [int(event) / 1e3 for event in events]):
        assert 0 < max(stamps) - min(stamps) < time.time() - began_s


def test_a_fault_is_told_in_a_file_and_disturbs_nobody(tmp_path: Path) -> None:
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine/n1.samples.csv").mkdir()  # it cannot be written
    recording = Recording(tmp_path)
    until(lambda: not is_running(recording.pid))
    assert recording.parent.poll() is None
    assert "IsADirectoryError" in (tmp_path / "machine/n1.error.txt").read_text()
    recording.close()


def test_a_parent_that_is_gone_already(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nlp_bench.machine.recorder", str(tmp_path), "--parent", "1", "--interval-s", "60"]
    assert subprocess.run(command, timeout=30, check=False).returncode == 0


def test_the_command(tmp_path: Path) -> None:
    run = resolve(Request(model="175", system="juwels-booster"), ask_scheduler=False)
    assert recorder_command(run, tmp_path, 42, 1.0)[-5:] == ["42", "--gpus", "4", "--interval-s", "1"]
    on_cpu = resolve(Request(model="tiny", system="slurm-sandbox"), ask_scheduler=False)
    assert "--gpus 0 " in " ".join(recorder_command(on_cpu, tmp_path, 42, 1.0))


@pytest.mark.parametrize(("word", "value"), [("0.5", 0.5), ("0", 0.0), ("10", 10.0), ("", 1.0)])
def test_the_interval(monkeypatch: pytest.MonkeyPatch, word: str, value: float) -> None:
    monkeypatch.setenv("NLP_BENCH_SAMPLE_S", word)
    assert interval_s() == value


@pytest.mark.parametrize("word", ["fast", "-1", "1e9", "nan", "0,5", "0.001"])
def test_a_wrong_interval_is_refused_before_there_is_a_job(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, word: str
) -> None:
    monkeypatch.setenv("NLP_BENCH_SAMPLE_S", word)
    for command in ("check", "submit --print"):
        said = cli(*command.split(), "--model", "tiny", "--system", "local", "--mock-data", code=2).err
        assert f"NLP_BENCH_SAMPLE_S: {word!r} is no number of seconds from 0.05 to 60; leave it out for 1" in said


def test_nccl_says_its_version_unless_asked_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    run = resolve(Request(model="175", system="juwels-booster"), ask_scheduler=False)
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    assert rank_environment(run, {})["NCCL_DEBUG"] == "VERSION"
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    assert "NCCL_DEBUG" not in rank_environment(run, {})
