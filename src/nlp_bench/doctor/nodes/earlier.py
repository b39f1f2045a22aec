"""Jobs of this person's other tests of nodes: each carries who waits for it, so that one whose doctor was killed is found."""

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

from nlp_bench.launch.scheduler import slurm

PREFIX = "nlp-bench-doctor"
SETTLE_S = 3.0
"""Seconds until a request that Slurm had received has become a job."""


def new_comment() -> str:
    """Return the comment of this process's job: host, process, its start in clock ticks (Linux gives numbers anew), and a word."""
    return ":".join((PREFIX, socket.gethostname(), str(os.getpid()), _start(os.getpid()), secrets.token_hex(4)))


def clear(say: Callable[[str], None]) -> None:
    """Cancel the jobs of doctors that were killed on this host, and tell of those that somebody else may wait for."""
    with contextlib.suppress(slurm.SilentError):  # the submission will say so
        for job_id, comment in _jobs(PREFIX + ":"):
            _, host, pid, start, *_ = [*comment.split(":"), "", "", ""]
            if host != socket.gethostname():
                say(f"job {job_id} is of another doctor, on {host}; if nobody waits for it: scancel {job_id}")
            elif start and start == _start(pid):
                say(f"job {job_id} is of another doctor, process {pid}, which waits for it")
            else:
                slurm.cancel([job_id])
                say(f"job {job_id} of an earlier doctor, which was killed, is cancelled")


def late_jobs(comment: str) -> list[str]:
    """Return the jobs with this comment, those too that Slurm makes of a request it has only just received."""
    with contextlib.suppress(slurm.SilentError):
        found = [job_id for job_id, _ in _jobs(comment)]
        if not found:
            time.sleep(SETTLE_S)
            found = [job_id for job_id, _ in _jobs(comment)]
        return found
    return []


def _jobs(beginning: str) -> list[tuple[str, str]]:
    return [(str(number), said) for number, said in slurm.comments(ended=False) if said.startswith(beginning)]


def _start(pid: object) -> str:
    """Return when a process began (field 22 of proc(5)'s stat), empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
