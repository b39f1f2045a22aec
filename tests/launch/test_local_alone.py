"""A run on this machine asks nothing of Slurm: not of one whose controller is down, nor of one that hangs."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.following import program
from support.processes import NLP_BENCH, surroundings

from faults.stand_in import STUB, stub_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("scontrol", "squeue", "sacct", "sinfo", "sbatch", "srun", "scancel")
RUN = ("--model", "tiny", "--iterations", "4", "--data-path", "mock")


class Machine:
    """A login node with Slurm's commands on PATH, whose controller does not answer; each call is written down."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, folder / "calls"
        (folder / "bin").mkdir()
        for name in COMMANDS:
            said = "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"
            program(folder / "bin", name, f'echo "$0 $*" >> {self.calls}; echo "{said}" >&2; exit 1')

    def __call__(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        own = surroundings(PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}", PYTHONPATH=f"{ROOT / 'src'}:{STUB}")
        return subprocess.run(
            [*NLP_BENCH, *words], env={**own, **variables}, cwd=self.folder, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


LOCAL = ((("--launcher", "local"), {}), (("--system", "local"), {}), ((), {"NLP_BENCH_SYSTEM": "local"}))


@pytest.mark.parametrize(("words", "variables"), LOCAL)
def test_a_check(machine: Machine, words: tuple[str, ...], variables: dict[str, str]) -> None:
    for command in (("check", *RUN), ("check", "--print", "environment")):
        assert machine(*command, *words, **variables).returncode == 0
    assert not machine.calls.exists(), machine.calls.read_text()


def test_a_run_from_submission_to_report(machine: Machine) -> None:
    inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}  # a terminal inside a job
    inside["SECONDS"] = "90000"  # from there bash counts, as behind a clock that was set a day forward
    run_dir = machine.folder / "run"
    done = machine("submit", *RUN, "--system", "local", "--run-dir", str(run_dir), **inside)
    assert (done.returncode, done.stdout) == (0, "VALID\n"), done.stderr
    assert json.loads((run_dir / "outcome.json").read_text())["sources"]["local"] is None
    for command in ("sync", "watch", "measure", "report"):
        told = machine(command, str(run_dir), **inside)
        assert told.returncode == 0, (command, told.stderr)
        assert command != "measure" or "job_elapsed: 00:0" in told.stdout, told.stdout
    assert not machine.calls.exists(), machine.calls.read_text()


def test_a_recorded_run_that_does_not_end_well_gives_people_1_and_jube_0(machine: Machine) -> None:
    assert machine("check", *RUN, "--system", "local", "--output", "made").returncode == 0
    words = ("submit", "--run", "made/run.json", "--chain", "2", "--run-dir")
    for folder, further, code in (("run", (), 1), ("step", ("--jube-step",), 0)):
        for _ in ("trained", "asked again"):
            done = machine(*words, folder, *further, NLP_BENCH_STUB="exit 3")
            assert done.stdout.startswith("FAILED: exit status 3"), done.stderr
            assert done.returncode == code
    assert not machine.calls.exists(), machine.calls.read_text()


def test_where_nothing_is_named_the_remedy_is(machine: Machine) -> None:
    """Not to ask is not "there is none": on a login node a training must not start by itself."""
    done = machine("submit", *RUN, "--run-dir", str(machine.folder / "run"))
    assert done.returncode == 2
    assert "Unable to contact slurm controller" in done.stderr
    assert "or train on this machine, which needs no Slurm: --system local (tag local)" in done.stderr


def test_another_machine_is_checked_all_the_same(machine: Machine) -> None:
    done = machine("check", "--model", "13", "--system", "juwels-booster")
    assert done.returncode == 0, done.stderr
    assert "no Slurm answers here: partition, nodes and time limit were not asked for" in done.stderr


MODULE = """() {
  if [[ $1 == purge ]]; then export LOADEDMODULES=; return; fi
  if [[ $2 == CUDA/12.6 ]]; then echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for '$2'" >&2; return 0; fi
  export LOADEDMODULES=$LOADEDMODULES:$2/13.2
}"""


@pytest.mark.parametrize(
    ("loads", "lacks", "loaded"),
    [
        (MODULE, "CUDA/12.6", "GCC/13.2"),
        ("() { :; }", "GCC, CUDA/12.6", "none"),  # Lmod's program is not on the node
        (MODULE.replace("return;", "return 1;"), "CUDA/12.6", "GCC/13.2"),  # a sticky module stays
    ],
)
def test_a_module_that_is_missing_is_said_where_the_module_system_calls_it_no_failure(
    machine: Machine, loads: str, lacks: str, loaded: str
) -> None:
    """Modules 3.2 prints an error and ends with status 0: the run was VALID with the software of the system, and no word of it."""
    run = stub_run("ok", launcher="local")
    software = replace(run.system.software, modules=("GCC", "CUDA/12.6"))
    record = replace(run, system=replace(run.system, software=software)).write(machine.folder)
    run_dir = machine.folder / "run"
    done = machine("submit", "--run", str(record), "--run-dir", str(run_dir), **{"BASH_FUNC_module%%": loads})
    outcome = json.loads((run_dir / "outcome.json").read_text())
    assert outcome["outcome"] == "VALID", done.stderr
    said = f"the job asked for {lacks}, which the module system did not load (loaded: {loaded}); job.err may say why"
    assert outcome["reasons"] == [said]
    assert outcome["codes"] == ["missing-module"]
