"""What is tried again, how often, and that a submit that is cut off in between is completed once."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.following import Says, ending_of, iterations, sandbox_run, submission_of

from nlp_bench.config import scheduler
from nlp_bench.config.run import Limits, Run
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch import once
from nlp_bench.launch.end.advice import advice
from nlp_bench.launch.end.ending import Ending, decide
from nlp_bench.launch.follow.retry import is_due
from nlp_bench.launch.follow.sync import Kind, sync, sync_script
from nlp_bench.launch.scheduler import slurm
from nlp_bench.launch.scheduler.slurm import Slurm
from nlp_bench.launch.submission import Submission
from nlp_bench.launch.submit import submit
from nlp_bench.outcome import Outcome
from nlp_bench.programs import Answer


@pytest.fixture
def run() -> Run:
    return replace(sandbox_run(), limits=Limits(retries=2))


@pytest.fixture
def lost(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> Path:
    """A run whose job 7 has lost its node at iteration 20."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    run.write(tmp_path)
    Submission(job_ids=["7"], comment=once.new_comment(tmp_path)).write(tmp_path)
    (tmp_path / "job.out").write_text("\nSubmitted batch job 7\n" + iterations(20))
    (tmp_path / "job.err").write_text(
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***\n"
    )
    says("NODE_FAIL")
    monkeypatch.setattr(Slurm, "jobs", lambda *_, **__: [])
    monkeypatch.setattr(once, "SETTLE_S", 0)
    monkeypatch.setattr(scheduler, "PATIENCE_S", 0)
    return tmp_path


def queues(monkeypatch: pytest.MonkeyPatch, *numbers: str) -> list[str]:
    """sbatch gives these numbers; return the comments that it was called with."""
    called: list[str] = []
    left = list(numbers)

    def queue(_: Slurm, _script: Path, *, comment: str, lock: int, **__: str) -> str:
        assert lock > 0
        called.append(comment)
        return left.pop(0)

    monkeypatch.setattr(Slurm, "submit", queue)
    return called


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_lost_nodes_and_preemption(run: Run, outcome: Outcome) -> None:
    due = is_due(run, Submission(comment="nlp-bench:1", job_ids=["7"]), Ending(outcome=outcome))
    assert due is (outcome in {Outcome.NODE_FAIL, Outcome.PREEMPTED})


def test_each_attempt_is_counted_with_its_own_ending(lost: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    called = queues(monkeypatch, "8", "9")
    assert sync(lost) == (None, "attempt 2 of 3 is submitted, job 8")
    says("PREEMPTED")
    assert sync(lost)[1] == "attempt 3 of 3 is submitted, job 9"
    says("NODE_FAIL")
    ending_of(sync(lost))
    record = json.loads((lost / "outcome.json").read_text())
    assert (record["outcome"], record["attempt"], record["job_id"]) == ("NODE_FAIL", 3, "9")
    assert [(part["job_id"], part["outcome"]) for part in record["attempts"]] == [
        ("7", "NODE_FAIL"),
        ("8", "PREEMPTED"),
    ]
    assert len(set(called)) == 2


def test_the_job_itself_leaves_it_to_the_others(lost: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    ending, state = sync_script(lost, exit_status=143, signal="TERM")
    assert ending is None
    assert state.endswith("it will be submitted again")
    assert not (lost / "outcome.json").exists()


def test_the_log_of_an_earlier_attempt_is_no_evidence(lost: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with (lost / "job.out").open("a") as log:
        log.write(iterations(40, first=22))  # it was all but done
    queues(monkeypatch, "8")
    sync(lost)
    ending = decide(run, lost, exit_status=0)
    assert (ending.outcome, ending.texts) == (Outcome.INCOMPLETE, ["last iteration none of 40"])
    assert decide(run, lost, exit_status=1).evidence is None


def test_an_attempt_that_was_cut_off_is_completed_once(lost: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Slurm, "submit", killed)
    with pytest.raises(KeyboardInterrupt):
        sync(lost)
    intent = submission_of(lost)
    comment = str(intent.comment)
    monkeypatch.setattr(Slurm, "jobs", lambda *_, **__: [scheduler.Listed("8", comment)])  # Slurm had it
    assert sync(lost) == (None, "submitted")
    record = submission_of(lost)
    assert (record.job_ids, len(record.attempts), record.submitted) == (["8"], 1, intent.submitted)


@pytest.mark.parametrize("how", ["another folder's", "another user's"])
def test_nobody_submits_or_cancels_for_a_folder_that_is_not_his(
    lost: Path, monkeypatch: pytest.MonkeyPatch, says: Says, how: str
) -> None:
    """A run folder out of an archive, or of another user: its script would run, and the jobs that it names end, as this user."""
    record = submission_of(lost)
    if how == "another user's":
        monkeypatch.setattr("os.geteuid", lambda: 4711)
    else:
        record = replace(record, comment=once.new_comment(lost / "elsewhere"))
    called, cancelled = queues(monkeypatch, "8"), list[list[str]]()
    monkeypatch.setattr(Slurm, "cancel", lambda _, jobs, **__: cancelled.append(jobs))
    record.write(lost)
    assert sync(lost)[1].endswith(f"whoever submitted it can submit it again: nlp-bench sync {lost}")
    replace(record, job_ids=[], attempts=[{"job_id": "7"}]).write(lost)  # an intent that was cut off
    (lost / "submit.job").touch()
    assert sync(lost)[1].startswith("the submission was cut off; repeat it: nlp-bench submit")
    replace(record, job_ids=["5", "6", "7"]).write(lost)
    (lost / "job.err").write_text("")
    says("OUT_OF_MEMORY")
    assert sync(lost)[0]
    assert not called
    assert not any(cancelled)


@pytest.mark.parametrize("by", ["sync", "submit"])
def test_an_attempt_that_slurm_never_had_is_handed_over(
    lost: Path, run: Run, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(Slurm, "submit", lambda *_, **__: (_ for _ in ()).throw(scheduler.SilentError("down")))
    assert sync(lost)[1] == "Slurm does not answer"
    called = queues(monkeypatch, "8")
    (lost / "submit.job").touch()
    if by == "sync":
        assert sync(lost)[1] == "attempt 2 of 3 is submitted, job 8"
    else:
        assert submit(run, lost / "submit.job", follow=False, lock=7) == ["8"]
    assert len(called) == 1
    assert len(submission_of(lost).attempts) == 1


@pytest.mark.parametrize("retries", [0, 2])
def test_a_prolog_that_failed_is_no_cancel(
    lost: Path, run: Run, monkeypatch: pytest.MonkeyPatch, says: Says, retries: int
) -> None:
    """Seen on a real Slurm: with --no-requeue it calls such a job CANCELLED; it was said to have been taken out by somebody, and not tried again."""
    replace(run, limits=Limits(retries=retries)).write(lost)
    (lost / "job.out").unlink()
    (lost / "job.err").write_text("Error running slurm prolog: 1\n")
    says("CANCELLED", node_name="node1", exit_code="0:0")
    queues(monkeypatch, "8")
    ending, state = sync(lost)
    if retries:
        assert state == "attempt 2 of 3 is submitted, job 8"
        assert submission_of(lost).attempts[0]["outcome"] == "NODE_FAIL"
        sync(lost)  # the second one waits, and is taken out by a person
        ending = sync(lost)[0]
        assert ending
        assert ending.outcome is Outcome.CANCELLED
        return
    assert ending
    assert ending.text() == (
        "NODE_FAIL: Slurm: CANCELLED before it started: the prolog of node1 failed; Error running slurm prolog: 1"
    )
    assert "--sbatch-arg=--exclude=NODE" in advice(ending, lost).text()


@pytest.mark.parametrize(
    ("err", "state", "facts"),
    [
        ("slurmstepd-node1: error: TaskProlog failed status=1\n", "FAILED", {"exit_status": 1, "exit_code": "1:0"}),
        (
            "nlp-bench: begin of job 7\nslurmstepd: error: TaskProlog failed status=1\nsrun: error: node2: task 1: Exited with exit code 1\n",
            "FAILED",
            {"exit_status": 137, "exit_code": "137:0"},
        ),
        ("", "CANCELLED", {"node_name": "node1", "exit_code": "0:0", "is_unstarted": True}),
    ],
    ids=["of the script's node", "of another node", "on the controller"],
)
def test_a_node_where_nothing_could_be_started_is_left_for_another(
    lost: Path, monkeypatch: pytest.MonkeyPatch, says: Says, err: str, state: str, facts: dict[str, object]
) -> None:
    """The attempts before have left a job.out."""
    (lost / "job.out").write_text("nlp-bench: attempt 2 of 3: job 6 ended\n")
    (lost / "job.err").write_text(f"nlp-bench: attempt 2 of 3: job 6 ended\n{err}")
    says(state, **facts)
    queues(monkeypatch, "8")
    assert sync(lost) == (None, "attempt 2 of 3 is submitted, job 8")
    assert submission_of(lost).attempts[0]["outcome"] == "NODE_FAIL"


def test_a_refusal_ends_the_run(lost: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> str:
        raise NlpBenchError("sbatch refused: no such partition; nothing was submitted")

    monkeypatch.setattr(Slurm, "submit", refused)
    ending = ending_of(sync(lost))
    assert ending.outcome is Outcome.NODE_FAIL
    assert "the retry was refused" in ending.texts[-1]
    assert advice(ending, lost).remedy.startswith("the queue refused the job of its retry")


def test_a_job_that_waits_too_long_is_cancelled_with_the_queues_reason(
    lost: Path, run: Run, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    replace(run, limits=Limits(max_pending_s=30)).write(lost)
    replace(submission_of(lost), submitted="2026-01-01T00:00:00+00:00").write(lost)
    os.utime(lost / "submit.json", (time.time() - 60,) * 2)
    asked: list[tuple[str, ...]] = []
    # Of a wrapper of the site: refused, then a question that nobody answers.
    answers = [Answer(2, err="site: give a\nreason with -r"), *[Answer(0, out="Really? [y/N] aborted\n")] * 2]

    def ask(*words: str, **_: object) -> Answer:
        asked.append(words)
        return answers.pop(0)

    monkeypatch.setattr(slurm, "ask", ask)
    says("PENDING", reason="Resources")
    said = "PENDING (Resources); it has waited too long, but could not be cancelled: site: give a reason with -r"
    assert sync(lost)[1] == said
    assert submission_of(lost).given_up is None
    assert sync(lost)[1] == "PENDING (Resources); `scancel 7` was called: it has waited too long"
    said = "it has waited too long, and waits still although `scancel 7` was called, which said: Really? [y/N] aborted; call it yourself"
    assert sync(lost)[1] == f"PENDING (Resources); {said}"
    assert asked == [("scancel", "--state=PENDING", "7")] * 3  # one that has begun meanwhile goes on
    says("CANCELLED")
    ending = ending_of(sync(lost))
    assert ending.outcome is Outcome.CANCELLED
    assert "longer than --max-pending 30: PENDING (Resources)" in ending.texts[0]
    assert ending.reasons[0].code == "max-pending"


def test_a_chain_and_a_requeued_job_may_wait(lost: Path, run: Run, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    replace(run, limits=Limits(max_pending_s=0.001)).write(lost)
    says("PENDING", reason="Dependency", restarts=1)
    assert sync(lost) == (None, "PENDING (Dependency)")
    boots = slurm.shown_job("JobId=7 JobState=CONFIGURING Reason=None ExitCode=0:0 BatchHost=node1", "7")
    monkeypatch.setattr(Slurm, "query", lambda *_, **__: boots)
    assert sync(lost) == (None, "CONFIGURING")  # its nodes start
    Submission(job_ids=["7", "8"], comment="nlp-bench:1").write(lost)
    says("PENDING", reason="Dependency")
    assert sync(lost) == (None, "PENDING (Dependency)")


EARLY, LATE = "2001-01-01T00:00:00", "2999-01-01T00:00:00"


@pytest.mark.parametrize(
    ("submitted", "eligible", "said"),
    [
        (EARLY, LATE, ""),
        (EARLY, EARLY, "; `scancel 7` was called: it has waited too long"),
        (LATE, LATE, "; `scancel 7` was called: it has waited too long"),  # scontrol runs in another time zone
    ],
)
def test_a_job_does_not_wait_before_it_may_begin(
    lost: Path, run: Run, monkeypatch: pytest.MonkeyPatch, submitted: str, eligible: str, said: str
) -> None:
    """With --sbatch-arg=--begin=22:00 it was cancelled in the afternoon."""
    replace(run, limits=Limits(max_pending_s=0.001)).write(lost)
    monkeypatch.setattr(slurm, "ask", lambda *_, **__: Answer(0))
    line = f"JobId=7 JobState=PENDING Reason=BeginTime ExitCode=0:0 SubmitTime={submitted} EligibleTime={eligible}"
    monkeypatch.setattr(Slurm, "query", lambda *_, **__: slurm.shown_job(line, "7"))
    assert sync(lost) == (None, f"PENDING (BeginTime){said}")


def test_a_lost_job_that_is_late_decides_nothing(lost: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on a real Slurm: the script of the lost node wrote its outcome when the next attempt was queued already."""
    queues(monkeypatch, "8", "9", "10")
    for _ in range(2):
        sync(lost)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert sync_script(lost, exit_status=143, signal="TERM") == (None, "another job has taken this run over")
    assert not (lost / "outcome.json").exists()


def test_a_notice_of_the_job_before_is_no_evidence(lost: Path, run: Run) -> None:
    notice = (lost / "job.err").read_text()
    (lost / "job.err").write_text(f"nlp-bench: begin of job 8\n{notice}")
    assert decide(run, lost, exit_status=1).outcome is Outcome.FAILED
    (lost / "job.err").write_text(f"nlp-bench: begin of job 7\n{notice}")
    assert decide(run, lost, exit_status=1).outcome is Outcome.NODE_FAIL
    (lost / "job.err").rename(lost / "scratch.err")
    (lost / "job.err").symlink_to(lost / "scratch.err")  # of one's own: somebody else's is not read (tests/safety)
    assert decide(run, lost, exit_status=1).outcome is Outcome.NODE_FAIL


def test_a_scheduler_that_is_silent_on_the_rest_of_a_chain_is_silent(
    lost: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as an answer, so that a follower never gave up."""
    replace(run, limits=Limits()).write(lost)
    Submission(job_ids=["7", "8"], comment="nlp-bench:1").write(lost)
    asked: list[str] = []

    def query(_: Slurm, job_id: str, **__: object) -> object:
        asked.append(job_id)
        return None if asked.count("7") > 1 else slurm.job("FAILED", job_id=job_id)

    monkeypatch.setattr(Slurm, "query", query)
    ending, state = sync(lost)
    assert ending is None
    assert state.endswith("Slurm does not answer, and other jobs of the chain may go on")
    assert state.kind is Kind.SILENT
