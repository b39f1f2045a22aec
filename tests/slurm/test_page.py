"""The sandbox of docs/first-run.md: its lines are run as they stand."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sandbox import SCRIPT, START_S

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slurm, pytest.mark.torchrun, pytest.mark.slow]


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for temporary ones; every sandbox in it is stopped afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="nlpb-"))  # short: a socket's path has at most 107 characters
    yield folder
    for sandbox in folder.iterdir():
        subprocess.run(["bash", str(SCRIPT), "stop", str(sandbox)], check=False, timeout=START_S)
    shutil.rmtree(folder, ignore_errors=True)


def test_the_sandbox_of_the_first_run(short: Path) -> None:
    page = (ROOT / "docs/first-run.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"<!-- sandbox -->\n```\n(.*?)```", page, re.DOTALL)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "NLP_BENCH_SYS"))}
    environment |= {"TMPDIR": str(short), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    words = ["bash", "-euo", "pipefail", "-c", lines]
    done = subprocess.run(
        words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "4   idle node[1-4]" in done.stdout
    assert "-m nlp_bench.train --num-layers 4" in done.stdout
    assert re.search(r"run +VALID +tiny ", done.stdout)
    assert "#SBATCH --nodes=96" in done.stdout
