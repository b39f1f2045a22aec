"""Words for sbatch and srun that would break what the run's folder, log and outcome rest on."""

import shutil
import subprocess
from pathlib import Path

import pytest

from nlp_bench.cli.main import main
from nlp_bench.launch.scheduler.slurm_options import SBATCH, SRUN

SUBMIT = ["submit", "--model", "13", "--system", "juwels-booster", "--print"]


@pytest.mark.parametrize(
    "word",
    [
        "--array=0-2", "--arr=0-2", "-a0-2", "-a", "-Ha0-2", "--chdir=/tmp", "-D/tmp", "--wrap=sleep", "--output=x", "-o/dev/null",
        "--comment=mine", "--parsable", "--test-only", "--requeue", "--no-requeue", "-N2", "--nodes=2", "--node=2", "--time=5", "--wait", "-W",
        "-Mother", "0-2", "-", "--signal=USR1@60", "--signal=R:SIGUSR2@90", "--signal=10",
    ],
)  # fmt: skip
def test_what_would_break_the_run_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SUBMIT, f"--sbatch-arg={word}"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert repr(word) in said.err
    assert "system.slurm.sbatch_args" in said.err


def test_a_file_of_nodes_is_looked_for_where_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Handed on as it was typed, sbatch looked for it in the run's folder, from which the job is submitted."""
    monkeypatch.chdir(tmp_path)
    words = ["--exclude", "./bad.txt", "--sbatch-arg=--nodelist=lists/good.txt", "--sbatch-arg=--nodefile=/etc/nodes"]
    assert main([*SUBMIT, *words]) == 0
    said = capsys.readouterr().out
    for line in (f"--exclude={tmp_path}/bad.txt", f"--nodelist={tmp_path}/lists/good.txt", "--nodefile=/etc/nodes"):
        assert f"#SBATCH {line}\n" in said


@pytest.mark.parametrize(
    "word",
    ["--reservation=r", "--exclude=node3", "--constraint=a", "--nodelist=n1", "--wait-all-nodes=1", "--time-min=00:10:00", "--hold", "-H",
     "--constraint=[a100&ib|h100]", "-vQ", "-xnode3", "--ntasks-per-gpu=1", "--export=ALL,A=b", "--signal=TERM@60", "--signal=B:USR1@60", "--signal=15@60", "--qos=high", "-qhigh"],
)  # fmt: skip
def test_what_a_site_asks_for_is_taken(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SUBMIT, f"--sbatch-arg={word}"]) == 0
    assert f"#SBATCH {word}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "is_taken"), [("--cpu-bind=none", True), ("--label", False), ("-l", False), ("--mpi=none", True), ("-N4", False)]
)  # fmt: skip
def test_the_starter_of_the_ranks(word: str, is_taken: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SUBMIT, f"--srun-arg={word}"]) == (0 if is_taken else 2)
    assert (word in capsys.readouterr().out) == is_taken


@pytest.mark.skipif(not shutil.which("man"), reason="no manual pages")
@pytest.mark.parametrize(("program", "refused"), [("sbatch", SBATCH), ("srun", SRUN)])
def test_slurm_knows_the_names(program: str, refused: dict[str, str]) -> None:
    page = subprocess.run(["man", program], capture_output=True, text=True, check=False).stdout
    if not page:
        pytest.skip(f"no manual page of {program}")
    assert [name for name in refused if f"--{name}" not in page] == []
