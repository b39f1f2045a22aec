"""The checks for half an hour with a GPU run the same way on a CPU, and tell a wrong training."""

import json
import sys
from pathlib import Path

import pytest
from support.pages import check_block
from support.processes import ROOT, execute

DAY = ROOT / "benchmark/perf/gpu"


@pytest.mark.torchrun
def test_checks_go_on_where_they_were_cut_and_a_failure_is_the_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, str(DAY / "correct.py"), "--output", str(tmp_path), "--smoke", "--only", "llama float32"]
    first = execute(*command, timeout=900)
    assert (first.returncode, "1 checks, 0 failed" in first.stdout) == (0, True), first.stdout + first.stderr
    assert "passed" not in execute(*command, check=True, timeout=60).stdout  # it was done
    command[-1] = "checkpoint"
    (tmp_path / "checkpoint").write_text("a file where the folder should be")
    failed = execute(*command, timeout=900)
    assert (failed.returncode, "FAILED" in failed.stdout) == (1, True), failed.stdout + failed.stderr


def test_what_had_no_time_is_tried_again_and_never_passed(tmp_path: Path) -> None:
    command = [sys.executable, str(DAY / "truth.py"), "--output", str(tmp_path), "--smoke", "--budget", "0"]
    for _ in range(2):
        done = execute(*command, timeout=60)
        assert (done.returncode, "0 parts done, 5 not: doctor, calibrated" in done.stdout) == (1, True), done.stderr


@pytest.mark.torchrun
def test_what_a_switch_gains_is_held_against_the_step_without_it(tmp_path: Path) -> None:
    command = [sys.executable, str(DAY / "stretch.py"), "--output", str(tmp_path), "--smoke", "--only"]
    words = ["8-bit", "graph", "step as it is", "rotary"]
    done = execute(*command, *words, timeout=900)
    assert (done.returncode, "4 trials, 0 failed" in done.stdout) == (0, True), done.stdout + done.stderr
    trials = json.loads((tmp_path / "stretch.json").read_text())["trials"]
    plain = trials["step without compiled rotary positions"]["losses"]
    assert trials["step as it is"]["losses"] == pytest.approx(plain, rel=1e-3)
    assert max(max(errors) for errors in trials["8-bit products"]["relative_errors"].values()) < 0.1
    assert "not_here" in trials["layer in a CUDA graph"]


def test_the_page_shows_the_arithmetic_of_a_step() -> None:
    done = execute(sys.executable, str(DAY / "roofline.py"), check=True)
    check_block(ROOT / "docs/kernels.md", "roofline", done.stdout)
