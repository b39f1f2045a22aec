"""Folders of odd names, for real: what stands in a name is never a command, a pattern or another line."""

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import NLP_BENCH, ROOT, surroundings, until
from support.sandbox import Sandbox

from nlp_bench.config.run import Run

pytestmark = pytest.mark.slow

Stub = Callable[..., Run]
SIGNS = "-rf ' \" $HOME $(touch pwned) `touch pwned`;touch pwned;a&b|c*?[x]{a,b}~!!<b>#NODES#"
LINES = "a\nb: VALID\r\x1b[31m\n#SBATCH --time=1\ttab"
LONG = "#ä 日本語 " + "x" * 180 + os.fsdecode(b"no\xffutf8")
NAMES = (SIGNS + LINES, LONG)
"""Every sign that a shell, a template, Slurm or a table reads in its own way; each was run alone as well when this was written."""
PATTERNS = ("a%j", "100%", "back\\slash")


def submit(run: Run, folder: Path, name: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[bytes]":
    """Submit `run` into `folder`/`name`, which is given as a person would type it: relative."""
    folder.mkdir(exist_ok=True)
    words = [*NLP_BENCH, "submit", "--run", str(run.write(folder)), f"--run-dir={name}", "--no-follow"]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False, timeout=120)


def outcome(run_dir: Path) -> dict[str, object]:
    record: dict[str, object] = json.loads((run_dir / "outcome.json").read_text())
    return record


def read(folder: Path, environment: dict[str, str], *words: str) -> bytes:
    """Return what a subcommand prints of the folder; it must succeed."""
    done = subprocess.run(
        [*NLP_BENCH, *words], cwd=folder, env=environment, capture_output=True, check=False, timeout=120
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout or done.stderr  # watch talks


def test_a_local_run_and_all_that_read_it(stub_run: Stub, tmp_path: Path) -> None:
    """Below a folder of an odd name too; report, measure, sync, watch, bundle and verify read them all."""
    environment = surroundings()
    folder = tmp_path / "% \\ $(touch pwned)\n"
    for name in NAMES:
        done = submit(stub_run("ok", launcher="local"), folder, name, environment)
        assert (done.returncode, done.stdout) == (0, b"VALID\n"), done.stderr
        read(folder, environment, "measure", f"./{name}")
    rows = list(csv.DictReader(io.StringIO(read(folder, environment, "report", ".", "--format", "csv").decode())))
    assert [row["outcome"] for row in rows] == ["VALID"] * len(NAMES)
    for words in (("sync", "."), ("watch", "--once", ".")):
        shown = read(folder, environment, *words).decode()
        assert [line.rpartition(": ")[2] for line in shown.splitlines()] == ["VALID"] * len(NAMES), shown
        assert "\x1b" not in shown
    read(folder, environment, "bundle", ".", "--output", "b.tar.gz")
    assert b"VALID" in read(folder, environment, "verify", "b.tar.gz")
    assert not list(tmp_path.rglob("pwned"))
    assert not (ROOT / "pwned").exists()


@pytest.mark.slurm
def test_a_job_of_slurm(slurm: Sandbox, stub_run: Stub, tmp_path: Path) -> None:
    """Beside them, two jobs of Slurm's own in folders that are refused: their logs are lost, which is why."""
    for name in PATTERNS[::2]:
        (tmp_path / name).mkdir()
        words = ["sbatch", "--time=1", "--output=job.out", "--wrap=true"]
        subprocess.run(words, cwd=tmp_path / name, env=slurm.environment, capture_output=True, check=True, timeout=60)
    for name in NAMES:
        done = submit(stub_run("ok"), tmp_path, name, slurm.environment)
        assert done.returncode == 0, done.stderr
    folders = [tmp_path / name for name in NAMES]

    def have_ended() -> bool:
        return all((one / "ready").exists() for one in folders) and not slurm("squeue", "--noheader")

    until(have_ended, 90, lambda: [list(one.iterdir()) for one in folders])
    assert [outcome(tmp_path / name)["outcome"] for name in NAMES] == ["VALID"] * len(NAMES)
    assert not list(tmp_path.rglob("pwned"))
    assert [list((tmp_path / name).iterdir()) for name in PATTERNS[::2]] == [[], []]


@pytest.mark.slurm
@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_of_slurms_is_refused(slurm: Sandbox, stub_run: Stub, tmp_path: Path, name: str) -> None:
    """Slurm would look for job.out in another folder; the job would end without a log."""
    done = submit(stub_run("ok"), tmp_path, name, slurm.environment)
    assert done.returncode == 2
    assert b"which Slurm takes for a pattern in the name of the log; name another folder" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json"]
