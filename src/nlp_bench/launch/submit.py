"""Hand a prepared run to Slurm, to the allocation that a person already holds, or to this machine."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from nlp_bench.clock import now
from nlp_bench.config.partition import seconds
from nlp_bench.config.run import Run
from nlp_bench.launch import folder, slurm
from nlp_bench.launch.ending import decide, read_ending, write_ending

GRACE_S = 30
"""Seconds that a stopped local run has to end by itself."""


def submit(run: Run, script: Path, *, follow: bool) -> str | None:
    """Start the run; return Slurm's job id, or None for a run that was done here and has ended.

    With `follow`, a detached `nlp-bench sync --wait` turns the end of the job into outcome.json and JUBE's marker even
    where the job itself cannot: cancelled while pending, node lost, killed.
    """
    run_dir = script.parent
    if run.launch.launcher == "slurm" and not _holds_allocation(run):
        job_id = slurm.submit(script, run.launch.account)
        folder.write_submission(run_dir, job_id)
        if follow:
            _follow(run_dir)
        return job_id
    folder.write_submission(run_dir, os.environ.get("SLURM_JOB_ID"))
    _run_here(run, script)
    return None


def _holds_allocation(run: Run) -> bool:
    """Whether we stand in an allocation of the run's size; a terminal inside some other job is none."""
    return os.environ.get("SLURM_JOB_NUM_NODES") == str(run.parallel.nodes)


def _follow(run_dir: Path) -> None:
    with (run_dir / "sync.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "nlp_bench", "sync", "--wait", str(run_dir)],
            cwd=run_dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )  # fmt: skip


def _run_here(run: Run, script: Path) -> None:
    run_dir = script.parent
    limit_s = seconds(run.launch.timelimit)
    with (run_dir / "job.out").open("ab") as out, (run_dir / "job.err").open("ab") as err:
        process = subprocess.Popen(
            ["bash", str(script)],
            cwd=run_dir,
            env={**os.environ, "SLURM_OVERLAP": "1"},  # the step of a person's own shell must not block ours
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        with _forwarding(process, run_dir):
            try:
                status = process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                status = _stop(process, run_dir, " DUE TO TIME LIMIT")
    if read_ending(run_dir) is None:
        write_ending(run_dir, decide(run, run_dir, exit_status=status, state=None), exit_status=status, job_id=None)


@contextlib.contextmanager
def _forwarding(process: "subprocess.Popen[bytes]", run_dir: Path):  # type: ignore[no-untyped-def]  # noqa: ANN202  # a context manager
    """End the run's whole process group when this process is asked to end; the outcome is then CANCELLED."""

    def handle(number: int, _frame: object) -> None:
        _stop(process, run_dir, "")
        raise SystemExit(128 + number)

    earlier = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, action in earlier.items():
            signal.signal(number, action)


def _stop(process: "subprocess.Popen[bytes]", run_dir: Path, cause: str) -> int:
    """Write the notice that Slurm would write, end the process group, and return the script's exit status."""
    with contextlib.suppress(OSError), (run_dir / "job.err").open("a", encoding="utf-8") as err:  # a full disk, say
        err.write(f"nlp-bench: *** JOB local CANCELLED AT {now()}{cause} ***\n")
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=GRACE_S)
    return process.wait()
