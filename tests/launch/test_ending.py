"""How a run ended: every rule of the decision, on logs as the real programs write them."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.following import offline
from support.timed import Timer

from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import Job, State
from nlp_bench.launch.end.advice import advice
from nlp_bench.launch.end.ending import decide, read_ending, write_ending
from nlp_bench.launch.end.log_facts import KILLED
from nlp_bench.launch.nodes.torchrun import write_launched
from nlp_bench.launch.scheduler import slurm
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason

LINE = "[default0]: iteration {:8d}/      40 | consumed samples: 480 | elapsed time per iteration (s): 0.1000 | lm loss: {} | number of nan iterations:   0 |"
DONE = "training finished: 40 iterations"
NO_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried"
BEGUN = "nlp-bench: begin of job 7"
FORGOTTEN = "Slurm no longer knows the job"
CANCELLED = "slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00{} ***"


def folder(path: Path, *, last: int | None = 40, loss: str = "1.0E+00", err: str = "", out: str = "") -> Path:
    lines = [LINE.format(i, loss) for i in range(2, (last or 0) + 1, 2)]
    (path / "job.out").write_text("\n".join([out, *lines]) + "\n")
    (path / "job.err").write_text(err)
    return path


def told(cause: str = "") -> dict[str, Any]:
    """Return the log of a run that Slurm has ended after 8 iterations."""
    return {"last": 8, "err": CANCELLED.format(cause)}


@pytest.mark.parametrize("words", [("--load", "/checkpoints"), ("--load=/checkpoints",), ("--save=/checkpoints",)])
def test_a_log_that_has_lost_its_beginning_is_no_valid_run(tmp_path: Path, run: Run, words: tuple[str, ...]) -> None:
    lines = (folder(tmp_path) / "job.out").read_text().splitlines(keepends=True)
    (tmp_path / "job.out").write_text("".join(lines[8:]))
    cut = decide(run, tmp_path, exit_status=0)
    assert cut.outcome is Outcome.INVALID
    assert "job.out begins with iteration 16, not with iteration 2 or before" in cut.text()
    tuning = dataclasses.replace(run.tuning, train_args=words)
    assert decide(dataclasses.replace(run, tuning=tuning), tmp_path, exit_status=0).outcome is Outcome.VALID


@pytest.mark.parametrize(
    ("log", "exit_status", "state", "outcome", "reason"),
    [
        ({}, 0, "RUNNING", "VALID", ""),
        ({}, 0, None, "VALID", ""),
        ({"last": 38}, 0, None, "INCOMPLETE", "last iteration 38 of 40"),
        ({"last": None}, 0, None, "INCOMPLETE", "last iteration none of 40"),
        ({"last": 20}, 5, "FAILED", "FAILED", "exit status 5, last iteration 20"),
        ({}, 1, None, "FAILED", "exit status 1, last iteration 40"),
        (told(), 143, "COMPLETING", "CANCELLED", "ended from outside"),
        (told(" DUE TO TIME LIMIT"), 143, None, "TIMEOUT", "ended from outside"),
        (told(" DUE TO PREEMPTION"), 143, None, "PREEMPTED", "ended from outside"),
        (told(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"), 143, None, "NODE_FAIL", "ended from outside"),
        ({"last": 8, "err": CANCELLED.format("").replace("JOB 7", "STEP 7.0")}, 1, None, "FAILED", "exit status 1"),
        ({"last": 8}, None, "CANCELLED", "CANCELLED", "Slurm: CANCELLED"),
        ({"last": 8}, None, "TIMEOUT", "TIMEOUT", "Slurm: TIMEOUT"),
        ({"last": 8}, None, "NODE_FAIL", "NODE_FAIL", "Slurm: NODE_FAIL"),
        ({"err": DONE}, None, "TIMEOUT", "TIMEOUT", "Slurm: TIMEOUT after the last iteration, with the training done"),
        ({"last": 8, "err": f"[default1]: {NO_MEMORY}"}, 1, None, "OUT_OF_MEMORY", "exit status 1"),
        ({"last": 8, "err": "slurmstepd: error: Exceeded job memory limit"}, 137, None, "OUT_OF_MEMORY", ""),
        ({"last": 8, "err": "MemoryError"}, 137, None, "OUT_OF_MEMORY", ""),
        ({"last": 8, "err": "slurmstepd: error: Detected 1 oom_kill event"}, 137, None, "OUT_OF_MEMORY", ""),
        ({"last": 8, "loss": "nan"}, 1, None, "INVALID", "the loss is not finite at iteration 2"),
        ({"loss": "inf"}, 0, None, "INVALID", "the loss is not finite"),
        ({"last": 8}, None, "GONE", "UNKNOWN", f"{FORGOTTEN}, and the exit status is lost; last iteration 8"),
        ({}, None, "GONE", "UNKNOWN", FORGOTTEN),
        ({"last": 8}, None, "NEW_WORD", "UNKNOWN", "Slurm: NEW_WORD"),
    ],
)
def test_decision(
    run: Run, tmp_path: Path, log: dict[str, Any], exit_status: int | None, state: str | None, outcome: str, reason: str
) -> None:
    job = Job(state=State.GONE) if state == "GONE" else state and slurm.job(state, exit_status=exit_status)
    ending = decide(run, folder(tmp_path, **log), exit_status=exit_status, job=job or None)
    assert ending.outcome.value == outcome
    assert reason in "; ".join(ending.texts)


@pytest.mark.parametrize(("exit_status", "state"), [(137, "RUNNING"), (None, "OUT_OF_MEMORY")])
def test_a_rank_that_linux_killed_lacked_host_memory(
    run: Run, tmp_path: Path, exit_status: int | None, state: str
) -> None:
    """The lines are those of a real Slurm: the advice was a smaller micro batch, and srun's line the evidence."""
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=30.0. Some of the step tasks have been OOM Killed."
    run.write(folder(tmp_path, last=2, err=f"{killed}\nsrun: error: node2: task 0: Exited with exit code 137\n"))
    ending = decide(run, tmp_path, exit_status=exit_status, job=slurm.job(state))
    assert (ending.outcome, ending.reasons[0].code) == (Outcome.OUT_OF_MEMORY, "host-memory")
    assert ending.evidence == killed
    assert advice(ending, tmp_path).remedy.startswith("more host memory: --mem")


@pytest.mark.parametrize(
    ("cause", "shown"), [(" DUE TO SIGNAL HUP", "HUP"), (" DUE TO SIGNAL INT", "INT"), ("", "TERM")]
)
def test_a_local_run_that_was_ended_names_the_signal_that_came_and_no_queue(
    tmp_path: Path, cause: str, shown: str
) -> None:
    """A lost ssh: the script was ended by TERM for it, and a limit of the queue was suspected."""
    local = offline("tiny", "local", data_path="mock")
    local.write(folder(tmp_path, last=8, err=f"nlp-bench: *** JOB local CANCELLED AT 2026-01-01T00:00:00{cause} ***\n"))
    ending = decide(local, tmp_path, exit_status=143, signal="TERM")
    assert ending.outcome is Outcome.CANCELLED
    assert ending.texts == [f"the job was ended from outside by signal {shown}"]
    remedy = advice(ending, tmp_path).remedy
    assert "queue" not in remedy
    assert "nohup" in remedy
    assert remedy.startswith("its terminal went away") is (shown == "HUP")


@pytest.mark.parametrize("name", ["PBS_JOBID", "LSB_JOBID", "JOB_ID"])
def test_a_local_run_that_ended_with_the_job_around_it_names_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """PBS ended its job at the walltime, and the remedy was tmux."""
    local = offline("tiny", "local", data_path="mock")
    local.write(folder(tmp_path, last=8, err="nlp-bench: *** JOB local CANCELLED AT 2026-01-01T00:00:00 ***\n"))
    monkeypatch.setenv(name, "123.pbs01")
    write_launched(tmp_path, ["torchrun"], {}, "")
    ending = decide(local, tmp_path, exit_status=143, signal="TERM")
    assert ending.texts == [f"the job was ended from outside by signal TERM, inside job 123.pbs01 ({name})"]
    assert advice(ending, tmp_path).remedy.startswith("mostly the walltime of that job was used up")


@pytest.mark.parametrize(
    ("err", "signal", "outcome"),
    [
        ("", "USR1", Outcome.TIMEOUT),
        (CANCELLED.format(""), "USR1", Outcome.TIMEOUT),
        (CANCELLED.format(" DUE TO PREEMPTION"), "USR1", Outcome.PREEMPTED),
        (CANCELLED.format(""), "TERM", Outcome.CANCELLED),
        ("", "TERM", Outcome.CANCELLED),  # the step of a held allocation leaves no notice of the job
    ],
)
def test_a_job_that_was_told_of_its_end_was_out_of_time_unless_slurm_knows_better(
    run: Run, tmp_path: Path, err: str, signal: str, outcome: Outcome
) -> None:
    ending = decide(run, folder(tmp_path, last=8, err=err), exit_status=143, signal=signal)
    assert ending.outcome is outcome
    assert ending.reasons[0].code == "told-by-signal"


def test_of_what_is_too_short_and_was_suspended_the_first_is_said(run: Run, tmp_path: Path) -> None:
    job = slurm.job("COMPLETED", exit_status=0, suspended_s=12.0)
    for last, outcome in ((38, Outcome.INCOMPLETE), (40, Outcome.INVALID)):
        found = decide(run, folder(tmp_path, last=last), exit_status=0, job=job)
        assert (found.outcome, found.sources["log"]["starts"]) == (outcome, 1)
    assert decide(run, folder(tmp_path, last=None), exit_status=0, job=job).sources["log"]["starts"] == 0


def test_a_signal_is_named(run: Run, tmp_path: Path) -> None:
    ending = decide(run, folder(tmp_path, last=4), exit_status=-9)
    assert ending.reasons == (Reason("killed", "killed by signal 9, last iteration 4"),)
    assert "--mem of a job, the limit of a container" in advice(ending, tmp_path).remedy


SHOWN = "JobId=5 JobState=CANCELLED Reason={} ExitCode=0:0 RunTime={} StartTime=2026-11-27T14:32:19 NodeList={}"
GIVEN = "node1 BatchHost=node1"


@pytest.mark.parametrize(
    ("shown", "text", "remedy"),
    [
        (
            ("JobHeldUser", "00:00:00", " NumNodes=1"),
            "CANCELLED: Slurm: CANCELLED before it started",
            "somebody, or a limit of the queue, took it out",
        ),
        (
            ("None", "00:00:00", GIVEN),
            "NODE_FAIL: Slurm gave it nodes (node1) and could not start it there (CANCELLED)",
            "sinfo --list-reasons",
        ),
        (
            ("None", "00:00:04", GIVEN),
            "CANCELLED: Slurm: CANCELLED before it started, when it had been given nodes (node1)",
            "a prolog of Slurm's failed, or somebody took it out just then",
        ),
    ],
)
def test_cancelled_before_it_ran(run: Run, tmp_path: Path, shown: tuple[str, ...], text: str, remedy: str) -> None:
    """Seen on a real Slurm: so it calls a job, too, whose PrologSlurmctld fails, or whose node has no room for the script."""
    run.write(tmp_path)
    ending = decide(run, tmp_path, exit_status=None, job=slurm.shown_job(SHOWN.format(*shown), "5"))
    assert ending.text() == text
    assert remedy in advice(ending, tmp_path).text()


STEP_ENDED = """\
srun: launch/slurm: _step_signal: Terminating StepId=7.0
slurmstepd-node1: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-27T13:57:25 ***
"""
PROLOG = "slurmstepd-node2: error: TaskProlog failed status=1"
NO_PROGRAM = "slurmstepd-node2: error: execve(): /env/bin/python: No such file or directory"
NO_CHDIR = "slurmstepd-node2: error: couldn't chdir to `/run': No such file or directory: going to /tmp instead"
NO_FOLDER = "nlp-bench: error: cannot read /run: No such file or directory"
CANCELLED_STEP = "*** STEP 7.0 ON node1 CANCELLED AT 2026-11-27T13:57:25 ***"
ON_NODE2 = "FAILED: exit status {} on node2, last iteration none; {}"


def task(number: int, how: str) -> str:
    """Return srun's line on the end of a task."""
    return f"srun: error: node{number + 1}: task {number}: {how}"


EXITED = "Exited with exit code {}".format


@pytest.mark.parametrize(
    ("last", "err", "exit_status", "text", "remedy"),
    [
        pytest.param(
            None, [PROLOG, task(1, EXITED(1)), STEP_ENDED, task(0, "Killed")], 137,
            f"NODE_FAIL: Slurm: the prolog of node2 failed; {PROLOG}", "--retries N",
            id="task prolog",
        ),
        pytest.param(
            None, [task(1, EXITED(2)), STEP_ENDED, NO_PROGRAM, task(0, "Terminated")], 143,
            ON_NODE2.format(2, NO_PROGRAM), "--exclude=NODE",
            id="no program",
        ),
        pytest.param(
            None, [NO_CHDIR, NO_FOLDER, task(1, EXITED(1)), STEP_ENDED, task(0, EXITED(143))], 143,
            ON_NODE2.format(1, NO_FOLDER), "--exclude=NODE",
            id="no folder",
        ),
        pytest.param(
            None, [task(1, EXITED(1)), STEP_ENDED, task(0, "Terminated")], 143,
            ON_NODE2.format(1, task(1, EXITED(1))), "--exclude=NODE",
            id="a line that was lost",
        ),
        pytest.param(
            None, [task(0, EXITED(1)), STEP_ENDED, task(1, EXITED(143)), BEGUN, NO_FOLDER, task(1, EXITED(1)), STEP_ENDED], 143,
            ON_NODE2.format(1, NO_FOLDER), "mend what the evidence names",
            id="each node in turn",
        ),
        pytest.param(
            6, [STEP_ENDED, task(0, "Killed")], 137,
            f"CANCELLED: the step was cancelled from outside (scancel 7.0); {CANCELLED_STEP}", "somebody",
            id="scancel of the step",
        ),
        pytest.param(
            6, [task(0, "Killed"), STEP_ENDED], 137,
            f"FAILED: killed by signal 9, last iteration 6; {task(0, 'Killed')}", "mostly Linux, out of memory",
            id="out of memory",
        ),
    ],
)  # fmt: skip
def test_a_signal_of_sruns_own_is_not_the_cause(
    run: Run, tmp_path: Path, last: int | None, err: list[str], exit_status: int, text: str, remedy: str
) -> None:
    """The lines are those of a real Slurm: srun ends the healthy ranks, and its own exit status is that of theirs."""
    run.write(folder(tmp_path, last=last, err="\n".join([BEGUN, *err])))
    ending = decide(run, tmp_path, exit_status=exit_status, job=slurm.job("RUNNING"))
    assert ending.text() == text
    assert remedy in advice(ending, tmp_path).remedy


@pytest.mark.parametrize(("limit", "is_lowered"), [("00:01:00", True), ("1-00:00:00", False), ("UNLIMITED", False)])
def test_a_time_limit_that_the_site_lowered_is_named(run: Run, tmp_path: Path, limit: str, *, is_lowered: bool) -> None:
    """Twice the time that was asked for was advised, and was cut again."""
    run.write(folder(tmp_path, last=6, err=f"{BEGUN}\n"))
    shown = slurm.shown_job(f"JobId=7 JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15 TimeLimit={limit}", "7")
    ending = decide(run, tmp_path, exit_status=None, job=shown)
    assert ending.outcome is Outcome.TIMEOUT
    assert ("it was given 00:01:00, not " in ending.text()) is is_lowered
    assert advice(ending, tmp_path).remedy.startswith(
        "ask the site for the time" if is_lowered else "a longer --timelimit"
    )


SUMMARY = """\
14:09:36 torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
14:09:36 Root Cause (first observed failure):
14:09:36 [0]:
14:09:36   time      : 2026-11-27_14:09:35
14:09:36   host      : node1
14:09:36   rank      : 0 (local_rank: 0)
14:09:36   exitcode  : {} (pid: 12468)
14:09:36 srun: error: node1: task 0: Exited with exit code 1
"""


@pytest.mark.parametrize(("code", "cause"), [(-9, "killed by signal 9 (rank 0), "), (1, "")])
@pytest.mark.parametrize("stamp", ["14:09:36 ", "[2026-11-27 14:09:36.123] ", "Nov 27 14:09:36 ", ""])
def test_a_failure_whose_exit_status_a_wrapper_of_srun_loses(
    run: Run, tmp_path: Path, code: int, cause: str, stamp: str
) -> None:
    """Seen: it pipes srun's output through a program that puts the time before each line; the run was INCOMPLETE, with a longer time limit to try."""
    lines = re.sub(r"^14:09:36 ", stamp, SUMMARY.format(code), flags=re.MULTILINE)
    with (folder(tmp_path, last=4) / "job.out").open("a") as log:
        log.write(lines)
    ending = decide(run, tmp_path, exit_status=0)
    assert ending.outcome is Outcome.FAILED
    assert ending.texts == [f"{cause}exit status 1 on node1, though srun ended with exit status 0, last iteration 4"]
    assert f"; rank 0 exitcode {code}" in str(ending.evidence)


def test_first_error_is_the_evidence(run: Run, tmp_path: Path) -> None:
    err = "[default1]:Traceback (most recent call last):\n[default1]:ValueError: bad shape\n[default0]:RuntimeError: peer gone\n"
    assert decide(run, folder(tmp_path, last=4, err=err), exit_status=1).evidence == "ValueError: bad shape"
    err = "E1123 01:46:50.790000 31013 torch/distributed/elastic/multiprocessing/tail_log.py:154] OSError: [Errno 122] Disk quota exceeded\n"
    ending = decide(run, folder(tmp_path, last=4, err=err), exit_status=0)  # torchrun could not write the log
    assert ending.evidence == "OSError: [Errno 122] Disk quota exceeded"


@pytest.mark.parametrize(
    "line",
    [
        "submit.job: line 47: /venv/bin/python: cannot execute binary file: Exec format error",
        "submit.job: line 47: /venv/bin/python: cannot execute: required file not found",
        "submit.job: line 47: /venv/bin/python: Permission denied",
        "/venv/bin/python: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file: No such file or directory",
        "/venv/bin/python: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by /venv/bin/python)",
        "slurmstepd: error: pyxis:     [ERROR] No such file or directory: /images/nlp.sqsh",
        "FATAL:   could not open image /images/nlp.sif: no such file or directory",
        "/venv/bin/python3: No module named nlp_bench",
        "/usr/bin/python3.11: Error while finding module specification for 'torch.distributed.run' (ModuleNotFoundError: No module named 'torch')",
        "python: can't open file '/checkout/src/nlp_bench/__main__.py': [Errno 2] No such file or directory",
        'Lmod has detected the following error:  The following module(s) are unknown: "GCC/12"',
        "ERROR: Unable to locate a modulefile for 'GCC/12'",
        "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'GCC/12'",
        "  ERROR: Module cannot be loaded due to a conflict.",
    ],
)
def test_why_a_program_or_an_image_does_not_start_is_the_evidence(run: Run, tmp_path: Path, line: str) -> None:
    err = f"nlp-bench: begin of job 7\nslurmstepd: error: pyxis: child 7 failed with error code: 1\n{line}\nsrun: error: n1: task 0: Exited with exit code 1\n"
    assert decide(run, folder(tmp_path, last=None, err=err), exit_status=127).evidence == line


@pytest.mark.parametrize(
    "line",
    [
        "submit.job: line 48: warning: setlocale: LC_ALL: cannot change locale (de_DE.UTF-8): No such file or directory",
        "/lmod/init/bash: line 3: tput: command not found",
    ],
)
@pytest.mark.parametrize(
    ("rest", "evidence"),
    [
        (
            SUMMARY.format(-9),
            f"torch.distributed.elastic.multiprocessing.errors.ChildFailedError:; rank 0 exitcode -9; {KILLED}",
        ),
        ("RuntimeError: bad shape\n", "RuntimeError: bad shape"),
    ],
)
def test_what_bash_says_beside_the_error_of_a_rank_is_not_the_evidence(
    run: Run, tmp_path: Path, line: str, rest: str, evidence: str
) -> None:
    """A locale that the nodes lack was the evidence of a rank that was killed."""
    err = re.sub(r"^14:09:36 ", "", f"nlp-bench: begin of job 7\n{line}\n{rest}", flags=re.MULTILINE)
    assert decide(run, folder(tmp_path, last=4, err=err), exit_status=1).evidence == evidence


def test_every_prefix_of_a_good_log_is_incomplete(run: Run, tmp_path: Path, each_case: Timer) -> None:
    whole = (folder(tmp_path) / "job.out").read_text()
    for cut in range(0, whole.rindex("iteration"), 97):
        (tmp_path / "job.out").write_text(whole[:cut])
        with each_case():
            ending = decide(run, tmp_path, exit_status=0)
        assert ending.outcome is Outcome.INCOMPLETE


def test_the_first_decision_stands(run: Run, tmp_path: Path) -> None:
    write_ending(tmp_path, decide(run, folder(tmp_path, last=4), exit_status=5), exit_status=5, job_id="7")
    write_ending(tmp_path, decide(run, folder(tmp_path), exit_status=0), exit_status=0, job_id="7")
    ending = read_ending(tmp_path)
    assert ending
    assert ending.outcome is Outcome.FAILED
    assert (tmp_path / "ready").read_text().startswith("FAILED sha256:")


def test_a_clean_exit_has_nothing_to_say(run: Run, tmp_path: Path) -> None:
    """Done after the last iteration, with status 0: no errors, whatever stands in the log."""
    said = "[default0]: training finished: 40 iterations"
    place = folder(tmp_path, err="srun: error: a warning of a plugin")
    with (place / "job.out").open("a") as log:
        log.write(f"{said}\n")
    ending = decide(run, place, exit_status=0)
    assert (ending.outcome, ending.texts, ending.evidence) == (Outcome.VALID, [], None)
    assert ending.sources["decided_by"] == "exit status and log"
    broken = decide(run, place, exit_status=3)
    assert (broken.outcome, broken.sources["decided_by"]) == (Outcome.VALID, "end of the training in the log")
    assert broken.texts == ["completed with errors: exit status 3 after the last iteration, when the training was done"]


@pytest.mark.slow
def test_the_end_of_a_long_log_counts(run: Run, tmp_path: Path) -> None:
    """More than 2 MB of it: what stands at its begin is not read, what stands at its end is."""
    flood = "a warning that somebody prints in a loop\n" * 60_000
    early = f"{CANCELLED.format(' DUE TO TIME LIMIT')}\nRuntimeError: of the begin\n"
    place = folder(tmp_path, last=8, err=f"{early}{flood}RuntimeError: of the end\n")
    with (place / "job.out").open("a") as log:
        log.write(f"{flood}{LINE.format(10, '1.0E+00')}\n")
    ending = decide(run, place, exit_status=5)
    assert (ending.outcome, ending.evidence) == (Outcome.FAILED, "RuntimeError: of the end")
    assert ending.texts == ["exit status 5, last iteration 10"]


def test_outcomes_are_few() -> None:
    assert len(Outcome) <= 14


def test_code_that_changed_while_the_job_waited_is_named(run: Run, tmp_path: Path) -> None:
    """run.json names the program that resolved the run; the one that trained says itself which it is."""
    place = folder(tmp_path)
    record = {
        "schema": "nlp-bench/environment/1",
        "nlp_bench": {"commit": "f00", "code_sha256": run.nlp_bench.code_sha256},
    }
    (place / "environment.json").write_text(json.dumps(record))
    assert decide(run, place, exit_status=0).texts == []
    record["nlp_bench"] = {"commit": "f00\x1b[31m", "code_sha256": "b" * 64}
    (place / "environment.json").write_text(json.dumps(record))
    ending = decide(run, place, exit_status=0)
    assert ending.outcome is Outcome.VALID
    assert re.search(
        r"changed between the making of run.json \(commit .*\) and the start \(commit f00.*bbbbbbbbbbbb\)",
        ending.texts[0],
    )
    assert "\x1b" not in ending.text()
    older = dataclasses.replace(run, nlp_bench=dataclasses.replace(run.nlp_bench, code_sha256=None))
    assert decide(older, place, exit_status=0).texts == []
