"""Hand a prepared run to its scheduler, to the allocation that a person already holds, or to this machine: once."""

import contextlib
import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from nlp_bench import last_start
from nlp_bench.clock import now
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import (
    LOCAL,
    Allocation,
    Listed,
    Scheduler,
    SilentError,
    State,
    UnsureError,
    get_scheduler,
)
from nlp_bench.errors import NlpBenchError
from nlp_bench.escape import one_line
from nlp_bench.launch import ambient, once
from nlp_bench.launch.lock import alone_in
from nlp_bench.launch.scheduler import local
from nlp_bench.launch.submission import Submission, read_submission, repeat_command
from nlp_bench.terminal import say


def submit(run: Run, script: Path, *, follow: bool, jobs: int = 1, lock: int) -> list[str]:
    """Start the run, as a chain of `jobs`; return the scheduler's job ids, none for a run that was done here and has ended.

    `lock` is the descriptor of the folder's lock, which the caller holds. With `follow`, a detached `nlp-bench sync --wait` turns
    the end of the job into outcome.json and JUBE's marker even where the job itself cannot: cancelled while pending, node
    lost, killed.
    """
    scheduler = get_scheduler(run.launch.launcher)
    held = _held_allocation(scheduler, run)
    kept = scheduler.kept_variables(run.launch.account)
    if not held and (others := ambient.taken_out(os.environ, ambient.of_jobs(), kept)):
        say(ambient.message(others))
    own, nodes = scheduler.allocation(), run.parallel.nodes
    if own and (own.num_groups > 1 or own.num_nodes not in {"", str(nodes)}):
        has = "several groups of" if own.num_groups > 1 else own.num_nodes
        text = f"job {own.job_id}, where this was called, has {has} node(s), the run asks for {nodes} (--nodes)"
        say(f"{text}: it does not train in there, a job of its own is to be queued")
    if run.launch.launcher != LOCAL and not held:
        _refuse_what_nobody_keeps(run, script.parent)
        job_ids = _queue(scheduler, run, script, jobs, lock)
        if follow:
            _follow(script.parent)
        return job_ids
    if held:
        again = f"env -u {scheduler.job_id_variable} nlp-bench submit ..."
        where = f"trains inside job {held.job_id}, where this was called, with what that job has"
        say(f"{where}; to queue a job of its own: {again}")
    place = f"job-{held.job_id}" if held else local.gpus(run)
    where = "in it" if held else "on these GPUs, and CUDA_VISIBLE_DEVICES names no others for this one"
    said = f"another run trains {where}; this one begins when that ends"
    waits = functools.cache(lambda: say(said))  # once
    with alone_in(place, on_wait=waits) if place else contextlib.nullcontext():
        local.train(run, script, chain=jobs, lock=lock)
    return []


def _refuse_what_nobody_keeps(run: Run, run_dir: Path) -> None:
    """Refuse what a follower is to do later in a folder that does not seem to be this user's: there it neither submits nor cancels a job."""
    is_own = once.may_act(run_dir, Submission(comment=once.folder_comment(run_dir)))
    if not is_own and (run.limits.retries or run.limits.max_pending_s):
        raise NlpBenchError(
            f"--retries, --max-pending: {run_dir}, or what was written into it now, belongs to another user, or its file system shows one owner "
            "for all files: nobody could submit again or cancel for it later; give --retries 0 --max-pending 0, or name a --run-dir elsewhere; "
            "nothing was submitted"
        )


def _queue(scheduler: Scheduler, run: Run, script: Path, jobs: int, lock: int) -> list[str]:
    """Hand all jobs of the chain over; the intent is recorded first, and each job at once, for it may run and end at once."""
    run_dir = script.parent
    found, is_open = read_submission(run_dir), True
    scheduler = scheduler.as_submitted(found.selection if found and found.is_intent else None)
    if elsewhere := scheduler.elsewhere():
        raise NlpBenchError(f"{elsewhere}; nothing was submitted: {repeat_command(run_dir)}")
    # An intent is left where the process that wrote it was killed, or the scheduler did not answer, or not clearly.
    if found and found.is_intent:
        jobs = max(jobs, len(found.job_ids) + found.parts_left)  # the command that is printed names no --chain
        found, is_open = _of_this_run(scheduler, run_dir, found)
    else:
        try:
            others = once.active(scheduler, run_dir)
            before = [] if others else once.of_folder(scheduler, run_dir)
        except SilentError as error:
            raise NlpBenchError(
                f"{scheduler.title} does not answer ({error}): nothing was submitted; when it answers again, type the same command: "
                f"{repeat_command(run_dir)}"
            ) from error
        if others:
            return _taken_over(scheduler, run_dir, others)
        comment, is_open = once.new_comment(run_dir), False
        found = Submission(comment=comment, before=before, selection=scheduler.selection())
    job_ids, comment = found.job_ids, str(found.comment)
    try:
        found = replace(found, parts_left=jobs - len(job_ids))
        found.write(run_dir)
        for part in range(len(job_ids) + 1, jobs + 1):
            own = once.part_comment(comment, part)
            known = _found_open(scheduler, run_dir, found, part) if is_open else None
            is_open = is_open and known is not None  # the parts behind the one that was cut off were never handed over
            account = run.launch.account
            if not known and not job_ids:
                found = replace(found, submitted=now())  # an intent without a job may be days old
            job_ids.append(
                known or once.hand_over(scheduler, script, account=account, comment=own, lock=lock, intent=found)
            )
            found = replace(found if known else found.by(scheduler), parts_left=jobs - part, unsure=None)
            found.write(run_dir)
    except (SilentError, UnsureError) as error:
        queued = f"--chain: {len(job_ids)} of {jobs} jobs are queued ({' '.join(job_ids)}); " if job_ids else ""
        silent = f"{scheduler.title} does not answer ({error})" if isinstance(error, SilentError) else str(error)
        raise NlpBenchError(
            f"{queued}{silent}: whether the {'next ' if job_ids else ''}job was queued is not known; do not submit the run in another way, "
            f"but type this command, which looks for the job before it submits one: {repeat_command(run_dir)}"
        ) from error
    except NlpBenchError as error:
        if not job_ids:
            (run_dir / "submit.json").unlink(missing_ok=True)  # nothing was submitted: the intent has ended
            raise NlpBenchError(
                f"{error}; nothing was submitted; once that is mended or over, type: {repeat_command(run_dir)}"
            ) from error
        raise NlpBenchError(
            f"--chain: {len(job_ids)} of {jobs} jobs are queued ({' '.join(job_ids)}) and stay; then: {error}; once that is mended or over, "
            f"this queues the rest: {repeat_command(run_dir)}; to end those that are queued instead: {scheduler.commands(job_ids)[1]}"
        ) from error
    return job_ids


def _of_this_run(scheduler: Scheduler, run_dir: Path, intent: Submission) -> tuple[Submission, bool]:
    """Return an intent, and whether its next job may be there; one whose run.json was replaced since is begun anew where it has no job."""
    if once.is_of_run(str(intent.comment), run_dir) is not False:
        return intent, True
    try:
        known = _found_open(scheduler, run_dir, intent, len(intent.job_ids) + 1)
        active = {job.job_id for job in once.active(scheduler, run_dir)}
    except SilentError as error:
        text = f"{scheduler.title} does not answer ({error}): whether there is a job of the run that was here before is not known"
        raise NlpBenchError(f"{text}; type this command again: {repeat_command(run_dir)}") from error
    job_ids = [*intent.job_ids, *([known] if known else [])]
    if left := [job_id for job_id in job_ids if job_id in active]:
        raise _other_run(scheduler, run_dir, str(intent.comment), left)
    before = [*intent.before, *job_ids]
    return replace(intent, comment=once.new_comment(run_dir), job_ids=[], before=before, unsure=None), False


def _taken_over(scheduler: Scheduler, run_dir: Path, jobs: list[Listed]) -> list[str]:
    """Take jobs over whose record was lost: only those of this very run, for an earlier one may have had a folder of this name."""
    job_ids = [job.job_id for job in jobs]
    if other := next((job for job in jobs if not once.is_of_run(job.comment, run_dir)), None):
        raise _other_run(scheduler, run_dir, other.comment, job_ids)
    _say_taken_over(job_ids)
    Submission(job_ids=job_ids, selection=scheduler.selection()).write(run_dir)
    return job_ids


def _other_run(scheduler: Scheduler, run_dir: Path, comment: str, job_ids: list[str]) -> NlpBenchError:
    """Return the word on jobs of this folder of which nothing shows that they are for the run.json that is there now."""
    is_other = once.is_of_run(comment, run_dir) is False
    why = "for another run" if is_other else "and nothing shows that it is for this run"
    return NlpBenchError(
        f"job {' '.join(job_ids)}, which waits or runs, was submitted from this folder, {why} (its comment: {one_line(comment)[:80]}); "
        f"nothing was submitted now: {scheduler.commands(job_ids)[1]}, then repeat the same command: {repeat_command(run_dir)}"
    )


def _say_taken_over(job_ids: list[str]) -> None:
    say(f"job {' '.join(job_ids)}, which was submitted from this folder before, is found: it is not submitted again")


def _found_open(scheduler: Scheduler, run_dir: Path, intent: Submission, part: int) -> str | None:
    """Return the job of a part whose submission was left open: by its log, which a scheduler that lists it otherwise cannot hide, or the list."""
    comment = once.part_comment(str(intent.comment), part)
    job_id = _started(run_dir, part) or once.find_open(scheduler, comment, intent) or _started(run_dir, part)
    if job_id:
        _say_taken_over([job_id])
    return job_id


def _started(run_dir: Path, part: int) -> str | None:
    """Return the job that the log says has started: a scheduler forgets a job that has ended, its log does not."""
    known = read_submission(run_dir)
    lost = {attempt["job_id"] for attempt in known.attempts} if known else set()
    own = [number for number in last_start.jobs(run_dir / "job.out") if number not in lost]
    return own[part - 1] if len(own) >= part else None


def _held_allocation(scheduler: Scheduler, run: Run) -> Allocation | None:
    """Return the running allocation of the run's size that this process is in: not another job, nor what a terminal has left over from one."""
    own = scheduler.allocation()
    if own is None or own.num_nodes != str(run.parallel.nodes) or not scheduler.job_id.fullmatch(own.job_id):
        return None
    job = scheduler.query(own.job_id)
    is_running = job is None or job.state is State.RUNNING  # its starter says it where the scheduler does not answer
    return own if is_running else None


def _follow(run_dir: Path) -> None:
    with (run_dir / "sync.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "nlp_bench", "sync", "--wait", str(run_dir)],
            cwd=run_dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )  # fmt: skip
