"""Another job for a run that a failed node or a preemption has ended: by option, counted, in the same folder.

No other end is tried again: a run that was out of memory, or whose loss is not finite, would end the same way, and a program that
failed has something to say.
"""

import contextlib
from pathlib import Path
from typing import Any

from nlp_bench.clock import now
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import Job, SilentError, get_scheduler
from nlp_bench.errors import NlpBenchError
from nlp_bench.last_start import ATTEMPT
from nlp_bench.launch import lock, once
from nlp_bench.launch.end.ending import Ending
from nlp_bench.launch.folder import is_intent, read_submission, write_submission
from nlp_bench.outcome import Outcome

RETRIED = (Outcome.NODE_FAIL, Outcome.PREEMPTED)


def attempts(submission: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the endings of the attempts before the present one, the first one first."""
    found = (submission or {}).get("attempts")
    return [attempt for attempt in found if isinstance(attempt, dict)] if isinstance(found, list) else []


def is_due(run: Run, submission: dict[str, Any] | None, ending: Ending) -> bool:
    """Whether a run that has ended so is to get another job."""
    queued = submission is not None and bool(submission.get("comment"))
    return queued and ending.outcome in RETRIED and len(attempts(submission)) < run.limits.retries


def again(run: Run, run_dir: Path, submission: dict[str, Any], ending: Ending, exit_status: int | None) -> str:
    """Record how this attempt ended and hand the run over once more; return a word on its state.

    The intent is written first, with a comment of its own: whoever finds it completes it, once. Raises NlpBenchError where
    the scheduler refuses, SilentError where it does not answer: the intent then stays.
    """
    if lock.is_held(run_dir):
        return "being submitted again"
    with lock.held(run_dir) as handle:
        found = read_submission(run_dir)
        if found is None or found["job_id"] != submission["job_id"] or (run_dir / "outcome.json").exists():
            return "submitted again"  # by another sync, until now
        record = {
            "job_id": submission["job_id"], "outcome": ending.outcome.value, "reasons": ending.reasons,
            "evidence": ending.evidence, "exit_status": exit_status, "ended": now(),
        }  # fmt: skip
        before = [*attempts(found), record]
        write_submission(run_dir, [], comment=once.new_comment(run_dir), attempts=before)
        _say(
            run_dir,
            f"{ATTEMPT}{len(before) + 1} of {run.limits.retries + 1}: job {submission['job_id']} ended {ending.text()}",
        )
        return _submit(run, run_dir, handle)


def complete(run: Run, run_dir: Path) -> str:
    """Hand over the attempt of an intent that was cut off, unless the scheduler has it already."""
    if lock.is_held(run_dir):
        return "being submitted again"
    with lock.held(run_dir) as handle:
        found = read_submission(run_dir)
        return _submit(run, run_dir, handle, is_open=True) if found and is_intent(found) else "submitted again"


def _submit(run: Run, run_dir: Path, handle: int, *, is_open: bool = False) -> str:
    intent = read_submission(run_dir) or {}
    scheduler, comment = get_scheduler(run.launch.launcher), str(intent["comment"])
    job_id = once.find(scheduler, comment, may_be_late=True) if is_open else None
    since = str(intent["submitted"]) if job_id else None
    try:
        job_id = job_id or once.hand_over(
            scheduler, run_dir / "submit.job", account=run.launch.account, comment=comment, lock=handle
        )
    except SilentError:
        raise
    except NlpBenchError:  # as it was: the run has ended with the job before
        *before, last = attempts(read_submission(run_dir))
        write_submission(run_dir, [str(last["job_id"])], comment=comment, attempts=before)
        raise
    write_submission(run_dir, [job_id], comment=comment, submitted=since)
    number = len(attempts(read_submission(run_dir))) + 1
    return f"attempt {number} of {run.limits.retries + 1} is submitted, job {job_id}"


def _say(run_dir: Path, line: str) -> None:
    """Write the line between two attempts into both logs; a full disk does not stop the next one."""
    for name in ("job.out", "job.err"):
        with contextlib.suppress(OSError), (run_dir / name).open("a", encoding="utf-8") as log:
            log.write(f"\n{line}\n")


def given_up(run: Run, run_dir: Path, submission: dict[str, Any], job: Job, waited_s: float) -> bool:
    """Cancel a job that has waited longer than --max-pending, and note why; whether it was cancelled.

    A further job of a chain waits for the one before, and a requeued job has had its turn: both stay.
    """
    limit_s = run.limits.max_pending_s
    has_begun = len(submission["job_ids"]) > 1 or bool(submission.get("parts_left")) or job.restarts > 0
    if not limit_s or waited_s <= limit_s or has_begun:
        return False
    reason = f"waited {waited_s:.0f} s in the queue, longer than --max-pending {limit_s:g}: {job.word} ({job.reason})"
    with contextlib.suppress(NlpBenchError):
        write_submission(
            run_dir, submission["job_ids"], comment=str(submission.get("comment") or ""), given_up=reason,
            submitted=str(submission.get("submitted")),
        )  # fmt: skip
    get_scheduler(run.launch.launcher).cancel(submission["job_ids"], waiting_only=True)
    return True
