"""Real parts for the workflow tests: a checkout in a path with a space, a private Slurm, the real JUBE."""

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.jube import Jube
from support.once import made_once

ROOT = Path(__file__).resolve().parents[2]
VENV = Path(sys.prefix)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout in a path with a space; the virtual environment is the tests' own."""
    assert (VENV / "nlp-bench.key").exists(), "these tests run the setup script: start them by tests/run.sh"

    def make(place: Path) -> None:
        folder = place / "nlp bench"
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        compileall.compile_dir(folder / "src", quiet=1)  # else the first processes of each test's copy would
        for step in ("data", "build"):
            words = [str(folder / "benchmark/env/nlp-bench"), step]
            subprocess.run(words, env=environment(folder), check=True, timeout=300, stdout=subprocess.DEVNULL)

    made = made_once(tmp_path_factory, "checkout", make)
    return shutil.copytree(made / "nlp bench", tmp_path_factory.mktemp("a checkout") / "nlp bench", symlinks=True)


def environment(checkout: Path, **extra: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM", "SBATCH", "NLP_BENCH", "JUBE"))
    }
    return {**kept, "NLP_BENCH_VENV": str(VENV), "NLP_BENCH_ROOT": str(checkout), **extra}


@pytest.fixture
def jube(checkout: Path, tmp_path: Path) -> Jube:
    return Jube(checkout, tmp_path, environment(checkout))


@pytest.fixture(scope="session")
def slurm_conf() -> Iterator[Path]:
    """A private Slurm with 4 nodes of 4 GPU resources; stopped by pid at the end, its folder removed."""
    folder = Path(tempfile.mkdtemp(prefix="nlpb-"))  # short: a socket's path has at most 107 characters
    script = ROOT / "tests/slurm/cluster.sh"
    try:
        subprocess.run(["bash", str(script), "start", str(folder)], check=True, timeout=600, stdout=subprocess.DEVNULL)
        yield folder / "slurm.conf"
    finally:
        subprocess.run(["bash", str(script), "stop", str(folder)], check=False, timeout=120)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def slurm_jube(checkout: Path, tmp_path: Path, slurm_conf: Path) -> Iterator[Jube]:
    """JUBE against the private Slurm; what is left of its jobs is cancelled afterwards."""
    yield Jube(checkout, tmp_path, environment(checkout, SLURM_CONF=str(slurm_conf)))
    subprocess.run(
        ["scancel", "--user", str(os.getuid())],
        env={**os.environ, "SLURM_CONF": str(slurm_conf)},
        check=False,
        timeout=60,
    )
