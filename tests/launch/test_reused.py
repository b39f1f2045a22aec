"""A controller that is killed may forget its last jobs, and gives their numbers away again: a number alone is no job of ours."""

import shutil
import threading
from pathlib import Path

import pytest
from support.command import Cli
from support.following import ending_of, forgets, program, sandbox_run

from nlp_bench.clock import now
from nlp_bench.config.scheduler import State
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch import chain, once
from nlp_bench.launch.end.log_facts import ScriptRecord, write_record
from nlp_bench.launch.follow import sync as syncing
from nlp_bench.launch.follow.sync import sync, sync_script
from nlp_bench.launch.scheduler.slurm import Slurm
from nlp_bench.launch.submission import Submission
from nlp_bench.outcome import Outcome

COMPLETED = "JobId=7 JobName=x JobState=COMPLETED Reason=None Restarts=2 ExitCode=0:0"


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder, with a blank in its name, whose job 7 Slurm has forgotten."""
    run_dir = tmp_path / "a run"
    run_dir.mkdir()
    sandbox_run().write(run_dir)
    Submission(job_ids=["7"], comment=once.folder_comment(run_dir) + "-00000001").write(run_dir)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return run_dir


def shows(run_dir: Path, words: str) -> None:
    program(run_dir.parent, "scontrol", f"echo '{words}'")


@pytest.mark.parametrize(
    "words",
    [
        f"{COMPLETED} Comment=nlp-bench:0123456789abcdef-00000002 WorkDir=/elsewhere/run StdErr=x",
        f"{COMPLETED} WorkDir=/elsewhere StdErr=x",
        f"{COMPLETED} Comment=ours WorkDir=/elsewhere",
    ],
)
def test_the_job_of_another_run_is_not_taken_for_ours(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Seen on a real Slurm: five runs that never began were given the end of other runs' jobs."""
    shows(submitted, words)
    assert sync(submitted) == (None, "Slurm does not know the job; waiting in case its record is late")
    monkeypatch.setattr(syncing, "GONE_S", 0)
    ending = ending_of(sync(submitted))
    assert ending.outcome is Outcome.UNKNOWN
    assert ending.texts == [
        "Slurm no longer knows the job (its number is another job's by now), and the exit status is lost; last iteration none"
    ]


@pytest.mark.parametrize("place", ["comment", "folder"])
def test_our_own_job_is_known_by_its_comment_or_its_folder(submitted: Path, place: str) -> None:
    """A site's plugin may change comments; a job that was submitted by hand from the folder has none."""
    comment = once.folder_comment(submitted) + "-00000001" if place == "comment" else "changed"
    folder = "/elsewhere" if place == "comment" else submitted
    shows(submitted, f"JobId=7 JobState=RUNNING Reason=None Comment={comment} WorkDir={folder} StdErr=x")
    assert sync(submitted) == (None, "RUNNING")


def test_a_copy_of_a_run_folder_is_not_the_folder_of_its_job(submitted: Path) -> None:
    """`cp -r` while the job waits: the copy, which has no log, became INCOMPLETE when the job had ended well."""
    copy = shutil.copytree(submitted, submitted.with_name("copy"))
    link = submitted.with_name("link")
    link.symlink_to(submitted)
    for state in ("PENDING Reason=Priority", "COMPLETED ExitCode=0:0"):
        shows(submitted, f"JobId=7 JobState={state} Comment=ours WorkDir={submitted} StdErr=x")
        with pytest.raises(
            NlpBenchError, match=rf"copy is a copy: its job 7 was submitted from {submitted}, where its log"
        ):
            sync(copy)
        sync(link)
    assert not (copy / "outcome.json").exists()


def test_a_chain_counts_its_own_jobs_only(submitted: Path) -> None:
    record = Submission(job_ids=["7", "8"], comment=once.folder_comment(submitted) + "-00000001")
    shows(submitted, "JobId=7 JobState=PENDING Reason=None Comment=nlp-bench:0123456789abcdef-00000002 WorkDir=/x")
    found = chain.query(Slurm(), record)
    assert found
    assert found.state is State.GONE
    assert chain.rest(Slurm(), record, "7") == []  # and nothing of another run is cancelled


def test_a_job_that_still_trains_does_not_believe_in_its_successor(
    submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    shows(submitted, f"{COMPLETED} Comment=nlp-bench:0123456789abcdef-00000002 WorkDir=/x")
    assert ending_of(sync_script(submitted, exit_status=5)).outcome is Outcome.FAILED


@pytest.mark.parametrize("says", ["JobState=PENDING Reason=Priority", "JobState=RUNNING BatchHost=node3"])
def test_a_start_that_the_controller_has_forgotten_decides_nothing(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    """Seen on a real Slurm: srun refused ("Job is pending execution"), and the second start trained in a folder that had ended."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "node4")
    shows(submitted, f"JobId=7 {says} Restarts=0 ExitCode=0:0 WorkDir={submitted} StdErr=x")
    assert sync_script(submitted, exit_status=1) == (None, "Slurm has put the job back into its queue")
    monkeypatch.setenv("SLURMD_NODENAME", "node3")
    shows(submitted, f"JobId=7 JobState=RUNNING BatchHost=node3 ExitCode=0:0 WorkDir={submitted} StdErr=x")
    assert ending_of(sync_script(submitted, exit_status=1)).outcome is Outcome.FAILED


@pytest.mark.parametrize(("state", "is_refused"), [("RUNNING", True), ("PENDING", True), ("FAILED", False)])
def test_a_second_job_by_hand_trains_nothing_and_decides_nothing(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, *, state: str, is_refused: bool
) -> None:
    """Seen on a real Slurm: two trainings in one log, INCOMPLETE or VALID, and neither job was named."""
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    shows(submitted, f"JobId=7 JobState={state} Reason=None ExitCode=0:0 WorkDir={submitted} StdErr=x")
    (submitted / "run.json").rename(submitted / "late")  # the node sees it 0.3 s late
    threading.Timer(0.3, lambda: (submitted / "late").rename(submitted / "run.json")).start()
    started = cli("launch", "--addresses", submitted, code=1)
    assert "No such file" not in started.err
    decided = cli("sync", "--exit-status", "1", submitted)
    if not is_refused:
        assert "this job (8)" not in started.err
        assert (submitted / "outcome.json").exists()
        return
    assert f"job 7 waits or runs in {submitted}; this job (8) was not submitted by nlp-bench" in started.err
    assert "job 7 waits or runs in this folder; job 8 is none of its run, and decides nothing" in decided.out
    assert decided.err == "nlp-bench: begin of job 7\n"
    assert {path.name for path in submitted.iterdir()} == {"run.json", "submit.json"}


@pytest.mark.parametrize("tells", ["folder", "time"])
@pytest.mark.parametrize("is_ours", [True, False])
def test_accounting_of_an_older_job_of_the_same_number(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, tells: str, is_ours: bool
) -> None:
    """The controller has forgotten the job, and accounting, which lacks it, holds one of before the numbers began anew."""
    monkeypatch.setattr(syncing, "GONE_S", 0)
    (submitted / "job.out").write_text("".join(f" iteration {i}/20 |\n" for i in range(1, 21)))
    write_record(submitted, ScriptRecord(exit_status=1, signal="", job_id="7", restarts=0))
    folder = {("folder", True): submitted, ("folder", False): "/elsewhere|run"}.get((tells, is_ours), "")
    time = "2001-01-01T00:00:00" if tells == "time" and not is_ours else now()[:19]
    row = f"7|CANCELLED by 1|0:15|{time}|{folder}"
    forgets(submitted.parent, f"printf 'JobID|State|ExitCode|Submit|WorkDir\\n{row}\\n'")
    assert ending_of(sync(submitted)).outcome is (Outcome.CANCELLED if is_ours else Outcome.FAILED)
