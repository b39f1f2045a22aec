"""Hand a job script to a scheduler exactly once, whatever is killed or late in between.

Before the scheduler is called, submit.json holds the comment that the job will carry. A `submit` that finds such an intent without a
number asks the scheduler for that job, among those that wait, run or have ended, before it submits again. Where the scheduler's answer to
the submission itself left open whether there is a job, it asks for UNSURE_S after that answer.
"""

import datetime as dt
import hashlib
import os
import re
import secrets
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from nlp_bench.clock import now
from nlp_bench.config.scheduler import ACTIVE, Job, Listed, Scheduler, SilentError, State, UnsureError, patiently
from nlp_bench.files import real, sha256_of
from nlp_bench.launch.submission import Submission
from nlp_bench.seal import RUN, SUBMISSION
from nlp_bench.terminal import say

SETTLE_S = 3.0
"""Seconds between two answers "not there": a request that the scheduler had received but not yet worked on has become a job by then."""
LOOK_S = 60.0
"""Seconds for which a `submit` that got an unsure answer looks for the job itself: a wrapper of the site may queue it after its answer."""
UNSURE_S = 300.0
"""Seconds after an unsure answer in which its job may still come, or be shown (a site may answer squeue from a cache of a minute)."""
LONGEST_PAUSE_S = 15.0  # between two looks
CLOCKS = dt.timedelta(hours=2)  # how far the scheduler's clock, and a change to winter time, may be from this machine's
NO_COMMENT = ("", "(null)")
"""What a job without a comment shows: one that a person has started in the folder; a plugin that changes comments leaves something."""
REUSED = "its number is another job's by now"  # our own reason of a job that is GONE
_WHOLE = re.compile(r"nlp-bench:[0-9a-f]{16}-(?:[0-9a-f]{16}|[0-9a-f]{8}(?![0-9a-f]))(?:-\d+)?")
"""A comment of ours, also where a site's plugin has put something around it; one of an older nlp-bench says nothing of run.json."""
_OF_RUN = re.compile(r"nlp-bench:[0-9a-f]{16}-(?![0-9a-f]{8}(?![0-9a-f]))([0-9a-f]{4,8})")
"""What it says of run.json, as far as a plugin has left it: the beginning of its SHA-256."""


def new_comment(run_dir: Path) -> str:
    """Return a comment for the jobs of a submission: by folder and run.json, and unlike that of any earlier one in a folder of this name."""
    run_json = run_dir / RUN
    of_run = sha256_of(run_json)[:8] if run_json.is_file() else secrets.token_hex(4)
    return f"{folder_comment(run_dir)}-{of_run}{secrets.token_hex(4)}"


def is_of_run(comment: str, run_dir: Path) -> bool | None:
    """Whether a job was submitted for the run.json that is in the folder now; None where its comment does not tell."""
    found = _OF_RUN.search(comment)
    return sha256_of(run_dir / RUN).startswith(found.group(1)) if found else None


def folder_comment(run_dir: Path) -> str:
    """Return what the comments of all jobs of this folder begin with."""
    return "nlp-bench:" + hashlib.sha256(os.fsencode(run_dir)).hexdigest()[:16]


def may_act(run_dir: Path, submission: Submission, own_id: str | None = None) -> bool:
    """Whether this user submitted the run, from this very folder, or this is its job `own_id`: only then jobs are submitted or cancelled for it.

    A folder that another user wrote, or that came in an archive, names a script and job ids that are not ours to use.
    """
    if own_id is not None:
        return True
    paths = [run_dir, *(run_dir / name for name in (RUN, SUBMISSION, "submit.job"))]
    owners = {path.lstat().st_uid for path in paths if os.path.lexists(path)}
    return owners == {os.geteuid()} and (submission.comment or "").startswith(folder_comment(real(run_dir)))


def part_comment(comment: str, part: int) -> str:
    """Return the comment of one job of a chain."""
    return comment if part == 1 else f"{comment}-{part}"


def pick(jobs: Iterable[Listed], comment: str, known: Collection[str]) -> str | None:
    """Return the oldest job with this comment; if there is none, the oldest of the same folder whose comment has not our form, unless it is `known`.

    A plugin of the site may have replaced the comment.
    """
    changed = None
    for job in jobs:
        whole = _WHOLE.search(job.comment)
        if job.comment == comment or (whole and whole.group() == comment):
            return job.job_id
        if not (changed or whole) and job.job_id not in known and _is_of_folder(comment, job.work_dir):
            changed = job.job_id
    return changed


def _is_of_folder(comment: str, work_dir: str) -> bool:
    """Whether a comment of ours is of this folder, which an automounter may name with a folder above it (/tmp_mnt/home/run)."""
    if not work_dir:
        return False
    parts = Path(work_dir).parts
    spellings = (Path("/", *parts[first:]) for first in range(1, len(parts)))
    is_spelled = any(comment.startswith(folder_comment(path)) for path in spellings)
    return is_spelled or comment.startswith(folder_comment(real(work_dir)))


def find(scheduler: Scheduler, comment: str, known: Collection[str] = (), *, look_s: float = 0.0) -> str | None:
    """Return the job of this comment (see `pick`); None where the scheduler says twice, and for `look_s`, that there is none. Raises SilentError."""
    end, pause_s, num_looks = time.monotonic() + look_s, SETTLE_S, 0
    while num_looks < 2 or time.monotonic() < end:
        if num_looks:
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)
        found = pick(patiently(scheduler, lambda: scheduler.jobs(ended=True)), comment, known)
        if found:
            return found
        num_looks += 1
    return None


def since_s(when: str) -> float:
    """Return the seconds since a time in a record, by this machine's clock; 0 where it is none."""
    try:
        return time.time() - dt.datetime.fromisoformat(when).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def unsure_for_s(submission: Submission) -> float:
    """Return for how many seconds yet a job may come of an answer that was unsure; 0 where none was, or it is too old."""
    return min(max(UNSURE_S - since_s(submission.unsure), 0.0), UNSURE_S) if submission.unsure else 0.0


def find_open(scheduler: Scheduler, comment: str, intent: Submission) -> str | None:
    """Return the job of an intent that was left open; looks for as long as one may still come, and says so."""
    left_s = unsure_for_s(intent)
    if left_s:
        say(
            f"the answer of {intent.unsure} left open whether the job was queued; looking for it for up to {left_s:.0f} s before it is "
            "submitted anew (Ctrl-C ends the look; the same command goes on with it)"
        )
    return find(scheduler, comment, intent.known, look_s=left_s)


def active(scheduler: Scheduler, run_dir: Path) -> list[Listed]:
    """Return the jobs of this folder that wait or run, whatever submission they are of; their record was lost."""
    own = folder_comment(run_dir)
    jobs = patiently(scheduler, lambda: scheduler.jobs(ended=False))
    return [
        job
        for job in jobs
        if own in job.comment or (job.comment not in NO_COMMENT and _is_of_folder(own, job.work_dir))
    ]


def of_folder(scheduler: Scheduler, run_dir: Path) -> list[str]:
    """Return all jobs, also ended ones, that the scheduler knows of this folder."""
    jobs = patiently(scheduler, lambda: scheduler.jobs(ended=True))
    return [job.job_id for job in jobs if _is_of_folder(folder_comment(run_dir), job.work_dir)]


def hand_over(  # noqa: PLR0913  # one fact each
    scheduler: Scheduler, script: Path, *, account: str, comment: str, lock: int, intent: Submission | None = None
) -> str:
    """Submit `script` and return the job's number; a job that was made without a word is looked for.

    `lock` is the descriptor of the folder's lock, which the scheduler's command keeps should this process be killed. `intent` is the record
    in the script's folder, in which an unsure answer is noted at once; the job waits for the one that it has already, of a chain. Raises
    UnsureError where it is not known whether there is a job, another NlpBenchError where there is none.
    """
    # A scheduler without chains need not take it.
    waiting = {"after": intent.job_id} if intent and intent.job_id else {}
    try:
        return scheduler.submit(script, account=account, comment=comment, lock=lock, **waiting)
    except (KeyboardInterrupt, SystemExit):  # sbatch, which may have been heard, was ended with this process
        _note_unsure(intent, script.parent)
        raise
    except UnsureError as error:
        _note_unsure(intent, script.parent)
        say(f"{error}; looking for the job for up to {LOOK_S:.0f} s")
        try:
            job_id = find(scheduler, comment, intent.known if intent else (), look_s=LOOK_S)
        except SilentError as silent:
            raise UnsureError(f"{error}; {scheduler.title} does not answer: {silent}") from silent
        if job_id is None:
            raise UnsureError(f"{error}; {scheduler.title} shows no job of {script} yet") from error
        return job_id


def _note_unsure(intent: Submission | None, run_dir: Path) -> None:
    if intent:
        replace(intent, unsure=now()).write(run_dir)


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
        is_ours = comment in job.comment or _is_of_folder(comment, job.work_dir)
    else:
        is_ours = job.submitted is None or not _is_older(job.submitted, submission.submitted)
    if is_ours:
        return job
    return Job(state=State.GONE, reason=REUSED, job_id=job.job_id, source=job.source)


def live_beside(scheduler: Scheduler, submission: Submission, job_id: str) -> str | None:
    """Return the job of the run that waits or runs while `job_id`, which none of its submissions has made, runs in its folder."""
    if job_id in {*submission.job_ids, *(str(attempt["job_id"]) for attempt in submission.attempts)}:
        return None
    jobs = (ours(scheduler.query(known), submission) for known in submission.job_ids)
    return next((job.job_id for job in jobs if job and job.state in ACTIVE), None)


def _is_older(submitted: dt.datetime, ours: str) -> bool:
    """Whether a job was submitted, in local time, before a submission of ours, whose time has an offset."""
    try:
        return submitted < dt.datetime.fromisoformat(ours).astimezone().replace(tzinfo=None) - CLOCKS
    except (ValueError, OverflowError):
        return False
