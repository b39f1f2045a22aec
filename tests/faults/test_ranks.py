"""Faults of ranks, on the real torchrun: the outcome, the rank that is to blame, and no process left."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import NLP_BENCH, processes_with, surroundings, text_of, until
from support.sandbox import Sandbox

from faults import stand_in
from nlp_bench.config.run import Run

pytestmark = [pytest.mark.torchrun]
Stub = Callable[..., Run]


class Training:
    """A local `nlp-bench submit` of one run."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run_dir = folder / "run"
        words = [*NLP_BENCH, *stand_in.submit(run.write(folder), self.run_dir)]
        self.process = subprocess.Popen(
            words, env=surroundings(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def log(self) -> str:
        return logs(self.run_dir)

    def until_it_trains(self) -> None:
        until(lambda: "iteration        2/" in self.log(), shown=self.log)

    def pids(self, text: str) -> list[int]:
        """Return the processes of this run with `text` in their command line."""
        own = str(self.run_dir)
        return [pid for pid, line in processes_with(own).items() if text in line]

    def ended(self, bound_s: float) -> dict[str, object]:
        """Return outcome.json after an end within `bound_s` that leaves no process."""
        with self.process as process:
            process.communicate(timeout=bound_s)
        until(lambda: not processes_of(self.run_dir), 10, lambda: processes_of(self.run_dir))
        record: dict[str, object] = json.loads((self.run_dir / "outcome.json").read_text())
        return record


def processes_of(run_dir: Path) -> list[int]:
    """Return the processes that have the run's folder as theirs: torchrun, its ranks, the recorder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            found += [int(link.parent.name)] if link.readlink() == run_dir else []
    return found


@pytest.mark.parametrize(
    ("mode", "outcome", "reason", "evidence"),
    [
        ("gpu_memory", "OUT_OF_MEMORY", "exit status 1, last iteration 2", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB; rank 1 exitcode 1"),
        ("kill", "FAILED", "killed by signal 9 (rank 1)", "rank 1 exitcode -9"),
        ("leave", "FAILED", "rank 1 ended first, without an error of its own", "rank 0"),
        ("cleanup", "VALID", "completed with errors: exit status 1 after the last iteration", "rank 1 exitcode 3"),
    ],
)  # fmt: skip
def test_a_rank_that_fails(rank_run: Stub, tmp_path: Path, mode: str, outcome: str, reason: str, evidence: str) -> None:
    training = Training(rank_run(mode), tmp_path)
    record = training.ended(60)
    assert (record["outcome"], record["exit_status"]) == (outcome, 1), training.log()
    assert reason in str(record["reasons"]), training.log()
    assert evidence in str(record["evidence"]), training.log()


@pytest.mark.parametrize("mode", ["hang", "deaf"])
def test_a_training_that_stands_still_is_ended(rank_run: Stub, tmp_path: Path, mode: str) -> None:
    training = Training(rank_run(mode, stall_least_s=3.0, stall_factor=5.0), tmp_path)
    training.until_it_trains()
    record = training.ended(60)
    assert record["outcome"] == "FAILED"
    assert "stalled after iteration 2, silent for" in str(record["reasons"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_torchrun_is_ended_from_outside(rank_run: Stub, tmp_path: Path, number: int) -> None:
    training = Training(rank_run("hang_all"), tmp_path)
    training.until_it_trains()
    (agent,) = training.pids("torch.distributed.run")
    os.kill(agent, number)
    record = training.ended(60)
    assert record["outcome"] == "FAILED"
    assert number != signal.SIGKILL or "killed by signal 9" in str(record["reasons"])


def test_the_launcher_is_killed(rank_run: Stub, tmp_path: Path) -> None:
    training = Training(rank_run("hang_all"), tmp_path)
    training.until_it_trains()
    (launcher,) = training.pids("nlp_bench launch")
    os.kill(launcher, signal.SIGKILL)
    record = training.ended(60)
    assert (record["outcome"], record["exit_status"]) == ("FAILED", 137)


@pytest.fixture
def submitted(slurm: Sandbox, rank_run: Stub, tmp_path: Path) -> Callable[..., Path]:
    """Submit a run of two nodes and return its folder once it trains."""

    def submit(mode: str, **wishes: float) -> Path:
        record, run_dir = rank_run(mode, launcher="slurm", **wishes).write(tmp_path), tmp_path / "run"
        slurm(*NLP_BENCH, *stand_in.submit(record, run_dir))
        until(lambda: "iteration        2/" in text_of(run_dir / "job.out"), shown=lambda: logs(run_dir))
        return run_dir

    return submit


def logs(run_dir: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in sorted(run_dir.glob("job.*")))


def ended(run_dir: Path, bound_s: float) -> dict[str, object]:
    """Return the outcome that the job itself writes within `bound_s`, and look that it leaves no process."""
    outcome = run_dir / "outcome.json"
    until(lambda: outcome.exists() and not processes_of(run_dir), bound_s, lambda: logs(run_dir))
    record: dict[str, object] = json.loads((run_dir / "outcome.json").read_text())
    return record


@pytest.mark.slurm
def test_a_stall_on_two_nodes(submitted: Callable[..., Path]) -> None:
    record = ended(submitted("hang", stall_least_s=3.0, stall_factor=5.0), 90)
    assert record["outcome"] == "FAILED"
    assert "stalled after iteration 2, silent for" in str(record["reasons"])


@pytest.mark.slurm
def test_all_nodes_are_asked_to_stop(slurm: Sandbox, submitted: Callable[..., Path]) -> None:
    run_dir = submitted("stop", iterations=10_000, notice_s=60)
    job = json.loads((run_dir / "submit.json").read_text())["job_id"]
    slurm("scancel", "--batch", "--signal=USR1", job)  # what `--signal=B:USR1@60` does when the time has come
    record = ended(run_dir, 60)
    assert (record["outcome"], record["exit_status"]) == ("TIMEOUT", 0)
    assert "by signal USR1 that its time is nearly over" in str(record["reasons"])
    assert "training stopped by exit-signal-handler" in (run_dir / "job.out").read_text()


def test_the_ranks_are_asked_to_stop_before_the_time_limit(rank_run: Stub, tmp_path: Path) -> None:
    training = Training(rank_run("stop", timelimit="00:00:40", iterations=10_000, notice_s=20), tmp_path)
    record = training.ended(39)
    assert record["outcome"] == "TIMEOUT"
    assert "the job was told by signal USR1 that its time is nearly over" in str(record["reasons"])
    assert record["exit_status"] == 0
    assert "training stopped by exit-signal-handler" in training.log()
