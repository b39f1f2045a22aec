"""The ways for a Slurm job to end, on a real Slurm through the real JUBE: each leaves its outcome, and JUBE leaves RUNNING."""

import csv
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import processes_with
from support.sandbox import Sandbox, own_reasons

from nlp_bench.config.run import Run

pytestmark = [pytest.mark.slurm, pytest.mark.jube]
Act = Callable[[Sandbox, str], object]
BEGUN = "iteration "


def then(*words: str) -> Act:
    """Return an act: one command of Slurm, JOB in it being the job's number."""
    return lambda slurm, job: slurm(*(word.replace("JOB", job) for word in words))


def preempt(partition_node: str) -> Act:
    """Return an act: a job of the urgent partition takes the node for a second."""
    words = f"sbatch --partition=urgent --nodelist={partition_node} --exclusive --output=/dev/null".split()
    return lambda slurm, _: slurm(*words, "--wrap=sleep 1")


def suspend(slurm: Sandbox, job: str) -> None:
    slurm("scontrol", "suspend", job)
    time.sleep(2)
    slurm("scontrol", "resume", job)


def requeued_then(act: Act) -> Act:
    """Return an act that takes the job's `--no-requeue` away, and then does `act`."""

    def both(slurm: Sandbox, job: str) -> None:
        slurm("scontrol", "update", f"JobId={job}", "Requeue=1")
        act(slurm, job)

    return both


def kill_shell(_slurm: Sandbox, job: str) -> None:
    (number,) = processes_with(f"job{int(job):05d}/slurm_script")
    os.kill(number, signal.SIGKILL)


def lose_node(slurm: Sandbox, job: str) -> None:
    (node,) = re.findall(r" NodeList=(\S+)", slurm("scontrol", "show", "job", job, "--oneliner"))
    slurm("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=x")


def out_of_time(slurm: Sandbox, job: str) -> None:
    slurm("scontrol", "update", f"JobId={job}", "EndTime=now+1")


# name: (mode, words of sbatch, launch, act once it trains, outcome, pattern in its reasons or "" for none at all, decided by)
CASES: dict[str, tuple[str, tuple[str, ...], dict[str, str], Act | None, str, str, str]] = {
    "timeout": ("hang", (), {}, out_of_time, "TIMEOUT", "Slurm: TimeLimit|Slurm: TIMEOUT|ended from outside", "Slurm's"),
    "timeout_no_last_word": (
        "hang", ("--export=ALL,BASH_ENV=#FOLDER#/deaf",), {}, out_of_time, "TIMEOUT", "Slurm: TIMEOUT", "Slurm's state",
    ),
    "out_of_time_signal": (
        "hang", ("--signal=B:USR1@55",), {"timelimit": "00:01:00"}, None, "TIMEOUT", "by signal USR1", "Slurm's notice in the log",
    ),
    "ok": ("ok", (), {}, None, "VALID", "", "exit status and log"),
    "rank_fails": ("exit 5", (), {}, None, "FAILED", "exit status 5, last iteration 2", "exit status"),
    "fails_behind_the_last_line": ("late 5", (), {}, None, "FAILED", "exit status 5, last iteration 4", "exit status"),
    "one_node_fails": ("other 7", (), {}, None, "FAILED", "last iteration 2", "exit status"),
    "stops_short": ("short", (), {}, None, "INCOMPLETE", "last iteration 2 of 4", "iterations in the log"),
    "cancelled_running": ("hang", (), {}, then("scancel", "JOB"), "CANCELLED", "ended from outside|Slurm: CANCELLED", "Slurm's"),
    "cancelled_pending": (
        "ok", ("--hold",), {}, then("scancel", "JOB"), "CANCELLED", "Slurm: CANCELLED before it started", "Slurm's state",
    ),
    "shell_killed": (
        "hang", (), {}, kill_shell, "FAILED", "killed by signal 9", "exit status",
    ),
    "memory_of_the_step": ("memory", ("--mem=200",), {}, None, "OUT_OF_MEMORY", "host memory", "Slurm's memory limit"),
    "memory_of_the_shell": (
        "hang", ("--mem=100", "--export=ALL,BASH_ENV=#FOLDER#/eat"), {}, None, "OUT_OF_MEMORY", "host memory", "Slurm's memory limit",
    ),
    "node_down": (
        "hang", ("--nodelist=node5",), {"queue": "fragile"}, then("scontrol", "update", "NodeName=node5", "State=DOWN", "Reason=x"),
        "NODE_FAIL", "NODE_FAIL", "Slurm's state",
    ),
    "node_down_requeue": (
        "again", (), {"queue": "spare"}, requeued_then(lose_node), "VALID", "", "exit status and log",
    ),
    "preempted_cancel": ("hang", (), {"queue": "cancelled"}, preempt("node7"), "PREEMPTED", "ended from outside|Slurm: PREEMPTED", "Slurm's"),
    "preempted_requeue": ("again", (), {"queue": "requeued"}, requeued_then(preempt("node8")), "VALID", "", "exit status and log"),
    "requeued": ("again", (), {}, requeued_then(then("scontrol", "requeue", "JOB")), "VALID", "", "exit status and log"),
    "no_output": ("ok", (), {}, None, "FAILED", "job.out cannot be opened", "Slurm's exit code"),
    "suspended": ("slow 1", (), {}, suspend, "INVALID", "Slurm suspended the job for", "Slurm's suspension"),
}  # fmt: skip
BEFORE = {"no_output": "mkdir job.out"}
SETTLED_S = 8
"""Seconds behind the end of a requeued job's first start: a node that still ends it takes no second one."""
PATIENCE_S = 400
"""Seconds for what takes a quarter of them on an idle machine."""
ANEW = ("node_down_requeue", "preempted_requeue", "requeued")


@pytest.fixture
def folder(tmp_path: Path, stub_run: Callable[..., Run], jube_file: Callable[..., Path]) -> Path:
    """A folder with JUBE's file and a run per case."""
    (tmp_path / "eat").write_text("x=$(head -c 300000000 /dev/zero | tr '\\0' a); sleep 60\n")
    (tmp_path / "deaf").write_text("echo iteration 0; trap '' TERM; exec sleep 600\n")
    runs = {}
    for name, (mode, words, launch, *_) in CASES.items():
        placed = [word.replace("#FOLDER#", str(tmp_path)) for word in words]
        runs[name] = stub_run(mode, *placed, **{"timelimit": "00:30:00", **launch})
    return jube_file(before=BEFORE, **runs).parent


def run_dirs(folder: Path) -> dict[str, Path]:
    """Return the run folder of each case that has been submitted."""
    found = {
        path.parents[1].name.split("_")[0]: path.parent for path in folder.glob("runs/000000/*_train/work/submit.json")
    }
    return {name: found[f"{number:06d}"] for number, name in enumerate(CASES) if f"{number:06d}" in found}


def first_start_ended(job: str) -> bool:
    """Say whether nothing of the job runs: a last word behind the end of the second start would change a log that is sealed."""
    return not processes_with(f"slurmstepd: [{job}.")


def act(slurm: Sandbox, folder: Path, failures: list[str]) -> None:
    """Do to each job what its case says, once it trains; a job that Slurm has put back does not wait its two minutes."""
    left = {name for name, case in CASES.items() if case[3]}
    anew = set(ANEW)
    put_back: dict[str, float] = {}
    end = time.monotonic() + PATIENCE_S
    while (left or anew) and time.monotonic() < end:
        for name, run_dir in run_dirs(folder).items():
            log = run_dir / "job.out"
            job = json.loads((run_dir / "submit.json").read_text())["job_id"]
            begun = log.is_file() and BEGUN in log.read_text(errors="replace")
            if name in left and job and (begun or name == "cancelled_pending"):
                left.remove(name)
                try:
                    CASES[name][3](slurm, job)  # type: ignore[misc]
                except AssertionError as error:
                    failures.append(f"{name}: {error}")
            elif name in anew - left:
                shown = slurm("scontrol", "show", "job", job, "--oneliner")
                if "Reason=BeginTime" in shown and first_start_ended(job):
                    put_back.setdefault(name, time.monotonic())
                    if time.monotonic() - put_back[name] > SETTLED_S:
                        anew.remove(name)
                        slurm("scontrol", "update", f"JobId={job}", "StartTime=now")
                elif re.search(r"JobState=(RUNNING|COMPLETED) .* Restarts=1 ", shown):  # its two minutes are over
                    anew.remove(name)
        time.sleep(0.3)
    failures += [f"{name}: never trained" for name in left] + [f"{name}: never put back" for name in anew]


def test_every_ending_has_its_outcome_and_jube_leaves_running(
    slurm: Sandbox, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[str] = []
    actor = threading.Thread(target=act, args=(slurm, folder, failures))
    actor.start()
    monkeypatch.chdir(folder)
    slurm("jube", "run", str(folder / "endings.yaml"), "--hide-animation", timeout_s=PATIENCE_S)
    actor.join()
    assert failures == []
    bound = time.monotonic() + PATIENCE_S
    while slurm("squeue", "--noheader", "--format=%i %T %r").strip():
        assert time.monotonic() < bound, slurm("squeue")
        time.sleep(0.5)
    for _ in range(2):
        slurm(sys.executable, "-m", "nlp_bench", "sync", str(folder / "runs"))
        slurm("jube", "continue", str(folder / "runs"), "--id", "last", "--hide-animation", timeout_s=PATIENCE_S)
        if slurm("jube", "status", str(folder / "runs"), "--id", "last").split()[-1] != "RUNNING":
            break
    told = {name: json.loads((path / "outcome.json").read_text()) for name, path in run_dirs(folder).items()}
    wrong = {}
    for name, (_, _, _, _, outcome, reason, decided) in CASES.items():
        record = told.get(name, {"outcome": "none", "reasons": []})
        said = "; ".join(own_reasons(record))
        has_said = re.search(reason, said) if reason else not said
        if record["outcome"] != outcome or not has_said or decided not in record["sources"]["decided_by"]:
            wrong[name] = record
    assert wrong == {}
    assert {name: told[name]["sources"]["slurm"]["restarts"] for name in ANEW} == dict.fromkeys(ANEW, 1)
    assert slurm("jube", "status", str(folder / "runs"), "--id", "last").split()[-1] == "FINISHED"
    slurm("jube", "result", "-a", str(folder / "runs"), "--id", "last")
    rows = list(csv.DictReader(next(folder.rglob("result/result.dat")).read_text().splitlines()))
    measured = {name: path / "result.json" for name, path in run_dirs(folder).items()}
    why = {name: path.read_text() for name, path in measured.items() if path.is_file() and CASES[name][4] == "VALID"}
    assert {row["case"]: row["outcome"] for row in rows} == {name: case[4] for name, case in CASES.items()}, why
    assert {row["case"] for row in rows if row["tokens"]} == {n for n, case in CASES.items() if case[4] == "VALID"}
