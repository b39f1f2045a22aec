"""Real parts for the workflow tests: a checkout in a path with a space, a private Slurm, the real JUBE."""

import csv
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VENV = Path(sys.prefix)


class Jube:
    """The real jube command in one working folder, with a bound on each call."""

    def __init__(self, checkout: Path, folder: Path, environment: dict[str, str]) -> None:
        self.checkout, self.folder, self.environment = checkout, folder, environment
        self.runs = folder / "runs"

    def __call__(self, *words: str, timeout_s: float = 240) -> str:
        done = subprocess.run(
            [*words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, *tags: str) -> str:
        yaml = self.checkout / "benchmark/jube/nlp_benchmark.yaml"
        return self(
            "jube", "run", str(yaml), "--hide-animation", "-o", str(self.runs), *(["--tag", *tags] if tags else [])
        )

    def status(self) -> str:
        return self("jube", "status", str(self.runs), "--id", "last").split()[-1]

    def continue_until_finished(self, bound_s: float) -> None:
        end = time.monotonic() + bound_s
        while self.status() == "RUNNING":
            assert time.monotonic() < end, f"still RUNNING after {bound_s} s\n{self.log()}"
            time.sleep(1)
            self("jube", "continue", str(self.runs), "--id", "last", "--hide-animation")
        assert self.status() == "FINISHED", self.log()

    def log(self) -> str:
        return "\n".join(
            f"== {p}\n{p.read_text(errors='replace')[-3000:]}"
            for p in sorted(self.runs.rglob("work/*"))
            if p.suffix in {"", ".err", ".log"} and p.is_file()
        )

    def table(self) -> list[dict[str, str]]:
        """Return the rows of `jube result -a` as the csv result has them; the pretty table must be printed too."""
        printed = self("jube", "result", "-a", str(self.runs), "--id", "last")
        assert "Tokens/sec" in printed
        assert "time_to_report_in_seconds" in printed
        path = next(self.runs.rglob("result/result_csv.dat"))
        return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))

    def run_dir(self) -> Path:
        return next(path for path in self.runs.rglob("*_train/work") if path.is_dir())

    def wait_for(self, what: str, condition: Callable[[], bool], bound_s: float) -> None:
        end = time.monotonic() + bound_s
        while not condition():
            assert time.monotonic() < end, f"no {what} after {bound_s} s\n{self.log()}"
            time.sleep(0.2)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout in a path with a space; the virtual environment is the tests' own."""
    assert (VENV / "nlp-bench.key").exists(), "these tests run the setup script: start them by tests/run.sh"
    folder = tmp_path_factory.mktemp("a checkout") / "nlp bench"
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
    return folder


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
        subprocess.run(["bash", str(script), "start", str(folder)], check=True, timeout=120, stdout=subprocess.DEVNULL)
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
