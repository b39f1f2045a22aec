"""An srun that starts no rank gets a second try inside the job: proven by records, never by its words, and never beside a training."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sandbox import Sandbox
from support.shims import shim

from faults import stand_in
from nlp_bench.cli.main import main
from nlp_bench.config.run import Run

Stub = Callable[..., Run]
NO_STEP = "srun: error: Unable to create step for job 7: Unspecified error"
ONCE = "mkdir {0}/tried 2> /dev/null"


class Started:
    """A run on Slurm whose job has the wrapper of srun that a test wants."""

    def __init__(self, slurm: Sandbox, run: Run, folder: Path, before: str, after: str = "") -> None:
        self.slurm, self.run_dir, self.tools = slurm, folder / "run", folder / "tools"
        folder.mkdir()
        count = f"echo called >> '{self.tools}/calls'\n"
        path = shim(self.tools, "srun", count + before.replace("{0}", str(self.tools)), after)
        words = stand_in.submit(run.write(folder), self.run_dir)
        environment = {**slurm.environment, "PATH": path}
        command = [sys.executable, "-m", "nlp_bench", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr

    def ended(self) -> dict[str, Any]:
        """Wait for the outcome and return it."""
        path = self.run_dir / "outcome.json"
        self.slurm.until(path.exists, f"outcome of {self.run_dir}", bound_s=240)
        record: dict[str, Any] = json.loads(path.read_text())
        return record

    def iterations(self) -> list[str]:
        return re.findall(r"iteration +(\d+)/", (self.run_dir / "job.out").read_text())

    def num_calls(self) -> int:
        return len((self.tools / "calls").read_text().splitlines())


def tries(record: dict[str, Any]) -> list[tuple[int, str, int | None]]:
    return [(one["start"], one["by"], one["exit_status"]) for one in record["starts"]]


@pytest.mark.slurm
def test_srun_gets_a_second_try_only_where_nothing_began(slurm: Sandbox, stub_run: Stub, tmp_path: Path) -> None:
    slow = stub_run("slow 4", "--mem=200", timelimit="00:05:00")
    fine = stub_run("ok", "--mem=200", timelimit="00:05:00")
    late = "(sleep 11; SLURM_OVERLAP=1 SLURM_MEM_PER_NODE=0 '{real}' \"$@\") &\nexit 5"
    runs = {
        "once": Started(slurm, fine, tmp_path / "once", f"if {ONCE}; then echo nonsense >&2; exit 3; fi"),
        "always": Started(slurm, fine, tmp_path / "always", "exit 4"),
        "trained": Started(slurm, fine, tmp_path / "trained", "", f"echo '{NO_STEP}' >&2; exit 1"),
        "late": Started(
            slurm, slow, tmp_path / "late", f"if {ONCE}; then {late.format(real=slurm('which', 'srun').strip())}; fi"
        ),
    }
    told = {name: one.ended() for name, one in runs.items()}
    all_iterations = ["1", "2", "3", "4"]

    assert (told["once"]["outcome"], tries(told["once"])) == ("VALID", [(1, "script", 3), (2, "ranks", None)])
    assert (
        "srun started no rank on any node (exit status 3); the next try, in the same job, did"
        in told["once"]["reasons"]
    )
    assert (runs["once"].num_calls(), runs["once"].iterations()) == (2, all_iterations)

    assert (told["always"]["outcome"], tries(told["always"])) == ("FAILED", [(1, "script", 4), (2, "script", 4)])
    assert "srun started no rank on any node (exit status 4, 4)" in told["always"]["reasons"]
    assert (runs["always"].num_calls(), told["always"]["exit_status"]) == (2, 4)

    assert tries(told["trained"]) == [(1, "ranks", None)]  # whatever srun says behind it
    assert (runs["trained"].num_calls(), runs["trained"].iterations()) == (1, all_iterations)

    assert (told["late"]["outcome"], tries(told["late"])) == ("VALID", [(1, "script", 5), (2, "ranks", None)])
    assert runs["late"].iterations() == all_iterations
    assert "began after srun had ended: another one trains" in (runs["late"].run_dir / "job.err").read_text()


@pytest.mark.slurm
def test_a_controller_that_dies_before_the_step_costs_no_job(slurm: Sandbox, stub_run: Stub, tmp_path: Path) -> None:
    """The real srun's own failure: it gives up while the controller is away."""
    run = stub_run("ok", "--mem=200", timelimit="00:10:00")
    pid = slurm.controller()
    gone = f"kill {pid}; while kill -0 {pid} 2> /dev/null; do sleep 0.1; done"  # killed by 9, it may not have saved that the job runs
    started = Started(slurm, run, tmp_path / "away", f"if {ONCE}; then {gone}; fi")
    err = started.run_dir / "job.err"

    def come_back() -> None:
        slurm.until(lambda: err.exists() and "srun: error" in err.read_text(), "words of srun", bound_s=180)
        slurm.start_controller()

    thread = threading.Thread(target=come_back)
    thread.start()
    told = started.ended()
    thread.join()
    assert (told["outcome"], [one["by"] for one in told["starts"]]) == ("VALID", ["script", "ranks"]), err.read_text()
    assert started.iterations() == ["1", "2", "3", "4"]


@pytest.fixture
def job(stub_run: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run whose script stands behind its srun, as job 7 on node1, of ten minutes."""
    stub_run("ok", timelimit="00:10:00").write(tmp_path)
    monkeypatch.setattr("nlp_bench.launch.starts.PAUSE_S", 0.0)
    answer = 'echo "JobId=7 JobState=${STATE:-RUNNING} Restarts=${RESTARTS:-0} BatchHost=${HOST:-node1}"; exit'
    monkeypatch.setenv("PATH", shim(tmp_path / "tools", "scontrol", answer))
    for name, value in {"NLP_BENCH_START": "7-0-1-1-1", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node1"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "elapsed_s", "is_again", "said"),
    [
        ({}, 100, True, "it is tried again"),
        ({}, 400, False, "200 s of its time are left, 300 s are needed"),
        ({"NLP_BENCH_START": "7-0-1-1-2"}, 100, False, "it was the last try"),
        ({"STATE": "COMPLETING"}, 100, False, "the job no longer runs here (Slurm: COMPLETING)"),
        ({"STATE": "PENDING"}, 100, False, "the job no longer runs here (Slurm: PENDING)"),
        ({"STATE": "CANCELLED"}, 100, False, "the job no longer runs here (Slurm: CANCELLED)"),
        ({"HOST": "node2"}, 100, False, "the job no longer runs here"),
        ({"RESTARTS": "1"}, 100, False, "the job no longer runs here"),
        ({"NLP_BENCH_START": ""}, 100, False, ""),
    ],
)
def test_when_a_second_try_makes_sense(  # a row of the table
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    changed: dict[str, str], elapsed_s: int, is_again: bool, said: str,
) -> None:  # fmt: skip
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    code = main(["launch", "--again", "1", "--elapsed", str(elapsed_s), str(job)])
    assert code == (0 if is_again else 1)
    assert said in capsys.readouterr().err


def test_a_prediction_says_how_much_time_is_needed(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job / "forecast.json").write_text('{"iterations_s": 250}')
    assert main(["launch", "--again", "1", "--elapsed", "100", str(job)]) == 1
    assert "500 s of its time are left, 550 s are needed" in capsys.readouterr().err


def test_a_start_that_has_begun_is_not_repeated_and_one_given_up_does_not_begin(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nlp_bench.orphans.die_with_parent", lambda: None)
    monkeypatch.setattr("nlp_bench.launch.nodes.supervise.supervise", lambda *_, **__: pytest.fail("it trains"))
    assert main(["launch", "--again", "1", str(job)]) == 0
    assert main(["launch", str(job)]) == 1
    assert "began after srun had ended" in capsys.readouterr().err
    monkeypatch.setenv("NLP_BENCH_START", "7-0-2-2-1")
    (job / "starts/7-0-2-2-1.json").write_text('{"by": "ranks"}')
    assert main(["launch", "--again", "1", str(job)]) == 1
    (job / "starts/7-0-2-2-1.json").write_text("")  # cut off: who began is not known
    assert main(["launch", "--again", "1", str(job)]) == 1
    assert "says who has begun this start; nothing is started" in capsys.readouterr().err
