"""A run.json that is edited while its job waits in a real Slurm: nothing is trained, and the outcome says why."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import NLP_BENCH, until
from support.sandbox import Sandbox

from faults import stand_in
from nlp_bench.config.run import Run
from nlp_bench.seal import Link, State

pytestmark = [pytest.mark.slurm]


def ended(slurm: Sandbox, run: Run, folder: Path, *, edit: bool) -> dict[str, object]:
    """Submit a run that is held, edit its run.json or not, release it; return its row of the report."""
    run_dir = folder / "run"
    slurm(*NLP_BENCH, *stand_in.submit(run.write(folder), run_dir))
    if edit:
        path = run_dir / "run.json"
        path.write_text(path.read_text().replace('"lr": ', '"lr": 1'))
    slurm("scontrol", "release", str(json.loads((run_dir / "submit.json").read_text())["job_id"]))
    outcome = run_dir / "outcome.json"
    until(lambda: outcome.exists() or not slurm(*NLP_BENCH, "sync", str(run_dir)), 120)
    (entry,) = json.loads(slurm.ask(*NLP_BENCH, "report", str(run_dir), "--format", "json").stdout)["runs"]
    row: dict[str, object] = entry
    return row


def test_a_run_that_is_edited_while_it_waits_is_not_trained(
    slurm: Sandbox, stub_run: Callable[..., Run], tmp_path: Path
) -> None:
    row = ended(slurm, stub_run("ok", "--hold"), tmp_path, edit=True)
    outcome = json.loads((tmp_path / "run/outcome.json").read_text())
    assert (row["outcome"], outcome["outcome"]) == ("FAILED", "FAILED")
    assert "run.json was changed after it was submitted: its SHA-256 is " in outcome["evidence"]
    assert "Submitted batch job" not in (tmp_path / "run/job.out").read_text()
    assert row["seals"][0] == {**row["seals"][0], "link": Link.SUBMISSION.name.lower(), "state": State.BROKEN.value}  # type: ignore[index]


def test_every_link_holds_on_slurm(slurm: Sandbox, stub_run: Callable[..., Run], tmp_path: Path) -> None:
    row = ended(slurm, stub_run("ok", "--hold"), tmp_path, edit=False)
    assert row["outcome"] == "VALID", row["reasons"]
    states = {one["link"]: one["state"] for one in row["seals"]}  # type: ignore[attr-defined]
    assert set(states.values()) == {State.HOLDS.value, State.MISSING.value}
    assert [link for link, state in states.items() if state == State.MISSING.value] == [Link.NONCE.name.lower()]
