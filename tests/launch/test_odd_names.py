"""Folders with odd names: a run in them works, or is refused at once by the character, with the remedy."""

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.jube_versions import NEWEST
from support.processes import NLP_BENCH, surroundings

from faults.stand_in import STUB, stub_run
from nlp_bench.errors import UsageError
from nlp_bench.launch.folder import refuse_name

ROOT = Path(__file__).resolve().parents[2]
FINE = "run a'b\"c $HOME `x` #1, ;&|<>*?[](){}!~=@^ ä\udcff\t\n"
"""All that a shell or a locale might read, and a byte that is no UTF-8."""


def nlp_bench(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = surroundings(PYTHONPATH=f"{ROOT / 'src'}:{STUB}")
    return subprocess.run(
        [*NLP_BENCH, *words], env=environment, cwd=folder, capture_output=True, text=True,
        errors="surrogateescape", check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", [FINE, "-a", "a:b%c\\d"])
def test_a_local_run_works_in_them(tmp_path: Path, name: str) -> None:
    words = "submit --model tiny --system local --data-path mock --iterations 4 --nhidden 64 --sequence-length 64"
    done = nlp_bench(tmp_path, *words.split(), f"--run-dir={name}")
    assert (done.returncode, done.stdout) == (0, "VALID\n"), done.stderr
    assert (tmp_path / name / "outcome.json").is_file()
    told = nlp_bench(tmp_path, "report", f"./{name}", "--format", "csv")
    assert told.returncode == 0, told.stderr
    assert ",VALID," in told.stdout


@pytest.mark.parametrize(
    ("root", "run_dir", "launcher", "is_snapshot", "said"),
    [
        (
            "/c:d",
            "/r",
            "local",
            False,
            "the working folder: /c:d holds ':', which divides PYTHONPATH.*; rename or move it",
        ),
        ("/c", "/r:d", "slurm", True, "--run-dir: /r:d holds ':', which divides PYTHONPATH.*; name another folder"),
        ("/c", "/r/50%", "slurm", False, r"--run-dir: /r/50% holds '%', which Slurm takes for a pattern"),
        ("/c", "/r\\1", "slurm", False, r"--run-dir: .* holds '\\\\', which Slurm takes for a pattern"),
        ("/c", "/r:d", "slurm", False, None),
        ("/c", "/r/50%", "local", False, None),
        ("/c d'\"$,`\n", "/r #\t\n", "slurm", True, None),
    ],
)
def test_what_would_lose_a_run_is_refused(  # a row of the table
    root: str, run_dir: str, launcher: str, is_snapshot: bool, said: str | None
) -> None:
    run = stub_run("ok", launcher="local")
    run = dataclasses.replace(run, launch=dataclasses.replace(run.launch, launcher=launcher))
    if said is None:
        refuse_name(run, Path(root), Path(run_dir), is_snapshot=is_snapshot)
        return
    with pytest.raises(UsageError, match=said):
        refuse_name(run, Path(root), Path(run_dir), is_snapshot=is_snapshot)


@pytest.mark.usefixtures("jube_version")
@pytest.mark.jube
@pytest.mark.parametrize(
    ("name", "jube_version"),
    [*((name, "on PATH") for name in ('a"b', "a$b", "a,b", "a`b", "a b'#%ä")), ("a b'#%ä", NEWEST)],
    indirect=["jube_version"],
)
def test_jube_in_a_checkout_of_such_a_name(tmp_path: Path, name: str) -> None:
    """JUBE puts the path into its commands as it is: four signs break them, which the first step says before anything else."""
    checkout = tmp_path / name
    for part in ("benchmark", "jube"):
        shutil.copytree(ROOT / part, checkout / part, ignore=shutil.ignore_patterns("nlp_benchmark_run"))
    (checkout / "src").symlink_to(ROOT / "src")
    words = ["jube", "run", "benchmark/jube/nlp_benchmark.yaml", "--hide-animation", "--tag", "local"]
    environment = {**os.environ, "NLP_BENCH_VENV": str(tmp_path / "none")}
    subprocess.run(words, cwd=checkout, env=environment, capture_output=True, check=False, timeout=120)
    work = next(checkout.glob("benchmark/jube/nlp_benchmark_run/000000/000000_check")) / "work"
    said = (work / "stderr").read_text(errors="replace")
    if name.startswith("a b"):
        assert (work / "run.json").is_file(), said
    else:
        assert (
            "JUBE puts the name of the checkout into commands, which a quote, dollar, comma or backquote breaks" in said
        )
        assert said.rstrip().endswith(": rename that folder")
        assert "yntax error" not in said
