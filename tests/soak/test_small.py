"""The soak's scripts, with few trials each, so that they stay true; the figures come from `tests/soak/run.sh`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


def soak(script: str, *words: str, bound_s: float = 400) -> str:
    """Run one script as a person would; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    done = subprocess.run(
        [sys.executable, str(HERE / script), *words], env=environment, capture_output=True, text=True, timeout=bound_s, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_changed_files() -> None:
    assert "74 changed files, 0 failed" in soak(
        "fuzz_files.py", "--num", "74", "--seed", "1", "--processes", "1"
    )  # each file once


def test_mutated_logs() -> None:
    printed = soak("fuzz_logs.py", "--num", "174", "--seed", "0", "--processes", "1")  # each log once
    assert "174 mutated logs, 0 failed, 0 with a rate" in printed


def test_kill_points() -> None:
    """Each writer at a call on files; one of them at every kind of point."""
    printed = soak("kill_points.py", "--points", "1", "--processes", "1")
    assert "25 kills of 25 writers, 0 failed" in printed
    assert ", 0 killed" not in printed
    assert "8 kills of 1 writers, 0 failed" in soak("kill_points.py", "--points", "8", "--only", "outcome.json")


def test_appends() -> None:
    assert "4 processes, 5 runs each: 20 of 20 records" in soak("appends.py", "--writers", "4", "--runs", "5")


def test_full_disks() -> None:
    assert "of 25 writers" in (printed := soak("full_disk.py", "--levels", "1", "--kinds", "full,readonly,quota"))
    assert ", 0 failed, " in printed


def test_signals() -> None:
    printed = soak("signals.py", "--num", "5", "--only", "check,measure,history,export,watch")
    assert "5 signals to 5 subcommands" in printed
    assert ", 0 failed, " in printed


@pytest.mark.torchrun
def test_orphans() -> None:
    """Of the real trainer, whose torchrun is killed; a rank that is killed: tests/faults/test_ranks.py."""
    printed = soak("orphans.py", "--num", "1", "--first", "1")
    assert "SIGKILL to torchrun: nothing left" in printed
    assert "1 killed trainings, 0 with a process left" in printed


@pytest.mark.slurm
@pytest.mark.jube
def test_jobs_on_slurm() -> None:
    printed = soak("slurm_jobs.py", "--num", "4", "--seed", "5")
    assert "4 accounted for, 0 lost, 0 twice, 0 false, 0 wrong in the report" in printed
    assert re.search(r"4 jobs, [23] faults", printed)  # a job may be too quick for its submit to be killed


@pytest.mark.slurm
@pytest.mark.jube
def test_exactly_once() -> None:
    printed = soak("exactly_once.py", "--num", "1", "--seed", "1")
    assert "exactly once: 1 JUBE runs" in printed
    assert " 0 failed" in printed


def test_a_failure_is_found_and_its_seed_is_said() -> None:
    """A check that raises, hangs or dies in C fails the run."""
    code = (
        "import sys, os, time; sys.path.insert(0, sys.argv[1])\n"
        "from soak.workers import run_all\n"
        "def check(seed):\n"
        "    if seed == 3: time.sleep(60)\n"
        "    if seed == 4: return 'seed 4: wrong'\n"
        "    if seed == 5: os.kill(os.getpid(), 9)\n"
        "print('failed', run_all(lambda folder: check, first=0, num=6, processes=2, bound_s=0.5))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(HERE.parent)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "seed 3: no answer within 0.5 s" in done.stdout
    assert "seed 4: wrong" in done.stdout
    assert "seed 5: its process ended with -9" in done.stdout
    assert "failed 3" in done.stdout
