"""A terminal that is full of another job's variables: the same run, and what was taken out or kept stands in environment.json."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import CHECKOUT, NLP_BENCH, ROOT, until
from support.sandbox import Sandbox

from faults import stand_in
from nlp_bench.config.origin import commit_of
from nlp_bench.config.run import Run
from nlp_bench.evidence.collect import Collected, add_software

Stub = Callable[..., Run]
OF_RANKS = {
    "PET_NO_PYTHON": "1", "PET_STANDALONE": "1", "PET_MAX_RESTARTS": "3", "PET_LOG_LINE_PREFIX_TEMPLATE": "x", "RANK": "7", "WORLD_SIZE": "99",
    "LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "9", "GROUP_RANK": "3", "NODE_RANK": "2", "MASTER_ADDR": "nowhere.invalid", "MASTER_PORT": "1",
    "OMP_PROC_BIND": "true", "OMP_PLACES": "{0}",
    "TORCHELASTIC_RUN_ID": "stale", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "4",
    "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[stale ${rank}]", "TORCHELASTIC_ERROR_FILE": "/nowhere/x",
}  # fmt: skip
OF_JOBS = {
    "SLURM_JOB_ID": "424242", "SLURM_JOBID": "424242", "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_NODEID": "1",
    "SLURM_PROCID": "1", "SLURM_JOB_NODELIST": "gone[1-9]", "SLURM_RESTART_COUNT": "2", "SLURM_EXPORT_ENV": "NONE",
    "SLURM_MEM_PER_NODE": "1", "SLURM_NTASKS_PER_NODE": "64", "SLURM_CPU_BIND": "map_cpu:99", "SLURM_DISTRIBUTION": "nonsense",
    "SBATCH_PARTITION": "nowhere", "SBATCH_EXPORT": "NONE", "SBATCH_OUTPUT": "/nowhere/out", "SBATCH_GRES": "tpu:4",
}  # fmt: skip
OF_QUESTIONS = {
    "SQUEUE_PARTITION": "nowhere", "SQUEUE_FORMAT": "%j", "SQUEUE_USERS": "nobody", "SLURM_TIME_FORMAT": "relative", "SCANCEL_INTERACTIVE": "1",
    "SCANCEL_STATE": "SUSPENDED",
}  # fmt: skip
KEPT = {
    "JUBE_EXEC_SHELL": "/nowhere/sh", "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "nowhere0", "GLOO_X": "1", "PYTORCH_CUDA_ALLOC_CONF": "x:y",
    "PYTHONPATH": "/nowhere/python", "LC_ALL": "C",
}  # fmt: skip
SET = {"OMP_NUM_THREADS": "nonsense", "CUDA_VISIBLE_DEVICES": "77"}


def record(path: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(path.read_text())
    return found


@pytest.mark.torchrun
def test_a_local_run_is_the_same(tmp_path: Path) -> None:
    """The real trainer: by the stale words it would be rank 7 of 99 at a host that is not there, and PET_* alone ended torchrun."""
    environment = {**os.environ, **CHECKOUT, **OF_RANKS, **OF_JOBS, **OF_QUESTIONS, **KEPT, **SET}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), KEPT["PYTHONPATH"]])
    run_dir = tmp_path / "run"
    words = "submit --launcher local --iterations 2 --log-interval 1 --gpus-per-node 1 --data-path mock"
    done = subprocess.run(
        [*NLP_BENCH, *words.split(), "--run-dir", str(run_dir)], env=environment, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "VALID\n"), done.stderr
    assert re.search(r"not handed on, .*: SBATCH_EXPORT, SBATCH_GRES.* and \d+ more", done.stderr)
    log = (run_dir / "job.out").read_text()
    assert re.findall(r"^\[default0\]: iteration +(\d+)/", log, re.MULTILINE) == ["1", "2"]
    assert record(run_dir / "outcome.json")["job_id"] is None
    found = record(run_dir / "environment.json")
    assert found["taken_out"] == OF_RANKS
    assert found["variables"].items() >= {**KEPT, "PYTHONPATH": found["variables"]["PYTHONPATH"]}.items()
    assert found["variables"]["PYTHONPATH"].endswith(KEPT["PYTHONPATH"])
    assert found["variables"]["OMP_NUM_THREADS"].isdecimal()
    assert found["variables"]["CUDA_VISIBLE_DEVICES"] == ""
    assert not [name for name in found["variables"] if name.startswith("SLURM_JOB")]


@pytest.mark.slurm
def test_a_job_of_slurm_is_the_same(slurm: Sandbox, stub_run: Stub, tmp_path: Path) -> None:
    """The terminal of a job that has ended; its record lost meanwhile, the job is found again although SQUEUE_* would hide it."""
    environment = {**slurm.environment, **OF_RANKS, **OF_JOBS, **OF_QUESTIONS, **KEPT}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), KEPT["PYTHONPATH"]])
    run_dir = tmp_path / "run"
    words = [*NLP_BENCH, *stand_in.submit(stub_run("slow 3").write(tmp_path), run_dir)]
    first = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert first.stdout.startswith("Submitted batch job "), first.stderr
    (run_dir / "submit.json").unlink()
    again = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert again.stdout == first.stdout, again.stderr
    until((run_dir / "outcome.json").exists, 240, (run_dir / "job.err").read_text)
    ended = record(run_dir / "outcome.json")
    assert (ended["outcome"], f"Submitted batch job {ended['job_id']}\n") == ("VALID", first.stdout)
    found = record(run_dir / "environment.json")
    assert found["taken_out"] == OF_RANKS
    assert found["variables"].items() >= {name: KEPT[name] for name in ("NCCL_DEBUG", "JUBE_EXEC_SHELL")}.items()
    assert found["variables"]["SLURM_JOB_ID"] == ended["job_id"]
    assert "SLURM_EXPORT_ENV" not in found["variables"] or found["variables"]["SLURM_EXPORT_ENV"] != "NONE"


def test_the_git_of_a_hook_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIT_DIR of a hook or of a build server names another repository, and a folder below one is not that one."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(tmp_path), *identity, "commit", "--quiet", "--allow-empty", "-m", "a"], check=True)
    (tmp_path / "unpacked").mkdir()
    ours = commit_of(ROOT)
    assert commit_of(tmp_path) is not None
    assert commit_of(tmp_path / "unpacked") is None
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    assert commit_of(ROOT) == ours
    assert commit_of(tmp_path / "unpacked") is None


def test_what_a_wrapper_of_git_prints_is_no_commit_and_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, made = commit_of(ROOT), Collected(tmp_path / "before")
    add_software(made)
    wrapper = tmp_path / "bin/git"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/bash\necho "NOTICE: git 2.30 is deprecated, module load git"\nexec {shutil.which("git")} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    assert commit_of(ROOT) == ours
    again = Collected(tmp_path / "after")
    record = add_software(again)
    assert again.remarks == made.remarks
    assert record["commit"] == str(ours).partition("+")[0]
    wrapper.write_text("#!/bin/bash\necho module load git\n")
    assert commit_of(ROOT) == "unknown"
