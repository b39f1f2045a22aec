"""`submit --snapshot-code`: a job that waits while the checkout changes runs what was submitted; without it the outcome says so."""

import dataclasses
import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sandbox import Sandbox, own_reasons

from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.launch import folder as run_folder
from nlp_bench.launch.folder import prepare, refuse_importable

pytestmark = pytest.mark.slow

Stub = Callable[..., Run]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of one's own, to be changed."""
    for part in ("src", "benchmark", "jube"):
        ignored = shutil.ignore_patterns("__pycache__", "nlp_benchmark_run")
        shutil.copytree(ROOT / part, tmp_path / "checkout" / part, ignore=ignored)
    return tmp_path / "checkout"


@pytest.mark.slurm
def test_a_job_that_waits_while_the_checkout_changes(
    slurm: Sandbox, stub_run: Stub, checkout: Path, tmp_path: Path
) -> None:
    record = stub_run("ok", "--hold", "--mem=200").write(tmp_path)
    environment = {**slurm.environment, "NLP_BENCH_ROOT": str(checkout), "PYTHONPATH": ""}
    folders = {word: tmp_path / f"copied {word}" for word in ("true", "false")}
    for word, folder in folders.items():
        words = ["submit", "--run", record, "--run-dir", folder, "--no-follow", "--snapshot-code", word]
        command = [sys.executable, checkout / "src/nlp_bench/__main__.py", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
    for name in ("train/logline.py", "launch/nodes/torchrun.py"):  # of the ranks, and of the job
        with (checkout / "src/nlp_bench" / name).open("a") as module:
            module.write(f"\nimport sys; print('changed {name}', file=sys.stderr, flush=True)\n")
    for folder in folders.values():
        slurm("scontrol", "release", json.loads((folder / "submit.json").read_text())["job_id"])
    told = {}
    for word, folder in folders.items():
        slurm.until((folder / "outcome.json").exists, f"outcome of {folder}", bound_s=180)
        told[word] = json.loads((folder / "outcome.json").read_text())
    logs = {word: (folder / "job.err").read_text() for word, folder in folders.items()}

    assert (told["true"]["outcome"], own_reasons(told["true"])) == ("VALID", [])
    assert "changed" not in logs["true"]
    assert told["false"]["outcome"] == "VALID"
    assert told["false"]["reasons"][0].startswith("nlp-bench was changed between the making of run.json")
    assert "changed train/logline.py" in logs["false"]
    assert "changed launch/nodes/torchrun.py" in logs["false"]


def test_the_copy_is_what_the_run_was_resolved_with(stub_run: Stub, tmp_path: Path) -> None:
    run = stub_run("ok")
    prepare(run, root=ROOT, run_dir=tmp_path, is_snapshot=True)
    folder = run_folder.snapshot_folder(tmp_path)
    package = folder / "src/nlp_bench"
    assert run_folder.code_sha256(package) == run.nlp_bench.code_sha256
    assert json.loads((folder / "snapshot.json").read_text())["commit"] == run.nlp_bench.commit
    for built in (ROOT / "src/nlp_bench/logs").glob("_scan*.so"):  # the compiled scanner
        assert (package / "logs" / built.name).read_bytes() == built.read_bytes()
    assert (folder / "benchmark/systems/local.toml").is_file()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if path.stat().st_mode & 0o222]
    assert not list(tmp_path.glob(".snapshot*"))
    refuse_importable(tmp_path, (3, 10))  # the folder of the run gives nothing to import
    script = (tmp_path / "submit.job").read_text()
    assert (
        f"\nexport NLP_BENCH_BUILD_DIR={shlex.quote(str(ROOT / 'build'))}\n" in script
        or "NLP_BENCH_BUILD_DIR" in os.environ
    )
    before = (package / "seal.py").stat().st_mtime_ns
    prepare(run, root=ROOT, run_dir=tmp_path, is_snapshot=True)  # of a submission that was cut off
    assert (package / "seal.py").stat().st_mtime_ns == before
    shutil.rmtree(tmp_path / "snapshot")


def test_a_file_system_that_sets_neither_times_nor_modes_takes_the_copy(
    stub_run: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CIFS, or vfat of another user; and one that renames within a folder alone (Lustre's, of several metadata servers)."""
    move = os.rename

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    def renamed(source: Path, target: Path) -> None:
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        move(source, target)

    run = stub_run("ok")
    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "utime", refused)
    monkeypatch.setattr(Path, "chmod", refused)
    package = run_folder.take_snapshot(run, tmp_path) / "src/nlp_bench"
    assert run_folder.code_sha256(package) == run.nlp_bench.code_sha256


def test_snapshots_of_a_file_server_are_no_code(tmp_path: Path) -> None:
    """They show in every folder of some; a job that waited for longer than an hour had run "other" code."""
    (tmp_path / "a.py").touch()
    before = run_folder.code_sha256(tmp_path)
    (tmp_path / ".snapshot/hourly.0").mkdir(parents=True)
    (tmp_path / ".snapshot/hourly.0/a.py").touch()
    assert run_folder.code_sha256(tmp_path) == before
    (tmp_path / "b.py").touch()
    assert run_folder.code_sha256(tmp_path) != before


def test_a_copy_that_is_cut_off_or_of_other_code_is_none(
    stub_run: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stub_run("ok")
    other = dataclasses.replace(run, nlp_bench=dataclasses.replace(run.nlp_bench, code_sha256="0" * 64))
    with pytest.raises(
        UsageError, match=r"--snapshot-code: the code \(SHA-256 \w+\) is not the one .*resolve it again"
    ):
        run_folder.take_snapshot(other, tmp_path)
    assert list(tmp_path.iterdir()) == []

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("compileall.compile_dir", full)
    with pytest.raises(NlpBenchError, match=r"--snapshot-code: cannot write .*nothing was submitted"):
        run_folder.take_snapshot(run, tmp_path)
    assert list(tmp_path.iterdir()) == []
