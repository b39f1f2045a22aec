"""`nlp-bench watch --continue`: runs and JUBE's steps to the table, unattended, on a real Slurm through the real JUBE."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.sandbox import Sandbox

from faults import stand_in
from nlp_bench.config.run import Run

pytestmark = [pytest.mark.slurm, pytest.mark.jube]


def with_limits(run: Run, **limits: float) -> Run:
    return replace(run, limits=replace(run.limits, **limits))  # type: ignore[arg-type]


@pytest.mark.usefixtures("newer_jube")
def test_to_the_table_unattended(
    jube_slurm: Sandbox, stub_run: Callable[..., Run], jube_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ends well, one fails, one waits in the queue for longer than it may."""
    slurm = jube_slurm
    held = with_limits(stub_run("ok", "--hold"), max_pending_s=3)
    file = jube_file(ok=stub_run("slow 1"), fails=stub_run("exit 5"), held=held)
    monkeypatch.chdir(file.parent)
    slurm("jube", "run", str(file), "--hide-animation", timeout_s=120)
    watch = [sys.executable, "-m", "nlp_bench", "watch", str(file.parent / "runs"), "--continue", "--format", "json"]
    done = subprocess.run(
        [*watch, "--every", "1", "--max-hours", "0.04"], env=slurm.environment, capture_output=True, text=True, check=False, timeout=180
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # not all are VALID
    assert "JUBE: FINISHED; next: jube result -a" in done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert any("(JobHeldUser); held: scontrol release" in record["state"] for record in records)
    ends = {record["outcome"]: record for record in records if record["outcome"]}
    assert set(ends) == {"VALID", "FAILED", "CANCELLED"}
    assert "longer than --max-pending 3: PENDING (JobHeldUser)" in ends["CANCELLED"]["reasons"][0]
    assert all(record["next"] for record in ends.values())
    assert slurm("jube", "status", str(file.parent / "runs"), "--id", "last").split()[-1] == "FINISHED"
    slurm("jube", "result", "-a", str(file.parent / "runs"), "--id", "last")
    rows = list(csv.DictReader(next(file.parent.rglob("result/result.dat")).read_text().splitlines()))
    assert {row["case"]: row["outcome"] for row in rows} == {"ok": "VALID", "fails": "FAILED", "held": "CANCELLED"}
    assert [row["case"] for row in rows if row["tokens"]] == ["ok"]


def test_the_hours_are_a_bound(slurm: Sandbox, stub_run: Callable[..., Run], tmp_path: Path) -> None:
    record = stub_run("hang").write(tmp_path)
    words = [sys.executable, "-m", "nlp_bench"]
    slurm(*words, *stand_in.submit(record, tmp_path / "run"))
    watch = [*words, "watch", str(tmp_path / "run"), "--every", "1", "--max-hours", "0.001"]
    done = subprocess.run(watch, env=slurm.environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3, done.stderr
    assert "0.001 hours are over; go on with the same command" in done.stderr
    slurm("scancel", json.loads((tmp_path / "run/submit.json").read_text())["job_id"])
