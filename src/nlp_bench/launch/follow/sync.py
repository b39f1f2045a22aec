"""Bring the record of a run up to date with what the scheduler says of its job."""

import contextlib
import os
import shlex
import socket
import sys
import time
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from nlp_bench import marker, seal
from nlp_bench.config.run import read_run
from nlp_bench.config.scheduler import (
    ACTIVE,
    ASK_TIMEOUT_S,
    Allocation,
    Job,
    Scheduler,
    SilentError,
    State,
    UnsureError,
)
from nlp_bench.errors import NlpBenchError
from nlp_bench.escape import one_line, some
from nlp_bench.files import age_s, user_name
from nlp_bench.last_start import STARTED_ERR, says_finished
from nlp_bench.launch import chain, lock, once
from nlp_bench.launch.end.ending import Ending, decide, read_ending, write_ending
from nlp_bench.launch.end.log_facts import ScriptRecord, gather, read_record, write_record
from nlp_bench.launch.follow import retry
from nlp_bench.launch.follow.progress import progress
from nlp_bench.launch.follow.runs import gone
from nlp_bench.launch.scheduler import local
from nlp_bench.launch.submission import Submission, asked_scheduler, read_submission, repeat_command, scheduler_of
from nlp_bench.outcome import Outcome
from nlp_bench.reason import SHARED_NODES, Reason
from nlp_bench.seal import LOG, OUTCOME, SUBMISSION
from nlp_bench.terminal import say

GONE_S = 300  # seconds for which the scheduler must answer "not there" before a job without a record counts as lost
NOT_VISIBLE = ".ended-without-a-log.{job_id}"
"""Trace of a follower's first look at a job that has ended and whose log is not there, or not to its end: how long it waits already."""
ELSEWHERE_S = 3600
"""Seconds without output after which a local run counts as ended if its machine was rebooted, or is another one, and nobody holds its folder."""
UNKNOWN_S = 6 * 3600  # seconds after which a job that the queue still lists, in an unknown state, counts as lost
SILENT_S = 6 * 3600  # seconds after which `sync --wait` gives up on a silent scheduler; the next sync takes over
LAST_WORDS_S = 5.0
"""Seconds that the scheduler has to answer a job script that it is ending: SIGKILL follows (Slurm: after KillWait, 30 s by default)."""


class Kind(Enum):
    """Why a run has no ending yet."""

    GOES_ON = "goes on"
    WAITS = "waits for its (next) start"
    SILENT = "the scheduler does not answer"
    CUT_OFF = "the submission was cut off"
    READ_ONLY = "its folder cannot be written any more"


class RunState(str):
    """The state of a run, in words for a person, and its kind."""

    __slots__ = ("kind",)
    kind: Kind

    def __new__(cls, text: str, kind: Kind = Kind.GOES_ON) -> "RunState":  # noqa: PYI034  # Self is of Python 3.11
        """Make it of the words and the kind."""
        made = super().__new__(cls, text)
        made.kind = kind
        return made


def sync(run_dir: Path) -> tuple[Ending | None, RunState]:
    """Return the run's ending, deciding and writing it when the job has ended, and how it stands."""
    ending, state = _sync(run_dir)
    state = state if isinstance(state, RunState) else RunState(state)
    if ending is None and _is_read_only(run_dir):
        kind = Kind.READ_ONLY if state.kind is Kind.GOES_ON else state.kind
        state = RunState(f"{state}; {run_dir} cannot be written: its file system is read-only", kind)
    return ending, state


def _is_read_only(run_dir: Path) -> bool:
    """Whether the file system of the folder takes nothing from this machine: after an error of its disk, say, in mid-run."""
    try:
        return bool(os.statvfs(run_dir).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _sync(run_dir: Path) -> tuple[Ending | None, str]:
    if (run_dir / OUTCOME).exists():
        marker.repair(run_dir)
        return read_ending(run_dir), "ended"
    if marker.remove_bare(run_dir):
        say(f"{run_dir}/{marker.MARKER} stands for no outcome.json that is there; removed")
    submission = read_submission(run_dir)
    if submission is None:
        return None, "not submitted"
    if not (run_dir / seal.RUN).exists():
        raise NlpBenchError(_without_run(run_dir, submission))
    if submission.is_intent and not submission.job_ids:
        return None, _handing_over(run_dir, submission)
    scheduler = asked_scheduler(run_dir, submission)
    job = chain.query(scheduler, submission)
    _refuse_copy(run_dir, submission, job)
    waiting = _still_going(scheduler, run_dir, submission, job)
    if waiting:
        return None, waiting
    record = read_record(run_dir, submission.job_id)
    owner = (run_dir / seal.SUBMISSION).stat().st_uid
    if job and job.state is State.GONE and record is None and scheduler.hides_jobs_of(owner):
        text = f"{scheduler.title} shows job {submission.job_id} to {user_name(owner)} alone, who can tell how it stands: nlp-bench sync {shlex.quote(str(run_dir))}"
        return None, RunState(text, Kind.SILENT)
    exit_status = None
    if job and job.state is State.ENDED and job.outcome in {None, Outcome.FAILED}:
        exit_status = job.exit_status
    elif record and (job is None or job.state is State.GONE):
        exit_status = record.exit_status
    return _settle(scheduler, run_dir, submission, job, record, exit_status=exit_status, own_id=None)


def _without_run(run_dir: Path, submission: Submission) -> str:
    """Say that run.json is missing, and how the job stands that needs it."""
    scheduler = asked_scheduler(run_dir, submission)
    job = chain.query(scheduler, submission)
    text = f"{run_dir / seal.RUN} is missing, or not seen from here yet: its job cannot train, and nobody can say how it ended; put it back"
    if job is None or job.state not in ACTIVE:
        return text
    return f"{text}, or end job {job.job_id} ({job.word}): {scheduler.commands(submission.job_ids)[1]}"


def _refuse_copy(run_dir: Path, submission: Submission, job: Job | None) -> None:
    """Raise NlpBenchError where `run_dir` is a copy of the folder that the job was submitted from, and not the same by another name."""
    original, is_copy = Path((job and job.work_dir) or run_dir), False
    with contextlib.suppress(NlpBenchError, OSError):
        there = read_submission(original)
        # By the number alone: a folder that is mounted twice is of two devices.
        is_other = original.stat().st_ino != run_dir.stat().st_ino
        is_copy = there is not None and submission.job_id in there.job_ids and is_other
    if is_copy:
        raise NlpBenchError(
            f"{run_dir} is a copy: its job {submission.job_id} was submitted from {original}, where its log and its outcome are; "
            f"nlp-bench sync {shlex.quote(str(original))}"
        )


def sync_script(
    run_dir: Path, *, exit_status: int, signal: str = "", elapsed_s: int | None = None
) -> tuple[Ending | None, str]:
    """Decide in the job, at the end of its script, and write down what it knows; nothing is decided where the job goes on, or only the scheduler can know."""
    ending = read_ending(run_dir)
    if ending is not None:
        return ending, "ended"
    scheduler = scheduler_of(run_dir)
    here = scheduler.allocation()
    submission = read_submission(run_dir)
    if here and here.job_id not in (submission.job_ids if submission else ()) and seal.is_of_another_run(run_dir):
        return None, f"job {here.job_id} was submitted for an earlier run of this folder, and decides nothing"
    live = once.live_beside(scheduler, submission, here.job_id) if here and submission else None
    if here and live:
        print(f"{STARTED_ERR}{live}", file=sys.stderr)  # what its log says from here on is of that job again
        text = f"job {live} waits or runs in this folder; job {here.job_id} is none of its run, and decides nothing"
        return None, text
    own = ScriptRecord(
        exit_status=exit_status,
        signal=signal,
        job_id=here.job_id if here else None,
        restarts=here.restarts if here else 0,
        elapsed_s=elapsed_s,
    )
    with contextlib.suppress(NlpBenchError):  # a full disk: the scheduler still has the exit status
        write_record(run_dir, own)
    timeout_s = ASK_TIMEOUT_S if exit_status == 0 else LAST_WORDS_S
    job = once.ours(scheduler.query(here.job_id, timeout_s=timeout_s) if here else None, read_submission(run_dir))
    is_again = _begins_anew(scheduler, job, here, run_dir)
    if is_again and decide(read_run(run_dir), run_dir, exit_status=exit_status).outcome is not Outcome.VALID:
        return None, f"{scheduler.title} has put the job back into its queue"
    return _settle(scheduler, run_dir, read_submission(run_dir), job, own, exit_status=exit_status, own_id=own.job_id)


def _begins_anew(scheduler: Scheduler, job: Job | None, here: Allocation | None, run_dir: Path) -> bool:
    """Whether the scheduler will start, or has started, this job once more.

    It was requeued; or a controller that was killed has forgotten that it runs, and has it in the queue or on another node now. A
    scheduler that is silent now may have said so in the log.
    """
    if job is None or here is None:
        log = gather(run_dir, scheduler)
        return scheduler.says_requeued(log.notice or "", log.error or "")
    is_elsewhere = bool(here.node_name and job.node_name) and job.node_name != here.node_name
    return job.restarts > here.restarts or job.state is State.WAITING or is_elsewhere


def _settle(  # noqa: PLR0913  # one fact each
    scheduler: Scheduler,
    run_dir: Path,
    submission: Submission | None,
    job: Job | None,
    record: ScriptRecord | None,
    *,
    exit_status: int | None,
    own_id: str | None,
) -> tuple[Ending | None, str]:
    """Decide and write, unless another job of the chain goes on, or the scheduler's record may only be late."""
    attempts = submission.attempts if submission else []
    if own_id is not None and own_id in {attempt["job_id"] for attempt in attempts}:
        return None, "another job has taken this run over"
    is_fresh = record is not None and (job is None or job.restarts == record.restarts)
    signal = record.signal if record and is_fresh else ""
    run = read_run(run_dir)
    ending = decide(run, run_dir, exit_status=exit_status, job=job, signal=signal)
    ending = local.with_killed_launcher(ending, submission)
    if own_id is None and job and (late := _late(scheduler, run_dir, job, record, ending)):
        return None, late
    others = chain.rest(scheduler, submission, own_id)
    if ending.outcome not in chain.FINAL:
        if others is None:
            text = f"{ending.text()}; {_silent(scheduler)}, and other jobs of the chain may go on"
            return None, RunState(text, Kind.SILENT)
        if submission and (state := _going_on(run_dir, submission, ending, len(others), own_id)):
            return None, state
    if submission and retry.is_due(run, submission, ending):
        try:
            return None, _once_more(run_dir, submission, ending, exit_status, is_job=own_id is not None)
        except NlpBenchError as error:
            ending = ending.also(Reason("retry-refused", f"the retry was refused: {error}"))
    if submission and submission.given_up and ending.outcome is Outcome.CANCELLED:
        ending = replace(ending, reasons=(Reason("max-pending", submission.given_up),))
    scheduler.cancel(_left_jobs(run_dir, submission, own_id, others))
    job_id = own_id or (submission.job_id if submission else None)
    ending = ending.also(*_lost_before(attempts, ending), *_shared_nodes(scheduler, job_id, ending))
    try:
        write_ending(run_dir, ending, exit_status=exit_status, job_id=job_id, attempts=attempts)
    except NlpBenchError as error:  # another user's run: how it ended is known all the same
        raise NlpBenchError(f"{run_dir}: {ending.text()}; but {error}") from error
    return read_ending(run_dir), "ended"


def _lost_before(attempts: list[dict[str, Any]], ending: Ending) -> list[Reason]:
    """Say so where a run that has a number was submitted again after jobs that were lost."""
    if not attempts or ending.outcome is not Outcome.VALID:
        return []
    lost = some((f"{one_line(attempt['job_id'])}: {one_line(attempt.get('outcome'))}" for attempt in attempts), 3)
    return [Reason("lost-before", f"{len(attempts)} earlier job(s) of this run were lost ({lost})")]


def _shared_nodes(scheduler: Scheduler, job_id: str | None, ending: Ending) -> list[Reason]:
    """Say so where the nodes of a run that has a number were not its own."""
    others = scheduler.beside(job_id) if job_id and ending.outcome is Outcome.VALID else []
    if not others:
        return []
    text = f"{len(others)} other job(s) ran on its nodes meanwhile ({some(others, 3)}): the number is that of shared nodes; --exclusive asks for whole ones"
    return [Reason(SHARED_NODES, text)]


def _going_on(
    run_dir: Path, submission: Submission, ending: Ending, num_others: int, own_id: str | None
) -> RunState | None:
    """Return the state of a chain of which a job has ended, None where it was the last, or where all were cancelled before the rest was queued."""
    text, num_left = f"one job of the chain has ended ({ending.text()})", submission.parts_left
    if num_others or (num_left and not submission.is_intent):
        return RunState(f"{text}, {num_others or num_left} will go on")
    is_given_up = ending.outcome is Outcome.CANCELLED and own_id is None and not lock.is_held(run_dir)
    if not num_left or is_given_up:
        return None
    return RunState(f"{text}, {num_left} are not queued yet: {repeat_command(run_dir)}", Kind.CUT_OFF)


def _late(scheduler: Scheduler, run_dir: Path, job: Job, record: ScriptRecord | None, ending: Ending) -> str:
    """Say to a follower what may only be late: the scheduler's record, or the job's files on another machine's side of a shared file system."""
    # Accounting that has its word for a job that nobody else knows may only be behind: after an outage, for hours.
    late_s = UNKNOWN_S if job.word else GONE_S
    if job.state is State.GONE and ending.outcome is Outcome.UNKNOWN and not _unchanged_for(run_dir, late_s):
        return f"{scheduler.title} does not know the job; waiting in case its record is late"
    is_by_log = job.state is State.ENDED and job.outcome in {None, Outcome.FAILED} and job.fault is None
    looked = run_dir / NOT_VISIBLE.format(job_id=job.job_id)
    unseen = _unseen(run_dir, ending) if record is None and is_by_log else ""
    if unseen and not _waited(looked):
        return f"{scheduler.title}: {_word_and_remedy(job)}; {unseen} from here yet; waiting up to {GONE_S} s"
    with contextlib.suppress(OSError):
        looked.unlink(missing_ok=True)
    return ""


def _unseen(run_dir: Path, ending: Ending) -> str:
    """Return what of a job without records is not visible: its log, or the end of it where it stops early and the job did not fail."""
    if not (run_dir / LOG).exists():
        return "job.out and the job's own records are not visible"
    is_cut = ending.outcome is Outcome.INCOMPLETE and not says_finished(run_dir)
    return "the end of job.out and the job's own records are not visible" if is_cut else ""


def _waited(looked: Path) -> bool:
    """Whether the first look, of which the file `looked` is the trace, was more than GONE_S ago; without a trace the other files tell."""
    with contextlib.suppress(OSError):  # it is there, or this is another user's folder
        looked.touch(exist_ok=False)
    return age_s(looked) > GONE_S if looked.exists() else _unchanged_for(looked.parent, GONE_S)


def _left_jobs(run_dir: Path, submission: Submission | None, own_id: str | None, active: list[str] | None) -> list[str]:
    """Return the run's other jobs: those that are known to be `active`, else all; none where they are not ours to cancel."""
    if submission is None or not once.may_act(run_dir, submission, own_id):
        return []
    return active if active is not None else [job_id for job_id in submission.job_ids if job_id != own_id]


def _once_more(run_dir: Path, submission: Submission, ending: Ending, exit_status: int | None, *, is_job: bool) -> str:
    """Submit a lost run again; its job itself, on nodes that are going away, leaves that to the follower."""
    if is_job:
        return f"{ending.text()}; it will be submitted again"
    if not once.may_act(run_dir, submission):
        return f"{ending.text()}; whoever submitted it can submit it again: nlp-bench sync {shlex.quote(str(run_dir))}"
    try:
        return retry.again(read_run(run_dir), run_dir, submission, ending, exit_status)
    except SilentError:
        return _silent(asked_scheduler(run_dir, submission))
    except UnsureError as error:
        return f"{ending.text()}; {error}: whether the next attempt was queued is not known; looking for it"


def _silent(scheduler: Scheduler) -> RunState:
    why = scheduler.elsewhere() or scheduler.silence
    text = f"{scheduler.title} gave no answer that counts: {why}" if why else f"{scheduler.title} does not answer"
    return RunState(text, Kind.SILENT)


def _handing_over(run_dir: Path, submission: Submission) -> str:
    """Say how far an intent is whose job nobody has written down; a job that the scheduler has is written down here."""
    if lock.is_held(run_dir):
        return "being submitted"
    scheduler = asked_scheduler(run_dir, submission)
    try:
        found = once.pick(scheduler.jobs(ended=True), str(submission.comment), submission.known)
    except SilentError:
        return _silent(scheduler)
    if found:
        known = replace(submission, job_ids=[found], parts_left=submission.parts_left - 1, unsure=None)
        known.write(run_dir)
        return "submitted"
    return _left_open(scheduler, run_dir, submission)


def _left_open(scheduler: Scheduler, run_dir: Path, submission: Submission) -> str:
    """Hand the next attempt of an intent over that has no job; of a first submission say who can."""
    left_s = once.unsure_for_s(submission)
    if submission.attempts and once.may_act(run_dir, submission):
        if left_s:
            return f"whether the next attempt was queued is not known; looking for it for another {left_s:.0f} s"
        with contextlib.suppress(SilentError, UnsureError):
            return retry.complete(read_run(run_dir), run_dir)
        return _silent(scheduler)
    repeat = repeat_command(run_dir)
    if submission.unsure:
        text = f"whether the job was queued is not known; this looks for it before it submits one: {repeat}"
        return RunState(text, Kind.CUT_OFF)
    return RunState(f"the submission was cut off; repeat it: {repeat}", Kind.CUT_OFF)


def _still_going(scheduler: Scheduler, run_dir: Path, submission: Submission, job: Job | None) -> str | None:
    """Return the state of a run that has not ended, None for one that has."""
    if job is None:
        return _silent(scheduler) if submission.job_ids else _local_state(run_dir, submission)
    if job.state is State.UNKNOWN:
        return _unknown_state(scheduler, run_dir, job)
    if job.state is State.WAITING:
        # The clock of this machine may be ahead; and a job that was asked to begin at night does not wait in the queue before.
        waited_s = min(once.since_s(submission.submitted), age_s(run_dir / seal.SUBMISSION))
        waited_s = max(0.0, waited_s - job.delay_s)
        is_own = once.may_act(run_dir, submission)
        if is_own and (done := retry.cancel_overdue(read_run(run_dir), run_dir, submission, job, waited_s)):
            return f"{_word_and_remedy(job)}; {done}"
        cancel = scheduler.commands([job.job_id])[1]
        lost = f"{why}: give it that name back, or {cancel}" if (why := job.lost_folder()) else ""
        return RunState(_word_and_remedy(job) + lost, Kind.WAITS)
    return _word_and_remedy(job) if job.state in ACTIVE else None


def _local_state(run_dir: Path, submission: Submission) -> str | None:
    if elsewhere := state_elsewhere(run_dir, submission):
        return elsewhere
    is_elsewhere = not submission.is_from_here
    is_held = lock.is_held(run_dir)
    if not is_held and local.lives(run_dir, submission):
        is_held = True
    if is_held is False or (is_held is None and (is_elsewhere or local.killed_submit(submission))):
        return None
    if is_elsewhere:
        return f"running on {_where(submission)}"
    local.end_left_script(run_dir)
    return "running here"


def state_elsewhere(run_dir: Path, submission: Submission) -> str | None:
    """Return the state of a local run that another machine or container may go on with, by its files alone; its lock may not reach here."""
    # A machine that was restarted has another identity, a container another name as well.
    is_renamed = submission.host != socket.gethostname()
    if submission.is_from_here or _unchanged_for(run_dir, _stall_s(run_dir) if is_renamed else ELSEWHERE_S):
        return None
    return f"running on {_where(submission)}"


def _where(submission: Submission) -> str:
    is_renamed = submission.host != socket.gethostname()
    return submission.host if is_renamed else f"another machine or container that is called {submission.host}"


def _stall_s(run_dir: Path) -> float:
    """Return the seconds of silence after which a run of another machine has ended: none of its own pauses is so long."""
    run = read_run(run_dir)
    far = progress(run, run_dir / LOG)
    return max(ELSEWHERE_S, far.stall_limit_s if far else run.limits.silence_s(0.0, has_pauses=True))


def _word_and_remedy(job: Job) -> str:
    text = f"{job.word} ({job.reason})" if job.reason not in {"", "None"} else job.word
    return f"{text}; {job.remedy}" if job.remedy else text


def _unknown_state(scheduler: Scheduler, run_dir: Path, job: Job) -> str | None:
    """Whether a job in a state that its scheduler's module does not know goes on: the queue lists it; but not for ever."""
    listed = scheduler.is_queued(job.job_id)
    if listed is None:
        return _silent(scheduler)
    if _unchanged_for(run_dir, UNKNOWN_S if listed else GONE_S):
        return None
    return f"{job.word}, a state that this nlp-bench does not know" + ("" if listed else ", and not in the queue")


def _unchanged_for(run_dir: Path, time_s: float) -> bool:
    """Whether the run's files have not changed for so long: a record that is late would have arrived."""
    return min(age_s(path) for path in (run_dir / SUBMISSION, run_dir / LOG) if path.exists()) > time_s


def wait(run_dir: Path, *, poll_s: float) -> Ending | None:
    """Poll until the run has ended; return None when its folder has gone, or nothing could be learnt for SILENT_S.

    The time between two questions grows from 5 s to `poll_s`, so that a sweep does not burden the controller. A fault of the
    moment (a full disk, a record that cannot be read) is said and asked about again.
    """
    last_answer = time.monotonic()
    pause_s = min(5.0, poll_s)
    said = ""
    while not gone([run_dir]):
        kind = Kind.SILENT
        try:
            ending, state = sync(run_dir)
            kind = state.kind
        except (NlpBenchError, OSError) as error:
            ending = None
            if str(error) != said:
                said = str(error)
                say(f"{said}; asking again")
        if ending is not None:
            return ending
        if kind is not Kind.SILENT:
            last_answer = time.monotonic()
        if time.monotonic() - last_answer > SILENT_S:
            break
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, poll_s)
    return None
