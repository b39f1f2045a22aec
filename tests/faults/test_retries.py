"""Retries: a lost node is tried again, once each time that it was asked for; a person's scancel is not."""

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.processes import NLP_BENCH, text_of, until
from support.sandbox import Sandbox

from faults import stand_in
from nlp_bench.config.run import Run

pytestmark = [pytest.mark.slurm]


class Retried:
    """One submitted run that may be tried again."""

    def __init__(self, slurm: Sandbox, run: Run, folder: Path, retries: int = 1) -> None:
        self.slurm, self.run_dir = slurm, folder / "run"
        record = run.write(folder)
        slurm(*NLP_BENCH, *stand_in.submit(record, self.run_dir, "--retries", str(retries)))

    def submission(self) -> dict[str, object]:
        record: dict[str, object] = json.loads((self.run_dir / "submit.json").read_text())
        return record

    def until(self, condition: Callable[[], object], bound_s: float = 180) -> None:
        until(condition, bound_s, lambda: "\n".join(p.read_text() for p in self.run_dir.glob("*.*")))

    def log(self) -> str:
        return text_of(self.run_dir / "job.out")

    def sync(self) -> str:
        return self.slurm(*NLP_BENCH, "sync", str(self.run_dir))

    def outcome(self) -> dict[str, object]:
        self.until(lambda: self.sync() and (self.run_dir / "outcome.json").exists())
        record: dict[str, object] = json.loads((self.run_dir / "outcome.json").read_text())
        return record


def test_a_lost_node_is_tried_again(slurm: Sandbox, stub_run: Callable[..., Run], tmp_path: Path) -> None:
    retried = Retried(slurm, stub_run("second", queue="spare"), tmp_path)
    first = str(retried.submission()["job_id"])
    retried.until(lambda: "iteration " in retried.log())
    (node,) = re.findall(r" NodeList=(\S+)", slurm("scontrol", "show", "job", first, "--oneliner"))
    slurm("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=x")
    retried.until(lambda: "attempt 2 of 2 is submitted" in retried.sync())
    record = retried.outcome()  # the node itself comes back (ReturnToService=2)
    assert (record["outcome"], record["attempt"], record["job_id"]) == ("VALID", 2, retried.submission()["job_id"])
    assert record["job_id"] != first
    ((lost),) = record["attempts"]  # type: ignore[misc]
    assert (lost["job_id"], lost["outcome"]) == (first, "NODE_FAIL")
    assert re.search(rf"^nlp-bench: attempt 2 of 2: job {first} ended NODE_FAIL", retried.log(), re.MULTILINE)
    (entry,) = json.loads(slurm(*NLP_BENCH, "report", str(retried.run_dir), "--format", "json"))["runs"]
    assert (entry["outcome"], entry["num_records"]) == ("VALID", 4)
    assert "2 attempts, finished at iteration 4; the last is measured" in str(entry["reasons"])
    said = f"VALID: 1 earlier job(s) of this run were lost ({first}: NODE_FAIL)"
    assert said in slurm.ask(*NLP_BENCH, "watch", "--once", str(retried.run_dir)).stderr


def test_a_retry_that_is_used_up(slurm: Sandbox, stub_run: Callable[..., Run], tmp_path: Path) -> None:
    retried = Retried(slurm, stub_run("hang", queue="cancelled"), tmp_path)
    for attempt in (1, 2):
        retried.until(lambda n=attempt: retried.log().count("iteration        2/") == n)  # type: ignore[misc]
        urgent = ["--partition=urgent", "--nodelist=node7", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"]
        slurm("sbatch", *urgent)
        if attempt == 1:
            retried.until(lambda: "attempt 2 of 2 is submitted" in retried.sync())
    record = retried.outcome()
    assert (record["outcome"], record["attempt"]) == ("PREEMPTED", 2)
    assert [attempt["outcome"] for attempt in record["attempts"]] == ["PREEMPTED"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("mode", "act", "outcome"), [("hang", "scancel", "CANCELLED"), ("exit 5", "", "FAILED")])
def test_no_other_end_is_tried_again(
    slurm: Sandbox, stub_run: Callable[..., Run], tmp_path: Path, mode: str, act: str, outcome: str
) -> None:
    retried = Retried(slurm, stub_run(mode), tmp_path, retries=3)
    retried.until(lambda: "iteration " in retried.log())
    if act:
        slurm(act, str(retried.submission()["job_id"]))
    record = retried.outcome()
    assert (record["outcome"], record["attempt"], record["attempts"]) == (outcome, 1, [])


def test_a_chain_takes_no_retries(stub_run: Callable[..., Run], slurm: Sandbox, tmp_path: Path) -> None:
    run = replace(stub_run("ok"), limits=replace(stub_run("ok").limits, retries=1))
    with pytest.raises(AssertionError, match="--retries: a chain goes on by itself"):
        slurm(*NLP_BENCH, *stand_in.submit(run.write(tmp_path), tmp_path / "run", "--chain", "2"))


def test_a_node_that_falls_silent(slurm: Sandbox, stub_run: Callable[..., Run], tmp_path: Path) -> None:
    """Its slurmd is killed: Slurm finds out after SlurmdTimeout, while the script on the node still lives."""
    retried = Retried(slurm, stub_run("second", queue="spare"), tmp_path)
    first = str(retried.submission()["job_id"])
    retried.until(lambda: "iteration " in retried.log())
    (node,) = re.findall(r" NodeList=(\S+)", slurm("scontrol", "show", "job", first, "--oneliner"))
    os.kill(int((slurm.folder / f"slurmd-{node}.pid").read_text()), signal.SIGKILL)
    try:
        retried.until(lambda: "attempt 2 of 2 is submitted" in retried.sync(), 240)
        record = retried.outcome()
    finally:
        slurm("slurmd", "-N", node, "-f", str(slurm.folder / "slurm.conf"))
    assert (record["outcome"], record["attempt"]) == ("VALID", 2)
    assert [attempt["outcome"] for attempt in record["attempts"]] == ["NODE_FAIL"]  # type: ignore[attr-defined]
