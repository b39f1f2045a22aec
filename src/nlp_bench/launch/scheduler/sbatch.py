"""Hand a job script to Slurm exactly once, whatever is killed or late in between.

Before sbatch is called, submit.json holds the comment that the job will carry. A `submit` that finds such an intent without a
number asks Slurm for that comment, among jobs that wait, run or have ended, before it calls sbatch again.
"""

import hashlib
import os
import re
import secrets
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from nlp_bench.config.slurm_text import plain
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch import ambient
from nlp_bench.launch.scheduler import slurm

SUBMIT_TIMEOUT_S = 120
SETTLE_S = 3.0
"""Seconds between two answers "not there": a request that Slurm had received but not yet worked on has become a job by then."""
UNSURE = re.compile(r"contact|timed out|connection|socket|zero bytes|communication|unexpected message", re.IGNORECASE)
"""What sbatch says where the controller may have taken the job all the same, for example "Socket timed out on send/recv operation"."""
PARSABLE = re.compile(r"\s*(\d+)(?:;\S+)?\s*")
"""All that sbatch prints with `--parsable`; a number among other lines may be anything, a project's balance for example."""
IN_WORDS = re.compile(r"^\s*Submitted batch job\s+(\d+)(?: on cluster \S+)?\s*$", re.MULTILINE)
"""The job's number as a wrapper of the site prints it that does not know the option."""


def new_comment(run_dir: Path) -> str:
    """Return a comment for the jobs of a submission: by folder, and unlike that of any earlier one in a folder of this name."""
    return f"{folder_comment(run_dir)}-{secrets.token_hex(4)}"


def folder_comment(run_dir: Path) -> str:
    """Return what the comments of all jobs of this folder begin with."""
    return "nlp-bench:" + hashlib.sha256(os.fsencode(run_dir)).hexdigest()[:16]


def part_comment(comment: str, part: int) -> str:
    """Return the comment of one job of a chain."""
    return comment if part == 1 else f"{comment}-{part}"


def find(comment: str, *, may_be_late: bool) -> str | None:
    """Return the job with exactly this comment, None where Slurm answers that there is none.

    With `may_be_late`, it must say so twice, SETTLE_S apart. Raises SilentError where it does not answer for a while.
    """
    for look in range(2 if may_be_late else 1):
        if look:
            time.sleep(SETTLE_S)
        for number, said in slurm.patiently(lambda: slurm.comments(ended=True)):
            if said == comment:
                return str(number)
    return None


def active(run_dir: Path) -> list[str]:
    """Return the jobs of this folder that wait or run, whatever submission they are of; their record was lost."""
    jobs = slurm.patiently(lambda: slurm.comments(ended=False))
    return [str(number) for number, said in jobs if said.startswith(folder_comment(run_dir))]


def submit(script: Path, account: str, comment: str, *, lock: int) -> str:
    """Hand `script` to sbatch, from its folder, and return the job id.

    SBATCH_* and SLURM_* variables are taken out of the environment, because they would silently override the lines of the script
    and the options of its srun; SBATCH_ACCOUNT stays where the run names no account. `lock` is the descriptor of the folder's lock, which sbatch keeps should
    this process be killed. Raises SilentError where it is not known whether Slurm has the job, NlpBenchError quoting sbatch
    where it has not.
    """
    environment = without_overrides(account, os.environ)
    command = ["sbatch", "--parsable", f"--comment={comment}", script.name]
    try:
        done = subprocess.run(
            command,
            cwd=script.parent,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=SUBMIT_TIMEOUT_S,
            pass_fds=(lock,),
        )
    except subprocess.TimeoutExpired:
        return _found(comment, script, f"sbatch did not answer within {SUBMIT_TIMEOUT_S:g} s")
    except OSError as error:
        raise NlpBenchError(f"sbatch cannot be started: {error.strerror}; nothing was submitted") from error
    said = (done.stderr or done.stdout).strip()
    shown = plain(done.stdout)
    is_unsure = UNSURE.search(said) or re.search(r"\d", shown)  # a number: a hook of the site failed behind sbatch
    if done.returncode and not is_unsure:
        raise NlpBenchError(f"sbatch refused {script}: {said}; nothing was submitted")
    numbers = set(IN_WORDS.findall(shown) or PARSABLE.findall(shown if PARSABLE.fullmatch(shown) else ""))
    if done.returncode == 0 and len(numbers) == 1:
        return str(numbers.pop())
    return _found(comment, script, f"sbatch said: {said or 'nothing'}")


def without_overrides(account: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return `variables` as sbatch is to see them: without those of jobs, but with SBATCH_ACCOUNT where the run names no account."""
    return ambient.without(variables, ambient.OF_JOBS, () if account else ("SBATCH_ACCOUNT",))


def _found(comment: str, script: Path, said: str) -> str:
    """Return the job that sbatch may have made without saying so."""
    job_id = find(comment, may_be_late=True)
    if job_id is None:
        raise NlpBenchError(f"{said}; Slurm has no job of {script}: nothing was submitted; repeat the same command")
    return job_id
