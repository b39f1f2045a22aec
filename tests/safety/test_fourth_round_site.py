"""What a site, its file systems and other users do to a run: faults that a fourth round of fresh eyes thought of."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from faults.stand_in import stub_run

from nlp_bench.cli.main import main
from nlp_bench.config.scheduler import Job, State
from nlp_bench.errors import UsageError
from nlp_bench.launch.end.ending import Ending, write_ending
from nlp_bench.launch.end.evidence import ScriptRecord, write_record
from nlp_bench.launch.folder import run_folder
from nlp_bench.launch.follow import sync as syncing
from nlp_bench.launch.follow.sync import sync
from nlp_bench.launch.scheduler import slurm
from nlp_bench.launch.scheduler.slurm import Slurm
from nlp_bench.launch.submission import Submission
from nlp_bench.outcome import Outcome

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose job 7 has ended on a node whose files are not visible from here yet."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    stub_run("well").write(tmp_path)
    Submission(job_ids=["7"], comment="nlp-bench:1").write(tmp_path)
    os.utime(tmp_path / "submit.json", (time.time() - 86400,) * 2)  # it has waited in the queue for a day
    job = slurm.job("COMPLETED", job_id="7", exit_code="0:0")
    monkeypatch.setattr(Slurm, "query", lambda *_, **__: job)
    return tmp_path


def test_a_log_that_is_not_visible_yet_is_waited_for(unseen: Path) -> None:
    for _ in range(2):
        ending, state = sync(unseen)
        assert ending is None
        assert "job.out and the job's own records are not visible from here yet; waiting up to 300 s" in state
    assert not (unseen / "outcome.json").exists()
    own = Ending(outcome=Outcome.VALID)
    write_ending(unseen, own, exit_status=0, job_id="7")  # the job's own word arrives
    assert sync(unseen) == (own, "ended")


def test_a_log_that_never_comes_is_decided_without_it(unseen: Path) -> None:
    sync(unseen)
    (trace,) = unseen.glob(".ended-without-a-log.*")
    os.utime(trace, (time.time() - syncing.GONE_S - 60,) * 2)
    ending, _ = sync(unseen)
    assert ending
    assert ending.outcome is Outcome.INCOMPLETE
    assert "job.out is gone" in ending.text()
    assert not trace.exists()


def test_a_record_of_the_job_script_is_enough_to_decide(unseen: Path) -> None:
    write_record(unseen, ScriptRecord(exit_status=0, signal="", job_id="7", restarts=0))
    assert sync(unseen)[0]


@pytest.mark.parametrize(
    "job",
    [
        slurm.job("CANCELLED", job_id="7", exit_code="0:15"),
        slurm.job("FAILED", job_id="7", exit_code="0:53", reason="JobLaunchFailure"),
    ],
)
def test_a_job_that_never_started_is_not_waited_for(unseen: Path, monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    assert job.state is State.ENDED
    monkeypatch.setattr(Slurm, "query", lambda *_, **__: job)
    assert sync(unseen)[0]


@pytest.mark.parametrize("name", ["job.out", "job.err", "sync.log", "submit.json", ".lock"])
def test_a_link_in_a_folder_of_somebody_else_is_not_written_through(tmp_path: Path, name: str) -> None:
    run, folder = stub_run("well"), tmp_path / "run"
    folder.mkdir()
    (tmp_path / "precious").write_text("mine")
    (folder / name).symlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match=rf"--run-dir: .*{name} is a link, .* remove it, or name a new folder"):
        run_folder(tmp_path, run, folder, recorded=None)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UsageError, match=rf"--run-dir: .*{name} is no regular file"):
        run_folder(tmp_path, run, folder, recorded=None)


def test_a_log_that_lies_there_is_no_log_of_a_new_run(tmp_path: Path) -> None:
    run, folder = stub_run("well"), tmp_path / "run"
    folder.mkdir()
    (folder / "stdout").write_text("JUBE's own")
    (folder / "job.out").write_text("iteration 1/")
    with pytest.raises(UsageError, match="holds job.out, the log of a run that was not submitted there.*a new folder"):
        run_folder(tmp_path, run, folder, recorded=None)
    run.write(folder)
    Submission(job_ids=["7"], comment="nlp-bench:1").write(folder)
    assert run_folder(tmp_path, run, folder, recorded=None) == folder  # submitted again: a retry, or what was cut off
    (folder / "job.out").unlink()
    (folder / "submit.json").unlink()
    assert run_folder(tmp_path, run, folder, recorded=None) == folder
