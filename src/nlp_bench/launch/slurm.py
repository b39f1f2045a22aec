"""Slurm's commands: submit a script, ask for a job. "Cannot ask" and "not there" are kept apart."""

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from nlp_bench.config.machine import scontrol_field
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.states import GONE

ASK_TIMEOUT_S = 20
SUBMIT_TIMEOUT_S = 120


@dataclass(frozen=True, kw_only=True)
class Job:
    """What Slurm says of one job."""

    state: str
    """Its word for the state; GONE where Slurm answers but no longer knows the job."""
    reason: str
    """Why it waits or ended, in Slurm's word."""
    exit_status: int | None
    """Exit status of the job script; None while it runs."""


def submit(script: Path, account: str, *, part: int = 1) -> str:
    """Hand `script` to sbatch, from its folder, and return the job id.

    SBATCH_* variables are taken out of the environment, because they would silently override the script's lines;
    SBATCH_ACCOUNT stays where the run names no account. A job of the same folder that Slurm knows already, submitted
    by a process that died before it could record it, is taken over; the `part`s of a chain are told apart. Raises
    NlpBenchError quoting sbatch.
    """
    comment = (
        "nlp-bench:" + hashlib.sha256(str(script.parent).encode()).hexdigest()[:16] + (f"-{part}" if part > 1 else "")
    )
    earlier = _earlier(comment)
    if earlier:
        return earlier
    kept = set() if account else {"SBATCH_ACCOUNT"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SBATCH_") or name in kept}
    command = ["sbatch", "--parsable", f"--comment={comment}", script.name]
    try:
        done = subprocess.run(
            command,
            cwd=script.parent,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SUBMIT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NlpBenchError(
            f"sbatch did not answer ({error}); look with `squeue --me` before submitting again"
        ) from error
    found = re.search(r"^(\d+)(;\S+)?$", done.stdout, re.MULTILINE)
    if done.returncode or not found:
        said = (done.stderr or done.stdout).strip()
        raise NlpBenchError(f"sbatch refused {script}: {said}; nothing was submitted")
    return found.group(1)


def _earlier(comment: str) -> str | None:
    """Return the newest job of this user with this comment; None also where Slurm does not answer (sbatch will tell)."""
    code, out, _ = _run("squeue", "--me", "--noheader", "--format=%i %k")
    found = [line.split()[0] for line in out.splitlines() if line.split()[1:] == [comment]] if code == 0 else []
    return max(found, key=int, default=None)


def cancel(job_ids: list[str]) -> None:
    """Take jobs out of the queue; a Slurm that does not answer is no error: they would end by themselves."""
    if job_ids:
        _run("scancel", *job_ids)


def look(job_id: str) -> Job | None:
    """Ask Slurm for a job: scontrol first, then sacct. None means that Slurm does not answer at present."""
    code, out, err = _run("scontrol", "show", "job", job_id, "--oneliner")
    if code == 0 and "JobState=" in out:
        return Job(
            state=scontrol_field(out, "JobState"),
            reason=scontrol_field(out, "Reason"),
            exit_status=_status(scontrol_field(out, "ExitCode")),
        )
    if "Invalid job id" not in err:
        return None
    code, out, err = _run("sacct", "-X", "-n", "-P", "-j", job_id, "-o", "State,ExitCode")
    if code and "accounting storage is disabled" not in err:
        return None
    if code == 0 and "|" in out:
        state, exit_code = out.splitlines()[0].split("|")[:2]
        return Job(state=state, reason="", exit_status=_status(exit_code))
    return Job(state=GONE, reason="", exit_status=None)


def _run(*command: str) -> tuple[int, str, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ASK_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 255, "", str(error)
    return done.returncode, done.stdout, done.stderr


def _status(exit_code: str) -> int | None:
    """Return one shell-like status from Slurm's "status:signal"; a signal becomes 128 + its number."""
    found = re.fullmatch(r"(\d+):(\d+)", exit_code)
    if not found:
        return None
    return int(found.group(1)) or (128 + int(found.group(2)) if int(found.group(2)) else 0)
