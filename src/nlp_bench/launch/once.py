"""Hand a job script to a scheduler exactly once, whatever is killed or late in between.

Before the scheduler is called, submit.json holds the comment that the job will carry. A `submit` that finds such an intent without a
number asks the scheduler for that comment, among jobs that wait, run or have ended, before it submits again.
"""

import datetime as dt
import hashlib
import os
import secrets
import time
from pathlib import Path

from nlp_bench.config.scheduler import Job, Scheduler, State, UnsureError, patiently
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import real
from nlp_bench.launch.submission import Submission

SETTLE_S = 3.0
"""Seconds between two answers "not there": a request that the scheduler had received but not yet worked on has become a job by then."""
CLOCKS = dt.timedelta(hours=2)
"""How far the scheduler's clock, and a change to winter time, may be from this machine's."""
REUSED = "its number is another job's by now"
"""Our own reason of a job that is GONE."""


def new_comment(run_dir: Path) -> str:
    """Return a comment for the jobs of a submission: by folder, and unlike that of any earlier one in a folder of this name."""
    return f"{folder_comment(run_dir)}-{secrets.token_hex(4)}"


def folder_comment(run_dir: Path) -> str:
    """Return what the comments of all jobs of this folder begin with."""
    return "nlp-bench:" + hashlib.sha256(os.fsencode(run_dir)).hexdigest()[:16]


def may_act(run_dir: Path, submission: Submission, own_id: str | None = None) -> bool:
    """Whether this user submitted the run, from this very folder, or this is its job `own_id`: only then jobs are submitted or cancelled for it.

    A folder that another user wrote, or that came in an archive, names a script and job ids that are not ours to use.
    """
    if own_id is not None:
        return True
    paths = [run_dir, *(run_dir / name for name in ("run.json", "submit.json", "submit.job"))]
    owners = {path.lstat().st_uid for path in paths if os.path.lexists(path)}
    return owners == {os.geteuid()} and (submission.comment or "").startswith(folder_comment(real(run_dir)))


def part_comment(comment: str, part: int) -> str:
    """Return the comment of one job of a chain."""
    return comment if part == 1 else f"{comment}-{part}"


def find(scheduler: Scheduler, comment: str, *, may_be_late: bool) -> str | None:
    """Return the job with exactly this comment, None where the scheduler answers that there is none.

    With `may_be_late`, it must say so twice, SETTLE_S apart. Raises SilentError where it does not answer for a while.
    """
    for look in range(2 if may_be_late else 1):
        if look:
            time.sleep(SETTLE_S)
        for number, said in patiently(scheduler, lambda: scheduler.jobs(ended=True)):
            if said == comment:
                return number
    return None


def active(scheduler: Scheduler, run_dir: Path) -> list[str]:
    """Return the jobs of this folder that wait or run, whatever submission they are of; their record was lost."""
    jobs = patiently(scheduler, lambda: scheduler.jobs(ended=False))
    return [number for number, said in jobs if said.startswith(folder_comment(run_dir))]


def hand_over(scheduler: Scheduler, script: Path, *, account: str, comment: str, lock: int) -> str:
    """Submit `script` and return the job's number; a job that was made without a word is found by its comment.

    `lock` is the descriptor of the folder's lock, which the scheduler's command keeps should this process be killed. Raises SilentError
    where it is not known whether there is a job, another NlpBenchError where there is none.
    """
    try:
        return scheduler.submit(script, account=account, comment=comment, lock=lock)
    except UnsureError as error:
        job_id = find(scheduler, comment, may_be_late=True)
        if job_id is None:
            raise NlpBenchError(
                f"{error}; {scheduler.title} has no job of {script}: nothing was submitted; repeat the same command"
            ) from error
        return job_id


def ours(job: Job | None, submission: Submission | None) -> Job | None:
    """Return `job`, or a GONE one in its place where another run's job has the number.

    A controller that was killed may have lost its last jobs, whose numbers it then gives away again, and accounting keeps the jobs of
    before. A job of ours carries the submission's comment, or was submitted from its folder; where neither is known, it is at least
    not older than the submission; else the number has to do.
    """
    if job is None or submission is None or not submission.comment:
        return job
    comment = submission.comment
    if job.comment or job.work_dir:
        is_ours = job.comment.startswith(comment) or comment.startswith(folder_comment(Path(job.work_dir)))
    else:
        is_ours = job.submitted is None or not _is_older(job.submitted, submission.submitted)
    if is_ours:
        return job
    return Job(state=State.GONE, reason=REUSED, job_id=job.job_id, source=job.source)


def _is_older(submitted: dt.datetime, ours: str) -> bool:
    """Whether a job was submitted, in local time, before a submission of ours, whose time has an offset."""
    try:
        return submitted < dt.datetime.fromisoformat(ours).astimezone().replace(tzinfo=None) - CLOCKS
    except (ValueError, OverflowError):
        return False
