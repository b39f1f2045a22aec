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
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch import folder, slurm
from nlp_bench.launch.ending import decide, read_ending, write_ending

GRACE_S = 30
"""Seconds that a stopped local run has to end by itself."""


def submit(run: Run, script: Path, *, follow: bool, chain: int = 1) -> list[str]:
    """Start the run, as a `chain` of jobs; return Slurm's job ids, none for a run that was done here and has ended.

    With `follow`, a detached `nlp-bench sync --wait` turns the end of the job into outcome.json and JUBE's marker even
    where the job itself cannot: cancelled while pending, node lost, killed.
    """
    run_dir = script.parent
    if run.launch.launcher == "slurm" and not _holds_allocation(run):
        job_ids = _queue(run, script, chain)
        if follow:
            _follow(run_dir)
        return job_ids
    held = os.environ.get("SLURM_JOB_ID")
    for left in reversed(range(chain)):
        folder.write_submission(run_dir, [held] if held else [], parts_left=left)
        try:
            _run_here(run, script, is_last=left == 0)
        except SystemExit:
            _record(
                run, run_dir, exit_status=128 + signal.SIGTERM, signalled=True
            )  # the script left it to the parts behind it
            raise
        if read_ending(run_dir) is not None:
            break
    return []


def _queue(run: Run, script: Path, chain: int) -> list[str]:
    """Hand all jobs of the chain to Slurm; each is recorded at once, for the first may run and end before the last is queued."""
    job_ids: list[str] = []
    try:
        for part in range(1, chain + 1):
            job_ids.append(slurm.submit(script, run.launch.account, part=part))
            folder.write_submission(script.parent, job_ids, parts_left=chain - part)
    except NlpBenchError as error:
        if not job_ids:
            raise
        folder.write_submission(script.parent, job_ids)
        raise NlpBenchError(
            f"--chain: {len(job_ids)} of {chain} jobs are queued ({' '.join(job_ids)}) and stay; then: {error}"
        ) from error
    return job_ids


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


def _run_here(run: Run, script: Path, *, is_last: bool) -> None:
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
    if is_last:
        _record(run, run_dir, exit_status=status)


def _record(run: Run, run_dir: Path, *, exit_status: int, signalled: bool = False) -> None:
    """Write how the run ended, where its script could not."""
    if read_ending(run_dir) is None:
        ending = decide(run, run_dir, exit_status=exit_status, state=None, signalled=signalled)
        write_ending(run_dir, ending, exit_status=exit_status, job_id=None)


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
