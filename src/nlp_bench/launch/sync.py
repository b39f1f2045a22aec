"""Bring the record of a run up to date with what Slurm says of its job."""

import os
import socket
import time
from pathlib import Path
from typing import Any

from nlp_bench.config.run import read_run
from nlp_bench.launch import chain, slurm
from nlp_bench.launch.ending import Ending, decide, read_ending, write_ending
from nlp_bench.launch.folder import read_submission
from nlp_bench.launch.states import DONE, GONE, RUNNING, WAITING, meaning
from nlp_bench.outcome import Outcome

GONE_S = 300
"""Seconds for which Slurm must answer "not there" before a job without a record counts as lost."""
SILENT = "Slurm does not answer"
SILENT_S = 6 * 3600
"""Seconds after which `sync --wait` gives up on a Slurm that does not answer; the next sync takes over."""


def sync(run_dir: Path, *, exit_status: int | None = None, signalled: bool = False) -> tuple[Ending | None, str]:
    """Return the run's ending, deciding and writing it when the job has ended, and a word on its state.

    `exit_status` is given by the job script itself at its end, and `signalled` where it was told to stop; without them
    Slurm is asked.
    """
    ending = read_ending(run_dir)
    if ending is not None:
        return ending, "ended"
    run = read_run(run_dir)
    submission = read_submission(run_dir)
    job_id = submission["job_id"] if submission else None
    job = (
        chain.look(submission) if job_id and exit_status is None else None
    )  # while its script speaks, Slurm knows no more
    if exit_status is None:
        if submission is None:
            return None, "not submitted"
        waiting = _still_going(submission, job)
        if waiting:
            return None, waiting
        exit_status = job.exit_status if job and meaning(job.state) in {DONE, Outcome.FAILED} else None
    ending = decide(run, run_dir, exit_status=exit_status, state=job.state if job else None, signalled=signalled)
    if job is not None and job.state == GONE and ending.outcome is Outcome.UNKNOWN and not _long_gone(run_dir):
        return None, "Slurm does not know the job; waiting in case its record is late"
    own_id = os.environ.get("SLURM_JOB_ID") if exit_status is not None else None
    others = chain.rest(submission, own_id)
    num_left = len(others) or chain.parts_left(submission)
    if num_left and ending.outcome not in chain.FINAL:
        return None, f"one job of the chain has ended ({ending.text()}), {num_left} will go on"
    slurm.cancel(others)
    write_ending(run_dir, ending, exit_status=exit_status, job_id=own_id or job_id)
    return ending, "ended"


def _still_going(submission: dict[str, Any], job: slurm.Job | None) -> str | None:
    """Return a word on a run that has not ended, None for one that has."""
    if job is not None:
        if job.state == GONE or meaning(job.state) not in {WAITING, RUNNING, Outcome.UNKNOWN}:
            return None
        return f"{job.state} ({job.reason})" if job.reason not in {"", "None"} else job.state
    if submission["job_id"]:
        return SILENT
    if submission.get("host") != socket.gethostname():
        return f"running on {submission.get('host')}"
    return "running here" if Path(f"/proc/{submission.get('pid')}").exists() else None


def _long_gone(run_dir: Path) -> bool:
    """Whether the run's files have rested for GONE_S: a record that is late would have come by then."""
    newest = max(path.stat().st_mtime for path in (run_dir / "submit.json", run_dir / "job.out") if path.exists())
    return time.time() - newest > GONE_S


def wait(run_dir: Path, *, poll_s: float) -> Ending | None:
    """Poll until the run has ended; return None when its folder has gone, or Slurm was silent for SILENT_S.

    The time between two questions grows from 5 s to `poll_s`, so that a sweep does not burden the controller.
    """
    last_answer = time.monotonic()
    pause_s = min(5.0, poll_s)
    while run_dir.is_dir():
        ending, state = sync(run_dir)
        if ending is not None:
            return ending
        if state != SILENT:
            last_answer = time.monotonic()
        if time.monotonic() - last_answer > SILENT_S:
            break
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, poll_s)
    return None
