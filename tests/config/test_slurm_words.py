"""Words for sbatch and srun that would break what the run's folder, log and outcome rest on."""

import shutil
from pathlib import Path

import pytest
from support.command import Cli
from support.processes import execute

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
def test_what_would_break_the_run_is_refused(word: str, cli: Cli) -> None:
    said = cli(*SUBMIT, f"--sbatch-arg={word}", code=2)
    assert said.out == ""
    assert repr(word) in said.err
    assert "system.slurm.sbatch_args" in said.err


def test_a_file_of_nodes_is_looked_for_where_the_user_stands(here: Path, cli: Cli) -> None:
    """Handed on as it was typed, sbatch looked for it in the run's folder, from which the job is submitted."""
    words = ("--exclude", "./bad.txt", "--sbatch-arg=--nodelist=lists/good.txt", "--sbatch-arg=--nodefile=/etc/nodes")
    said = cli(*SUBMIT, *words).out
    for line in (f"--exclude={here}/bad.txt", f"--nodelist={here}/lists/good.txt", "--nodefile=/etc/nodes"):
        assert f"#SBATCH {line}\n" in said


@pytest.mark.parametrize(
    "word",
    ["--reservation=r", "--exclude=node3", "--constraint=a", "--nodelist=n1", "--wait-all-nodes=1", "--time-min=00:10:00", "--hold", "-H",
     "--constraint=[a100&ib|h100]", "-vQ", "-xnode3", "--ntasks-per-gpu=1", "--export=ALL,A=b", "--signal=TERM@60", "--signal=B:USR1@60", "--signal=15@60", "--qos=high", "-qhigh"],
)  # fmt: skip
def test_what_a_site_asks_for_is_taken(word: str, cli: Cli) -> None:
    assert f"#SBATCH {word}\n" in cli(*SUBMIT, f"--sbatch-arg={word}").out


@pytest.mark.parametrize(
    ("word", "is_taken"), [("--cpu-bind=none", True), ("--label", False), ("-l", False), ("--mpi=none", True), ("-N4", False)]
)  # fmt: skip
def test_the_starter_of_the_ranks(word: str, is_taken: bool, cli: Cli) -> None:
    assert (word in cli(*SUBMIT, f"--srun-arg={word}", code=0 if is_taken else 2).out) == is_taken


@pytest.mark.skipif(not shutil.which("man"), reason="no manual pages")
@pytest.mark.parametrize(("program", "refused"), [("sbatch", SBATCH), ("srun", SRUN)])
def test_slurm_knows_the_names(program: str, refused: dict[str, str]) -> None:
    page = execute("man", program).stdout or pytest.skip(f"no manual page of {program}")
    assert [name for name in refused if f"--{name}" not in page] == []
