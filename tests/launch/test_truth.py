"""Which source says what about an end: Slurm's words and numbers, its commands, the script's own record, the marker."""

import contextlib
import errno
import json
import os
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Cli
from support.following import Says, ending_of, forgets, iterations, program, rest_for, undecided
from support.processes import HEARING

from nlp_bench import marker
from nlp_bench.cli import runs as measure_command
from nlp_bench.cli.main import main
from nlp_bench.config.run import Run, read_run
from nlp_bench.config.scheduler import ACTIVE, NoAnswerError, State
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.end.ending import Ending, decide, read_ending, write_ending
from nlp_bench.launch.end.log_facts import ScriptRecord, write_record
from nlp_bench.launch.follow import sync as syncing
from nlp_bench.launch.follow.sync import Kind, sync, sync_script
from nlp_bench.launch.scheduler import slurm
from nlp_bench.launch.scheduler.slurm import STATES, Slurm
from nlp_bench.launch.submission import Submission, read_submission
from nlp_bench.outcome import Outcome

DOWN = "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder whose job 7 has written 20 of its 40 iterations."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    (undecided(tmp_path) / "job.out").write_text(iterations(20))
    return tmp_path


@pytest.mark.parametrize("word", sorted(STATES))
def test_every_word_has_one_meaning_in_every_spelling(word: str) -> None:
    jobs = [slurm.job(spelling) for spelling in (word, word.lower(), f"{word} by 1000", f"{word}+")]
    assert {job.outcome or job.state for job in jobs} == {STATES[word]}
    assert all(job.state is not State.UNKNOWN for job in jobs)
    assert slurm.job("").outcome is Outcome.UNKNOWN


def test_the_words_that_end_a_job() -> None:
    """No other word may ever end one."""
    ends = {word: kind for word, kind in STATES.items() if kind not in ACTIVE}
    assert ends == {
        "COMPLETED": State.ENDED, "FAILED": Outcome.FAILED, "TIMEOUT": Outcome.TIMEOUT, "DEADLINE": Outcome.TIMEOUT,
        "CANCELLED": Outcome.CANCELLED, "PREEMPTED": Outcome.PREEMPTED,
        "NODE_FAIL": Outcome.NODE_FAIL, "BOOT_FAIL": Outcome.NODE_FAIL, "LAUNCH_FAILED": Outcome.NODE_FAIL,
        "RECONFIG_FAIL": Outcome.NODE_FAIL, "OUT_OF_MEMORY": Outcome.OUT_OF_MEMORY,
    }  # fmt: skip


@pytest.mark.parametrize(("listed", "bound_s"), [(False, syncing.GONE_S), (True, syncing.UNKNOWN_S)])
def test_an_unknown_word_is_neither_done_nor_for_ever(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, says: Says, *, listed: bool, bound_s: float
) -> None:
    says("HOVERING")
    monkeypatch.setattr(Slurm, "is_queued", lambda *_: listed)
    rest_for(submitted, bound_s - 60)
    ending, state = sync(submitted)
    assert ending is None
    assert "HOVERING, a state that this nlp-bench does not know" in state
    rest_for(submitted, bound_s + 60)
    ending = ending_of(sync(submitted))
    assert ending.text() == "UNKNOWN: Slurm: HOVERING, a state that this nlp-bench does not know"


def test_a_time_in_the_future_keeps_nobody_waiting(submitted: Path, says: Says) -> None:
    """A clock that was set back, or a hand, dated the files for next year: a job that Slurm has forgotten is not waited for until then."""
    says("GONE")
    rest_for(submitted, -400 * 86400)
    assert ending_of(sync(submitted)).outcome is Outcome.UNKNOWN


def test_a_file_that_was_written_now_is_young_whatever_our_clock_says(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """The file server dates files; a login node whose clock is hours off must not give a job up whose record is only late."""
    says("GONE")
    rest_for(submitted, 0)
    here = time.time()
    for wrong_s in (-10_000, 10_000):
        monkeypatch.setattr(time, "time", lambda wrong_s=wrong_s: here + wrong_s)
        assert sync(submitted) == (None, "Slurm does not know the job; waiting in case its record is late")


def test_an_unknown_word_of_a_silent_queue_decides_nothing(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    says("HOVERING")
    monkeypatch.setattr(Slurm, "is_queued", lambda *_: None)
    rest_for(submitted, 10 * syncing.UNKNOWN_S)
    assert sync(submitted) == (None, "Slurm does not answer")


def test_a_held_job_says_how_it_goes_on(submitted: Path, says: Says) -> None:
    says("REQUEUE_HOLD", reason="job_requeued_in_held_state")
    assert sync(submitted)[1].endswith("; held: scontrol release 7, or scancel 7")
    says("PENDING", reason="JobHeldAdmin")
    assert sync(submitted)[1].endswith("; held by an operator, who alone can release it; or scancel 7")
    says("PENDING", reason="DependencyNeverSatisfied")
    assert sync(submitted)[1].endswith("; it will never start: scancel 7, then submit it without that --dependency")


def test_a_folder_that_was_renamed_while_its_job_waits_is_named(submitted: Path, says: Says) -> None:
    lost = "it was submitted from /old/run, which is not there, and starts nowhere else"
    old = {"comment": "nlp-bench:1", "work_dir": "/old/run"}
    says("PENDING", **old)
    assert sync(submitted)[1] == f"PENDING; {lost}: give it that name back, or scancel 7"
    says("PENDING", **old | {"work_dir": str(submitted)})
    assert sync(submitted)[1] == "PENDING"
    says("FAILED", reason="JobLaunchFailure", exit_code="0:53", **old)
    assert ending_of(sync(submitted)).text().endswith(f"on the nodes?; {lost}")


def test_a_job_of_another_cluster_is_cancelled_there(submitted: Path, says: Says) -> None:
    known = read_submission(submitted)
    assert known
    replace(known, selection={"SLURM_CLUSTERS": "two"}).write(submitted)
    says("PENDING", comment="nlp-bench:1", work_dir="/old/run")
    assert sync(submitted)[1].endswith(": give it that name back, or SLURM_CLUSTERS=two scancel 7")


@pytest.mark.parametrize(
    ("exit_code", "reason", "text"),
    [
        (
            "0:53",
            "JobLaunchFailure",
            "no-output FAILED: Slurm could not start the job script: job.out cannot be opened",
        ),
        ("0:125", "OutOfMemory", "host-memory OUT_OF_MEMORY"),
        ("0:9", "JobLaunchFailure", "killed FAILED: killed by signal 9 (mostly out of memory), last iteration 20"),
        ("5:0", "NonZeroExitCode", "exit-status FAILED: exit status 5, last iteration 20"),
    ],
)
def test_numbers_of_slurm(submitted: Path, says: Says, exit_code: str, reason: str, text: str) -> None:
    (submitted / "job.err").write_text("srun: error: node3: task 0: Exited with exit code 143\n")
    says("FAILED", reason=reason, exit_code=exit_code)
    ending = ending_of(sync(submitted))
    assert f"{ending.reasons[0].code} {ending.text()}".startswith(text)


def test_a_memory_limit_that_slurm_watches(submitted: Path, says: Says) -> None:
    """The lines are those of Slurm 22.05; the state is FAILED 0:9, and the notice alone would be read as a scancel."""
    (submitted / "job.err").write_text(
        "slurmstepd-node1: error: StepId=2.batch exceeded memory limit (133033984 > 104857600), being killed\n"
        "slurmstepd-node1: error: *** JOB 2 ON node1 CANCELLED AT 2026-11-20T18:30:21 ***\n"
    )
    says("FAILED", reason="JobLaunchFailure", exit_code="0:9", exit_status=137)
    ending = ending_of(sync(submitted))
    assert ending.outcome is Outcome.OUT_OF_MEMORY
    assert ending.evidence == (
        "slurmstepd-node1: error: StepId=2.batch exceeded memory limit (133033984 > 104857600), being killed"
    )


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_a_file_system_that_became_read_only_is_named_at_once(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, says: Says, cli: Cli, state: str
) -> None:
    """Seen: a progress that stood still for five minutes, and then a log that was "not visible yet"."""
    says(state, exit_status=0 if state == "COMPLETED" else None)
    statvfs = os.statvfs

    def read_only(path: object) -> object:
        found = statvfs(path)  # type: ignore[arg-type]
        return os.statvfs_result((*found[:8], found.f_flag | os.ST_RDONLY, found.f_namemax))

    monkeypatch.setattr(os, "statvfs", read_only)
    said = f"{submitted} cannot be written: its file system is read-only"
    ending, known = sync(submitted)
    assert (ending, known.endswith(f"; {said}")) == (None, True)
    assert said in cli("watch", "--once", submitted, code=None).err


def test_a_suspended_run_has_no_number(submitted: Path, says: Says) -> None:
    (submitted / "job.out").write_text(iterations(40))
    says("COMPLETED", exit_status=0, suspended_s=12.0)
    ending = ending_of(sync(submitted))
    assert ending.outcome is Outcome.INVALID
    assert "suspended the job for 12 s" in ending.texts[0]
    assert ending.reasons[0].code == "suspended"


@pytest.mark.parametrize(
    ("state", "started", "preempted", "outcome", "ending"),
    [  # seen on a real Slurm with PreemptMode=CANCEL and GraceTime=60: the job ends itself at the first signal
        ("FAILED", "06:44:52", "06:45:08", Outcome.PREEMPTED, None),
        ("CANCELLED", "06:44:52", "06:45:08", Outcome.PREEMPTED, None),
        ("COMPLETED", "06:44:52", "06:45:08", None, None),
        ("RUNNING", "06:44:52", "06:45:08", None, Outcome.PREEMPTED),
        ("COMPLETING", "06:44:52", "06:45:08", None, Outcome.PREEMPTED),
        ("FAILED", "06:50:00", "06:45:08", Outcome.FAILED, None),  # an earlier start of a job that was requeued
        ("FAILED", "06:44:52", "", Outcome.FAILED, None),
    ],
)
def test_a_job_that_ends_in_its_grace_time(
    state: str, started: str, preempted: str, outcome: Outcome | None, ending: Outcome | None
) -> None:
    when = f"2026-11-28T{preempted}" if preempted else "None"
    line = f"JobState={state} Reason=None ExitCode=1:0 StartTime=2026-11-28T{started} PreemptTime={when}"
    job = slurm.shown_job(line, "7")
    assert (job.outcome, job.reason_outcome) == (outcome, ending)
    word = job.reason if ending else job.word
    assert word.startswith("PREEMPTED") == (Outcome.PREEMPTED in {outcome, ending})


def test_the_time_of_a_suspension() -> None:
    line = "JobState=COMPLETED RunTime=00:00:06 StartTime=2026-11-20T18:18:59 EndTime=2026-11-20T18:19:08 SuspendTime={} ExitCode=0:0"
    assert slurm.shown_job(line.format("2026-11-20T18:19:04"), "7").suspended_s == 3.0
    assert slurm.shown_job(line.format("None"), "7").suspended_s == 0.0


def test_every_source_is_recorded(submitted: Path, says: Says) -> None:
    says("FAILED", reason="NonZeroExitCode", exit_status=5, exit_code="5:0")
    sync(submitted)
    sources = json.loads((submitted / "outcome.json").read_text())["sources"]
    assert sources["decided_by"] == "exit status"
    assert (sources["slurm"]["source"], sources["slurm"]["exit_code"]) == ("scontrol", "5:0")
    assert sources["script"] == {"exit_status": 5, "signal": None}
    assert sources["log"]["last_iteration"] == 20


def test_what_slurm_has_forgotten_the_script_still_says(submitted: Path, says: Says) -> None:
    says("GONE")
    write_record(submitted, ScriptRecord(exit_status=5, signal="", job_id="6", restarts=0))
    assert sync(submitted)[0] is None  # the word of another job
    write_record(submitted, ScriptRecord(exit_status=5, signal="", job_id="7", restarts=0))
    assert ending_of(sync(submitted)).text() == "FAILED: exit status 5, last iteration 20"


@pytest.fixture
def tools(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that are found first."""
    made = tmp_path_factory.mktemp("tools")
    monkeypatch.setenv("PATH", str(made), prepend=":")
    return made


def test_a_held_job_of_another_cluster_is_released_there(submitted: Path, tools: Path) -> None:
    known = read_submission(submitted)
    assert known
    replace(known, selection={"SLURM_CLUSTERS": "two"}).write(submitted)
    program(tools, "scontrol", "echo 'JobId=7 JobState=PENDING Reason=JobHeldUser ExitCode=0:0 Comment=nlp-bench:1'")
    assert sync(submitted)[1].endswith("; held: SLURM_CLUSTERS=two scontrol release 7, or SLURM_CLUSTERS=two scancel 7")


def test_slurm_is_asked_three_ways(tools: Path) -> None:
    disabled = "echo 'Slurm accounting storage is disabled' >&2; exit 1"
    completed = 'printf "JobID|State|ExitCode\\n7|TIMEOUT|0:15\\n"'
    forgets(tools, f'case " $* " in *" -c "*) {completed} ;; *) {disabled} ;; esac')
    job = Slurm().query("7")
    assert job
    assert (job.word, job.source) == ("TIMEOUT", "sacct -c")
    program(tools, "sacct", disabled)
    gone = Slurm().query("7")
    assert gone
    assert gone.state is State.GONE
    program(tools, "scontrol", f"echo '{DOWN}' >&2; exit 1")
    assert Slurm().query("7") is None


def test_a_job_that_another_cluster_of_a_federation_has_started_goes_on(submitted: Path, tools: Path) -> None:
    program(tools, "scontrol", "echo 'JobId=7 JobState=REVOKED Reason=None ExitCode=0:0 Comment=nlp-bench:1'")
    assert sync(submitted) == (None, "REVOKED; another cluster of the federation has started it")
    revoked = f"7|REVOKED|0:0|2026-01-01T00:00:00|{submitted}"
    forgets(tools, f"printf 'JobID|State|ExitCode|Submit|WorkDir\\n{revoked}\\n'")
    (submitted / "job.out").write_text(iterations(40))
    write_record(submitted, ScriptRecord(exit_status=0, signal="", job_id="7", restarts=0))
    assert ending_of(sync(submitted)).outcome is Outcome.VALID


def test_an_accounting_that_does_not_answer_is_named(submitted: Path, tools: Path) -> None:
    """Slurm itself answers: its database is out of reach of this node, or down."""
    forgets(tools, "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1")
    ending, state = sync(submitted)
    assert ending is None
    assert "scontrol no longer knows the job, and its accounting does not tell (`sacct`: sacct: error: Problem" in state


def test_a_job_that_accounting_alone_calls_running_ends(submitted: Path, tools: Path) -> None:
    """A runaway job, as a controller leaves one that was restarted without it: sacct says RUNNING for ever."""
    forgets(tools, "printf 'JobID|State|ExitCode\\n7|RUNNING|0:0\\n'")
    ending, state = sync(submitted)
    assert (ending, "in case its record is late" in state) == (None, True), state
    rest_for(submitted, time.time())
    ending = ending_of(sync(submitted))
    assert ending.outcome is Outcome.UNKNOWN
    assert "its accounting still says RUNNING: a runaway job" in ending.texts[0]


def test_a_controller_that_is_down_is_not_no_slurm(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    program(tools, "scontrol", f"echo '{DOWN}' >&2; exit 1")
    with pytest.raises(NoAnswerError, match="Unable to contact slurm controller"):
        Slurm().detect()
    program(tools, "scontrol", "echo 'fatal: Could not establish a configuration source' >&2; exit 1")
    assert Slurm().detect() is None


def test_a_silent_slurm_does_not_end_a_chain(submitted: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    Submission(job_ids=["7", "8"], comment="nlp-bench:1").write(submitted)
    says(None)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    ending, state = sync_script(submitted, exit_status=0)
    assert ending is None
    assert "Slurm does not answer" in state
    monkeypatch.setenv("SLURM_JOB_ID", "8")  # the last one knows that it is the last
    assert ending_of(sync_script(submitted, exit_status=0)).outcome is Outcome.INCOMPLETE


def test_a_chain_that_is_not_queued_whole_goes_on_unless_it_was_cancelled(submitted: Path, says: Says) -> None:
    Submission(job_ids=["7", "8"], parts_left=2, comment="nlp-bench:1").write(submitted)
    says("TIMEOUT")
    ending, state = sync(submitted)
    assert (ending, state.kind) == (None, Kind.CUT_OFF)
    assert "2 are not queued yet: nlp-bench submit --run" in state
    says("CANCELLED")
    assert ending_of(sync(submitted)).outcome is Outcome.CANCELLED


def test_a_lost_node_is_no_short_run(run: Run, submitted: Path) -> None:
    """The status of srun is 0 then (Slurm 22.05)."""
    notice = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-20T18:18:35 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
    (submitted / "job.err").write_text(f"srun: error: Node failure on n1\n{notice}\n")
    assert decide(run, submitted, exit_status=0).outcome is Outcome.NODE_FAIL
    (submitted / "job.out").write_text(iterations(40))
    assert decide(run, submitted, exit_status=0).outcome is Outcome.VALID


def test_a_requeued_job_decides_nothing(submitted: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    says("PENDING", restarts=1)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert sync_script(submitted, exit_status=143, signal="TERM") == (None, "Slurm has put the job back into its queue")
    notice = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-20T18:18:35 DUE TO JOB REQUEUE ***\n"
    (submitted / "job.err").write_text("nlp-bench: begin of job 7\n" + notice)
    assert sync_script(submitted, exit_status=0)[0] is None  # srun's own status where a node is lost
    says(None)
    assert sync_script(submitted, exit_status=143, signal="TERM")[0] is None
    with (submitted / "job.err").open("a") as err:
        err.write("nlp-bench: begin of job 7\n")
    ending = ending_of(sync_script(submitted, exit_status=5))
    assert ending.outcome is Outcome.FAILED  # the notice is of the start before


def test_of_many_writers_the_first_one_wins(tmp_path: Path) -> None:
    outcomes = [word for word in Outcome if word is not Outcome.MEASURED for _ in range(3)]  # MEASURED is of logs alone
    barrier = threading.Barrier(len(outcomes))

    def write(word: Outcome) -> None:
        barrier.wait()
        write_ending(tmp_path, Ending(outcome=word), exit_status=0, job_id=None)

    with ThreadPoolExecutor(len(outcomes)) as threads:
        list(threads.map(write, outcomes))
    assert marker.contradiction(tmp_path) is None
    decided = json.loads((tmp_path / "outcome.json").read_text())["outcome"]
    assert (tmp_path / "ready").read_text().split()[0] == decided
    assert {path.name for path in tmp_path.iterdir()} == {"outcome.json", "ready"}


@pytest.mark.parametrize(
    "fault",
    [NlpBenchError("cannot write outcome.json: No space left on device"), OSError(errno.ESTALE, "Stale file handle")],
    ids=["ours", "the system's"],
)
def test_a_fault_of_the_moment_does_not_end_the_follower(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: Exception
) -> None:
    said = [fault] * 2

    def faulty(_: Path) -> tuple[Ending | None, syncing.RunState]:
        if said:
            raise said.pop()
        return Ending(outcome=Outcome.VALID), syncing.RunState("ended")

    monkeypatch.setattr(syncing, "sync", faulty)
    assert syncing.wait(submitted, poll_s=0.01) == Ending(outcome=Outcome.VALID)
    assert capsys.readouterr().err.count(f"{fault}; asking again") == 1


@pytest.mark.parametrize(
    ("name", "record", "message"),
    [
        ("outcome.json", {"schema": "nlp-bench/outcome/1", "outcome": "VALID"}, "reasons is missing"),
        ("outcome.json", {"schema": "nlp-bench/outcome/1", "reasons": []}, "outcome is missing"),
        ("outcome.json", {"schema": "nlp-bench/outcome/1", "outcome": "VALID", "reasons": 5}, "reasons is 5"),
        ("submit.json", {"schema": "nlp-bench/submit/1"}, "job_id is missing"),
        ("submit.json", {"schema": "nlp-bench/submit/1", "job_id": 7}, "job_id is 7"),
        ("run.json", {"schema": "nlp-bench/run/1"}, "missing"),
        ("run.json", {"schema": "nlp-bench/run/1", "parallel": []}, "run"),
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, name: str, record: dict[str, object], message: str) -> None:
    (tmp_path / name).write_text(json.dumps(record))
    reader = {"outcome.json": read_ending, "submit.json": read_submission, "run.json": read_run}[name]
    with pytest.raises(NlpBenchError, match=message):
        reader(tmp_path)


@pytest.mark.parametrize("command", [["sync"], ["watch", "--once"]], ids=" ".join)
def test_a_run_json_that_was_purged_while_the_job_waits_is_named_with_the_job(
    tmp_path: Path, says: Says, cli: Cli, command: list[str]
) -> None:
    """Seen: no submitted run below the folder, although submit.json lay there."""
    (undecided(tmp_path / "a") / "run.json").unlink()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/submit.json").write_text('{"schema": "another program\'s"}')
    says("PENDING", reason="JobHeldUser")
    said = cli(*command, tmp_path, code=1)
    assert f"{tmp_path / 'a/run.json'} is missing" in said.err
    assert "put it back, or end job 7 (PENDING): scancel 7" in said.err
    assert str(tmp_path / "b") not in said.err + said.out


@pytest.mark.parametrize("command", [["sync"], ["watch", "--once"]], ids=" ".join)
@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_folder_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says, cli: Cli, command: list[str], *, is_damaged: bool
) -> None:
    for name in ("a", "b"):
        undecided(tmp_path / name)
    says("RUNNING")

    def stumble(run_dir: Path) -> bool:
        if run_dir.name == "a":
            raise OSError(errno.ESTALE, "Stale file handle", str(run_dir / "ready"))
        return False

    if is_damaged:
        (tmp_path / "a/submit.json").write_text('{"schema": "nlp-bench/submit/1"}')
    else:
        monkeypatch.setattr(marker, "remove_bare", stumble)
    done = cli(*command, tmp_path, code=1)
    assert ("job_id is missing" if is_damaged else "Stale file handle") in done.err
    assert "b: RUNNING" in done.out + done.err


def test_a_bare_marker_of_a_run_that_goes_on(submitted: Path, says: Says, cli: Cli) -> None:
    """It has led JUBE to `measure`: the row says what to type, and the marker is gone."""
    says("RUNNING")
    (submitted / "ready").touch()
    assert "not written by nlp-bench" in cli("measure", submitted, "--metrics", submitted / "m.txt").err
    text = (submitted / "m.txt").read_text()
    assert "outcome: UNKNOWN" in text
    assert "has not ended (RUNNING)" in text
    assert "nlp-bench measure" in text
    assert "tokens_per_second" not in text
    assert not (submitted / "ready").exists()
    assert not (submitted / "result.json").exists()
    assert measure_command._not_ended(submitted) is None


def test_a_bare_marker_of_a_run_that_has_ended(submitted: Path, says: Says) -> None:
    says("FAILED", exit_status=5, exit_code="5:0")
    (submitted / "ready").touch()
    assert main(["measure", str(submitted)]) == 0
    assert "outcome: FAILED" in (submitted / "metrics.txt").read_text()
    assert (submitted / "ready").read_text().startswith("FAILED sha256:")
    (submitted / "ready").write_text("")
    sync(submitted)
    assert (submitted / "ready").read_text().startswith("FAILED sha256:")


def test_an_outcome_that_was_changed_by_hand_has_no_number(submitted: Path, says: Says) -> None:
    (submitted / "job.out").write_text(iterations(40))
    says("CANCELLED")
    sync(submitted)
    path = submitted / "outcome.json"
    path.write_text(path.read_text().replace("CANCELLED", "VALID"))
    assert main(["measure", str(submitted)]) == 0
    text = (submitted / "metrics.txt").read_text()
    assert "outcome: INVALID" in text
    assert "outcome.json was changed after the run had ended" in text
    assert "tokens_per_second" not in text


def test_line_ends_that_were_changed_on_the_way_are_named(submitted: Path, says: Says, cli: Cli) -> None:
    """A clone by a git with core.autocrlf=true was `changed`, with a remedy that cost two records and could not help."""
    (submitted / "job.out").write_text(iterations(40))
    says("COMPLETED")
    sync(submitted)
    for path in (one for one in submitted.rglob("*") if one.is_file()):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    said = re.sub(r"\s+", " ", cli("report", submitted, code=1).out)
    assert "INVALID" in said
    assert "outcome.json has Windows line ends, which no run writes: " in said
    restore = re.search(r"or restore them: (find .* \+)", said)
    assert restore
    subprocess.run(["bash", "-c", restore[1]], check=True)
    assert "INVALID" not in cli("report", submitted, code=None).out


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "XCPU"])
def test_no_signal_is_taken_for_success(tmp_path: Path, name: str) -> None:
    """The job script's own lines, in the real bash: without a trap of its own, the status of a signal is 0."""
    template = (Path(__file__).parents[2] / "jube/submit.job.in").read_text()
    found = re.search(r"^signal='' child=''$.*?^trap 'told XCPU'.*?$", template, re.MULTILINE | re.DOTALL)
    assert found
    body = found[0].replace("#NLP_BENCH# sync", "echo").replace("#RUN_DIR#", "here")
    script = tmp_path / "script"
    script.write_text(f"set -euo pipefail\n{body}\nsleep 20 &\necho ready\nwait $!\n")
    with subprocess.Popen(
        [*HEARING, "bash", str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        subprocess.run(["bash", "-c", f"kill -{name} {process.pid}"], check=True)
        number = int(subprocess.run(["bash", "-c", f"kill -l {name}"], check=True, capture_output=True).stdout)
        said = process.stdout.readline()
        assert re.fullmatch(rf"--exit-status {128 + number} --elapsed \d+ --signal {name} here\n", said)
        assert process.wait() == 128 + number
        # The script has ended what it left, and init may have reaped that by now.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
