"""Exactly once, for real: submits that are killed, doubled or unlucky with Slurm's controller leave one job, one training."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import NLP_BENCH, processes_with, surroundings, text_of, until
from support.sandbox import Sandbox
from support.shims import shim

from faults import stand_in
from nlp_bench.config.run import Run

Stub = Callable[..., Run]
pytestmark = [pytest.mark.slurm]


class Submit:
    """`nlp-bench submit` of one prepared run, as JUBE calls it."""

    def __init__(self, run: Run, folder: Path, environment: dict[str, str]) -> None:
        self.record, self.run_dir, self.environment = run.write(folder), folder / "run", environment

    def start(self, path: str | None = None) -> "subprocess.Popen[str]":
        words = [*NLP_BENCH, *stand_in.submit(self.record, self.run_dir, "--jube-step")]
        return subprocess.Popen(
            words, env={**self.environment, "PATH": path or os.environ["PATH"]}, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def __call__(self, bound_s: float = 60) -> str:
        with self.start() as process:
            out, err = process.communicate(timeout=bound_s)
            assert process.returncode == 0, err
        return out

    def iterations(self) -> list[int]:
        """Return the iterations of job.out in its order."""
        return [int(n) for n in re.findall(r"iteration +(\d+)/", text_of(self.run_dir / "job.out"))]

    def until(self, condition: Callable[[], object], bound_s: float = 180) -> None:
        until(condition, bound_s, lambda: "\n".join(p.read_text() for p in self.run_dir.glob("job.*")))

    def outcome(self) -> str:
        return str(json.loads((self.run_dir / "outcome.json").read_text())["outcome"])


def kill(process: "subprocess.Popen[str]", *, group: bool = False) -> None:
    if group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()


@pytest.fixture
def environment() -> dict[str, str]:
    return surroundings()


def test_a_killed_local_submit_takes_its_training_along(
    stub_run: Stub, tmp_path: Path, environment: dict[str, str]
) -> None:
    submit = Submit(stub_run("hang", launcher="local"), tmp_path, environment)
    first = submit.start()
    submit.until(submit.iterations)
    kill(first)
    submit.until(lambda: not processes_with(str(submit.run_dir)))
    assert submit.outcome() == "FAILED"
    reason = "the launcher was killed, or could not write: nlp-bench submit (process "
    assert submit().startswith(f"FAILED: {reason}{first.pid}) ended before its training")
    assert submit.iterations() == [1, 2]  # it was told, and not begun again


def test_what_the_script_of_a_killed_submit_leaves_is_ended(
    stub_run: Stub, tmp_path: Path, environment: dict[str, str]
) -> None:
    """A script that is stopped, as by a file system that hangs, cannot end by itself; nor can one that is killed tell anything."""
    submit = Submit(stub_run("hang", launcher="local"), tmp_path, environment)
    first = submit.start()
    submit.until(submit.iterations)
    script = json.loads((submit.run_dir / "submit.json").read_text())["script_pid"]
    os.kill(script, signal.SIGSTOP)
    kill(first)
    assert submit().startswith("FAILED: the launcher was killed")
    assert submit.iterations() == [1, 2]
    submit.until(lambda: not processes_with(str(submit.run_dir)))


@pytest.mark.usefixtures("newer_jube")
@pytest.mark.jube
def test_jube_killed_alone_joins_its_local_submit(
    stub_run: Stub, jube_file: Callable[..., Path], environment: dict[str, str]
) -> None:
    yaml = jube_file(one=stub_run("slow 1", launcher="local"))
    words = ["jube", "run", str(yaml), "--hide-animation"]
    first = subprocess.Popen(words, cwd=yaml.parent, env=environment, stdout=subprocess.DEVNULL, text=True)
    log = yaml.parent / "runs/000000/000000_train/work/job.out"
    until(lambda: "iteration " in text_of(log), 30)
    kill(first)
    words = ["jube", "continue", str(yaml.parent / "runs"), "--id", "last", "--hide-animation"]
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=60)
    words = ["jube", "status", str(yaml.parent / "runs"), "--id", "last"]
    status = subprocess.run(words, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout
    assert status.split()[-1] == "FINISHED"
    assert re.findall(r"iteration +(\d+)/", log.read_text()) == ["1", "2", "3", "4"]
    assert json.loads((log.parent / "outcome.json").read_text())["outcome"] == "VALID"


def test_two_local_submits_train_once(stub_run: Stub, tmp_path: Path, environment: dict[str, str]) -> None:
    submit = Submit(stub_run("slow 0.5", launcher="local"), tmp_path, environment)
    first, second = submit.start(), submit.start()
    for process in (first, second):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "VALID\n"), err
    assert submit.iterations() == [1, 2, 3, 4]
    log = (submit.run_dir / "job.out").read_bytes()
    assert (
        submit() == "VALID\n"
    )  # JUBE that was interrupted behind the submission repeats it: it must neither start again nor fail
    assert (submit.run_dir / "job.out").read_bytes() == log


def jobs_of(slurm: Sandbox, run_dir: Path) -> set[str]:
    """Return all jobs of the folder that Slurm has ever had."""
    lines = slurm("squeue", "--states=all", "--noheader", "--Format=JobID:20,WorkDir:300").splitlines()
    return {line.split()[0] for line in lines if line.split()[1] == str(run_dir)}


@pytest.mark.parametrize(("before", "after"), [("sleep 2", ""), ("", "sleep 3"), ("", 'touch "$OUT"; sleep 5')])
def test_a_killed_submit_leaves_one_job(
    slurm: Sandbox, stub_run: Stub, tmp_path: Path, before: str, after: str
) -> None:
    """Killed before Slurm has the job, while it gets it, and behind it (there with its process group; sbatch ends by itself, and has the lock)."""
    submit = Submit(stub_run("ok"), tmp_path, {**slurm.environment, "OUT": str(tmp_path / "out")})
    first = submit.start(shim(tmp_path / "bin", "sbatch", before, after))
    group = "OUT" in after
    submit.until((tmp_path / "out").exists if group else (submit.run_dir / "submit.json").exists)
    kill(first, group=group)
    printed = submit()
    (job,) = jobs_of(slurm, submit.run_dir)
    assert printed in {f"Submitted batch job {job}\n", "VALID\n"}  # by then the job may have ended
    assert submit() in {printed, "VALID\n"}
    submit.until((submit.run_dir / "outcome.json").exists)
    assert submit.outcome() == "VALID"
    assert submit.iterations() == [1, 2, 3, 4]


def test_two_submits_at_once_make_one_job(slurm: Sandbox, stub_run: Stub, tmp_path: Path) -> None:
    submit = Submit(stub_run("ok"), tmp_path, slurm.environment)
    path = shim(tmp_path / "bin", "sbatch", "sleep 1")
    processes = [submit.start(path) for _ in range(3)]
    printed = {process.communicate(timeout=60)[0] for process in processes}
    (job,) = jobs_of(slurm, submit.run_dir)
    assert printed == {f"Submitted batch job {job}\n"}


@pytest.mark.jube
def test_a_marker_made_by_hand_fools_nobody(slurm: Sandbox, stub_run: Stub, jube_file: Callable[..., Path]) -> None:
    """JUBE believes it; the row says that the run goes on, and gets its outcome later."""
    yaml = jube_file(held=stub_run("hang"))
    runs = yaml.parent / "runs"
    slurm("jube", "run", str(yaml), "--hide-animation")
    run_dir = runs / "000000/000000_train/work"
    (run_dir / "ready").touch()
    slurm("jube", "continue", str(runs), "--id", "last", "--hide-animation")
    assert slurm("jube", "status", str(runs), "--id", "last").split()[-1] == "FINISHED"
    assert "UNKNOWN,\n" in slurm("jube", "result", "-a", str(runs), "--id", "last")
    assert not (run_dir / "ready").exists()
    text = next(runs.rglob("metrics.txt")).read_text()
    (again,) = re.findall(r"when it has ended: (nlp-bench measure .*?) and then jube result -a", text)
    slurm("scancel", json.loads((run_dir / "submit.json").read_text())["job_id"])
    slurm(*NLP_BENCH, "sync", "--wait", "--poll", "0.5", str(run_dir))
    measure_dir = next(runs.rglob("metrics.txt")).parent
    words = [*NLP_BENCH, *again.split()[1:]]
    subprocess.run(words, cwd=measure_dir, env=slurm.environment, check=True, capture_output=True)
    assert "CANCELLED" in slurm("jube", "result", "-a", str(runs), "--id", "last")


@pytest.mark.jube
def test_two_jube_continues_make_one_job(slurm: Sandbox, stub_run: Stub, jube_file: Callable[..., Path]) -> None:
    """JUBE is killed while sbatch is slow; then two people go on at once."""
    yaml = jube_file(once=stub_run("ok"))
    runs = yaml.parent / "runs"
    environment = {**slurm.environment, "PATH": shim(yaml.parent / "bin", "sbatch", "sleep 1", "sleep 1")}
    first = subprocess.Popen(
        ["jube", "run", str(yaml), "--hide-animation"], env=environment, start_new_session=True, cwd=yaml.parent,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    run_dir = runs / "000000/000000_train/work"
    until((run_dir / "submit.json").exists, 30)
    kill(first, group=True)
    words = ["jube", "continue", str(runs), "--id", "last", "--hide-animation"]
    both = [
        subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len(jobs_of(slurm, run_dir)) == 1


def test_a_controller_that_is_late_makes_one_job(slurm: Sandbox, stub_run: Stub, tmp_path: Path) -> None:
    """It is stopped while sbatch waits for it, and works on what it has received once it goes on: with `submit` killed by then."""
    submit = Submit(stub_run("ok"), tmp_path, slurm.environment)
    os.kill(slurm.controller(), signal.SIGSTOP)
    try:
        # The look before sbatch is answered.
        path = shim(tmp_path / "bin", "squeue", "echo 'nlp-bench|JOBID|WORK_DIR|nlp-bench|COMMENT'; exit")
        first = submit.start(path)
        submit.until((submit.run_dir / "submit.json").exists)
        time.sleep(1)  # sbatch has sent its request
        kill(first, group=True)
        second = submit.start()
        time.sleep(2)
        assert second.poll() is None  # it asks, and does not submit
    finally:
        os.kill(slurm.controller(), signal.SIGCONT)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    (job,) = jobs_of(slurm, submit.run_dir)
    assert out == f"Submitted batch job {job}\n"
