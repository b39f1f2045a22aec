"""What a follower does to the jobs of a run: --retries submits another one after a failed node or a preemption, --max-pending cancels one.

No other end is tried again: a run that was out of memory, or whose loss is not finite, would end the same way, and a program that
failed has something to say.
"""

import contextlib
from dataclasses import replace
from pathlib import Path

from nlp_bench.clock import now
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import Job, SilentError, UnsureError
from nlp_bench.errors import NlpBenchError
from nlp_bench.last_start import ATTEMPT
from nlp_bench.launch import lock, once
from nlp_bench.launch.end.ending import Ending
from nlp_bench.launch.submission import Submission, asked_scheduler, read_submission
from nlp_bench.outcome import Outcome

RETRIED = (Outcome.NODE_FAIL, Outcome.PREEMPTED)


def is_due(run: Run, submission: Submission | None, ending: Ending) -> bool:
    """Whether a run that has ended so is to get another job."""
    queued = submission is not None and bool(submission.comment) and len(submission.attempts) < run.limits.retries
    return queued and ending.outcome in RETRIED


def again(run: Run, run_dir: Path, submission: Submission, ending: Ending, exit_status: int | None) -> str:
    """Record how this attempt ended and hand the run over once more; return a word on its state.

    The intent is written first, with a comment of its own: whoever finds it completes it, once. Raises NlpBenchError where
    the scheduler refuses, SilentError where it does not answer, and UnsureError where it does not say whether: the intent then stays.
    """
    if lock.is_held(run_dir):
        return "being submitted again"
    with lock.held(run_dir) as handle:
        found = read_submission(run_dir)
        if found is None or found.job_id != submission.job_id or (run_dir / "outcome.json").exists():
            return "submitted again"  # by another sync, until now
        record = {
            "job_id": submission.job_id, "outcome": ending.outcome.value, "reasons": ending.texts,
            "evidence": ending.evidence, "exit_status": exit_status, "ended": now(),
        }  # fmt: skip
        intent = Submission(
            comment=once.new_comment(run_dir),
            attempts=[*found.attempts, record],
            run_sha256=found.run_sha256,
            before=found.before,
            selection=found.selection,
        )
        intent.write(run_dir)
        number, most = len(intent.attempts) + 1, run.limits.retries + 1
        _say(run_dir, f"{ATTEMPT}{number} of {most}: job {submission.job_id} ended {ending.text()}")
        return _submit(run, run_dir, intent, handle)


def complete(run: Run, run_dir: Path) -> str:
    """Hand over the attempt of an intent that was cut off, unless the scheduler has it already."""
    if lock.is_held(run_dir):
        return "being submitted again"
    with lock.held(run_dir) as handle:
        found = read_submission(run_dir)
        return _submit(run, run_dir, found, handle, is_open=True) if found and found.is_intent else "submitted again"


def _submit(run: Run, run_dir: Path, intent: Submission, handle: int, *, is_open: bool = False) -> str:
    scheduler, comment = asked_scheduler(run_dir, intent), str(intent.comment)
    job_id = once.find(scheduler, comment, intent.known) if is_open else None
    is_found, since = job_id is not None, intent.submitted if job_id else now()
    try:
        job_id = job_id or once.hand_over(
            scheduler, run_dir / "submit.job", account=run.launch.account, comment=comment, lock=handle, intent=intent
        )
    except (SilentError, UnsureError):
        raise
    except NlpBenchError:  # as it was: the run has ended with the job before
        *before, last = intent.attempts
        replace(intent, job_ids=[str(last["job_id"])], attempts=before).write(run_dir)
        raise
    known = intent if is_found else intent.by(scheduler)
    replace(known, job_ids=[job_id], submitted=since, unsure=None).write(run_dir)
    return f"attempt {len(intent.attempts) + 1} of {run.limits.retries + 1} is submitted, job {job_id}"


def _say(run_dir: Path, line: str) -> None:
    """Write the line between two attempts into both logs; a full disk does not stop the next one."""
    for name in ("job.out", "job.err"):
        with contextlib.suppress(OSError), (run_dir / name).open("a", encoding="utf-8") as log:
            log.write(f"\n{line}\n")


def cancel_overdue(run: Run, run_dir: Path, submission: Submission, job: Job, waited_s: float) -> str:
    """Cancel a job that has waited longer than --max-pending, and note why; return what was done, nothing for a job that stays.

    A further job of a chain waits for the one before, a requeued job has had its turn, and one that has nodes waits for their boot: all stay.
    Only the queue can tell that the job is gone: a site's scancel may ask a question, and do nothing with exit status 0.
    """
    limit_s = run.limits.max_pending_s
    has_begun = len(submission.job_ids) > 1 or submission.parts_left > 0 or job.restarts > 0 or bool(job.node_name)
    if not limit_s or has_begun or (waited_s <= limit_s and not submission.given_up):
        return ""
    reason = f"waited {waited_s:.0f} s in the queue, longer than --max-pending {limit_s:g}: {job.word} ({job.reason})"
    scheduler = asked_scheduler(run_dir, submission)
    command = scheduler.commands(submission.job_ids)[1]
    if refusal := scheduler.cancel(submission.job_ids, waiting_only=True):
        return f"it has waited too long, but could not be cancelled: {refusal}"
    if submission.given_up:  # called before, and the job waits all the same
        said = scheduler.said or "nothing"
        return f"it has waited too long, and waits still although `{command}` was called, which said: {said}; call it yourself"
    with contextlib.suppress(NlpBenchError):
        replace(submission, given_up=reason).write(run_dir)
    return f"`{command}` was called: it has waited too long"
