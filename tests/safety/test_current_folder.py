"""Nothing of the current folder is imported: it may hold a stranger's evidence, and a run's folder what others can write."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.processes import ROOT, execute, text_of
from support.shims import python_script

from nlp_bench.errors import UsageError
from nlp_bench.launch.folder import refuse_importable

if TYPE_CHECKING:
    import subprocess

NAMES = ("nlp_bench", "random", "venv", "json", "torch", "numpy", "megatron", "argparse", "sitecustomize")
since_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH is of Python 3.11")


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder whose modules leave a mark when they are imported."""
    folder = tmp_path / "trap"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'a').write('{name}\\n')\n")
    return folder


def sprung(trap: Path) -> str:
    return text_of(trap.parent / "sprung")


def run(trap: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    foreign = ("SLURM", "JUBE", "NLP_BENCH", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own = {"NLP_BENCH_VENV": sys.prefix, "NLP_BENCH_SYSTEM": "local"}
    return execute(*words, cwd=trap, env=kept | own, timeout=180)


def test_the_trap_springs_where_python_looks_first(trap: Path) -> None:
    run(trap, sys.executable, "-c", "import random")
    assert sprung(trap) == "random\n"


@pytest.mark.slow
def test_the_command_of_a_checkout(trap: Path) -> None:
    done = run(trap, str(ROOT / "benchmark/env/nlp-bench"), "verify", "evidence.tar.gz")
    assert done.returncode == 2, done.stdout + done.stderr  # there is none; a module of the folder said nothing and 0
    assert "evidence.tar.gz" in done.stderr
    assert sprung(trap) == ""


def test_a_link_to_the_command_of_a_checkout(trap: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nlp-bench").symlink_to(ROOT / "benchmark/env/nlp-bench")
    done = run(trap, str(tmp_path / "bin/nlp-bench"), "--version")
    assert done.stdout.startswith("nlp-bench "), done.stderr
    assert sprung(trap) == ""


@pytest.mark.parametrize("word", ["python.bash", "activate.bash"])
def test_the_scripts_that_look_for_a_python(trap: Path, word: str) -> None:
    script = f"source '{ROOT}/benchmark/env/{word}'; nlp_bench_python > /dev/null; nlp-bench --version || true"
    run(trap, "bash", "-c", script)
    assert sprung(trap) == ""


@since_3_11
def test_what_a_command_starts(trap: Path) -> None:
    """`nlp-bench build` asks other Pythons what they can import; the shell's folder is theirs. A script of the site has what stands beside it."""
    tool = python_script(trap.parent / "tool", "import sitelib\n")
    (trap.parent / "sitelib.py").write_text("print('found')")
    asks = f"from nlp_bench.programs import ask; print(ask({str(tool)!r}).out)"
    child = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', 'import random'])"
    program = f"import sys; sys.path[:] = [{str(ROOT / 'src')!r}, *sys.path[1:]]; from nlp_bench.cli.main import settle; settle(); {child}; {asks}"
    done = run(trap, sys.executable, "-c", program)
    assert (done.returncode, done.stdout.strip()) == (0, "found"), done.stderr
    assert sprung(trap) == ""


@since_3_11
@pytest.mark.torchrun
@pytest.mark.parametrize("snapshot", ["true", "false"])
def test_the_ranks_of_a_run(trap: Path, snapshot: str) -> None:
    """The run's folder is the current one of each rank; a copy of the code in it opens it no further."""
    words = "submit --model tiny --launcher local --data-path mock --gpus-per-node 1 --iterations 4 --log-interval 2 --nhidden 64"
    command = [sys.executable, str(ROOT / "src/nlp_bench/__main__.py"), *words.split()]
    done = run(trap, *command, "--run-dir", str(trap), "--snapshot-code", snapshot)
    assert done.stdout.startswith("VALID"), done.stdout + done.stderr
    assert sprung(trap) == ""


def test_python_3_10_refuses_what_it_would_import(trap: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"argparse\.py: Python 3\.10 would import it"):
        refuse_importable(trap, (3, 10))
    refuse_importable(trap, (3, 11))
    (tmp_path / "clean").mkdir()
    refuse_importable(tmp_path / "clean", (3, 10))
    (tmp_path / "clean/torch").mkdir()
    (tmp_path / "clean/torch/__init__.py").touch()
    with pytest.raises(UsageError, match="torch: Python"):
        refuse_importable(tmp_path / "clean", (3, 10))
