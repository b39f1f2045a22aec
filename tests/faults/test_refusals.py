"""What Slurm refuses or gives otherwise than asked, and runs whose JUBE is damaged."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.processes import NLP_BENCH, until
from support.sandbox import Sandbox

from faults import stand_in
from nlp_bench.config.run import Run

pytestmark = [pytest.mark.slurm]
Stub = Callable[..., Run]


@pytest.mark.parametrize(
    ("words", "launch", "said"),
    [
        ((), {"queue": "nowhere"}, "invalid partition specified: nowhere"),
        (("--gres=tpu:4",), {}, "Invalid generic resource (gres) specification"),
        (("--begin=yesterday-ish",), {}, "--begin"),
    ],
)
def test_sbatch_refuses(
    slurm: Sandbox, stub_run: Stub, tmp_path: Path, words: tuple[str, ...], launch: dict[str, str], said: str
) -> None:
    record = stub_run("ok", *words, **launch).write(tmp_path)
    command = [*NLP_BENCH, *stand_in.submit(record, tmp_path / "run")]
    done = subprocess.run(command, env=slurm.environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert said in done.stderr
    assert "nothing was submitted" in done.stderr
    assert not (tmp_path / "run/submit.json").exists()


def test_an_allocation_of_another_size(slurm: Sandbox, stub_run: Stub, tmp_path: Path) -> None:
    """The script of a run of two nodes, submitted by hand for one."""
    run = stub_run("other 0")
    record = run.write(tmp_path)
    run_dir = tmp_path / "run"
    slurm(*NLP_BENCH, *stand_in.submit(record, run_dir))
    outcome = run_dir / "outcome.json"
    first = json.loads((run_dir / "submit.json").read_text())["job_id"]
    slurm("scancel", first)
    until(lambda: slurm(*NLP_BENCH, "sync", str(run_dir)) and outcome.exists())
    for name in ("outcome.json", "ready", "submit.json"):
        (run_dir / name).unlink()
    slurm("sbatch", "--nodes=1", f"--chdir={run_dir}", "--wait-all-nodes=0", str(run_dir / "submit.job"))
    until(outcome.exists, 60, (run_dir / "job.err").read_text)
    ended = json.loads(outcome.read_text())
    assert ended["outcome"] == "FAILED"
    assert "Slurm allocated 1 node(s)" in ended["evidence"]
    assert "run.json asks for 2" in ended["evidence"]
    assert "iteration " not in (run_dir / "job.out").read_text().partition(" FAILED: ")[0]  # nothing was trained


@pytest.mark.jube
def test_without_jubes_files_the_runs_are_found(
    slurm: Sandbox, stub_run: Stub, jube_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    local = replace(stub_run("ok", launcher="local"))
    file = jube_file(one=local)
    monkeypatch.chdir(file.parent)
    slurm("jube", "run", str(file), "--hide-animation", timeout_s=120)
    runs = file.parent / "runs"
    whole = slurm(*NLP_BENCH, "report", str(runs), "--format", "csv")
    for name in ("workpackages.xml", "configuration.xml"):
        path = runs / "000000" / name
        path.write_bytes(path.read_bytes()[:200])
        assert slurm(*NLP_BENCH, "report", str(runs), "--format", "csv") == whole
    assert "VALID" in slurm(*NLP_BENCH, "sync", str(runs))
    (runs / "000000/workpackages.xml").unlink()
    assert slurm(*NLP_BENCH, "report", str(runs), "--format", "csv") == whole
    done = subprocess.run(
        [*NLP_BENCH, "watch", str(runs), "--continue", "--every", "0.2", "--max-hours", "0.0005"],
        env=slurm.environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "VALID" in done.stderr
    assert "JUBE: error: jube" in done.stderr
