"""Slurm's commands that ask: what of a job, which jobs of a folder. "Cannot ask" and "not there" are kept apart."""

import datetime as dt
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from nlp_bench import programs
from nlp_bench.config.machine import scontrol_field
from nlp_bench.config.slurm_text import MARK, accounted, is_accounting, records, rows
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch import ambient
from nlp_bench.launch.scheduler.states import GONE
from nlp_bench.programs import Answer

ASK_TIMEOUT_S = 20
PATIENCE_S = 120
"""Seconds for which a Slurm that does not answer is asked again before a command gives up."""
JOB_LAUNCH_FAILURE, OUTPUT_SIGNAL, MEMORY_SIGNAL = "JobLaunchFailure", 53, 125
"""Slurm's own numbers in the place of a signal: job.out cannot be opened; memory exhausted (sacct's manual: 0:125)."""
REUSED = "its number is another job's by now"
"""Our own reason of a job that is GONE."""
WORK_DIR = re.compile(r" WorkDir=(.*?)(?: [A-Z]\w*=|$)", re.MULTILINE)
"""The folder of a job in `scontrol show job --oneliner`; its name may hold blanks."""

Found = TypeVar("Found")


class SilentError(NlpBenchError):
    """Slurm could not be asked; nothing is known."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What Slurm says of one job."""

    state: str
    """Its word for the state; GONE where Slurm answers but no longer knows the job."""
    reason: str
    """Why it waits or ended, in Slurm's word."""
    exit_status: int | None
    """Exit status of the job script; None while it runs, and where Slurm's own numbers stand in its place."""
    exit_code: str = ""
    """Slurm's "status:signal" as it stands."""
    job_id: str = ""
    """Its number."""
    source: str = "scontrol"
    """Which of Slurm's commands said so."""
    restarts: int = 0
    """How often it was requeued and began anew."""
    requeues: bool = False
    """Whether Slurm puts it back into the queue after a failed node or a preemption."""
    suspended_s: float | None = None
    """Seconds that it was suspended; None where Slurm does not tell."""
    comment: str = ""
    """The comment that it carries; empty where only the accounting knows it."""
    work_dir: str = ""
    """The folder that it was submitted from; likewise."""
    batch_host: str = ""
    """The node on which its script runs; likewise."""

    def record(self) -> dict[str, Any]:
        """Return it for outcome.json."""
        return {
            "source": self.source,
            "job_id": self.job_id,
            "state": self.state,
            "reason": self.reason,
            "exit_code": self.exit_code,
            "restarts": self.restarts,
            "suspended_s": self.suspended_s,
        }


def look(job_id: str, *, timeout_s: float = ASK_TIMEOUT_S) -> Job | None:
    """Ask Slurm for a job: scontrol, then the accounting, then the log of completed jobs (`sacct -c`).

    None means that Slurm does not answer at present.
    """
    answer = ask("scontrol", "show", "job", job_id, "--oneliner", timeout_s=timeout_s)
    shown = next((line for line in records(answer.out, "JobId").values() if " JobState=" in line), None)
    if answer.is_good and shown:
        return _shown(shown, job_id)
    if "Invalid job id" not in answer.err:
        return None
    for source in ("sacct", "sacct -c"):
        answer = ask(*source.split(), "-X", "-P", "-j", job_id, "-o", "JobID,State,ExitCode")
        if answer.is_good and (found := accounted(answer.out, job_id)):
            return _accounted(*found, source, job_id)
        is_off = not answer.is_good and (source == "sacct -c" or "accounting storage is disabled" in answer.err)
        if not is_off and not (answer.is_good and is_accounting(answer.out)):
            return None
    return Job(state=GONE, reason="", exit_status=None, job_id=job_id)


def _shown(out: str, job_id: str) -> Job:
    exit_code = scontrol_field(out, "ExitCode")
    restarts = scontrol_field(out, "Restarts")
    return Job(
        state=scontrol_field(out, "JobState"),
        reason=scontrol_field(out, "Reason"),
        exit_status=_status(exit_code),
        exit_code=exit_code,
        job_id=job_id,
        restarts=int(restarts) if restarts.isdigit() else 0,
        requeues=scontrol_field(out, "Requeue") == "1",
        suspended_s=_suspended(out),
        comment=scontrol_field(out, "Comment"),
        batch_host=scontrol_field(out, "BatchHost"),
        work_dir=found.group(1) if (found := WORK_DIR.search(out)) else "",
    )


def _accounted(state: str, exit_code: str, source: str, job_id: str) -> Job:
    return Job(
        state=state, reason="", exit_status=_status(exit_code), exit_code=exit_code, job_id=job_id, source=source
    )


def _suspended(out: str) -> float:
    """Return the seconds between start and end (or now) that are missing from Slurm's run time; it has no field of its own."""
    if scontrol_field(out, "SuspendTime") in {"", "None", "Unknown"}:
        return 0.0
    begin, end = _time(scontrol_field(out, "StartTime")), _time(scontrol_field(out, "EndTime"))
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", scontrol_field(out, "RunTime"))
    if begin is None or not found:
        return 1.0  # suspended for a time that cannot be told
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    ran_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    present = dt.datetime.now().astimezone().replace(tzinfo=None)
    ended = present if end is None or end > present else end  # while it runs, EndTime is the time limit's
    return max(1.0, (ended - begin).total_seconds() - ran_s)


def _time(word: str) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(word)
    except ValueError:
        return None


def is_queued(job_id: str) -> bool | None:
    """Whether squeue lists the job as waiting or running; None where it does not answer."""
    answer = ask("squeue", "--jobs", job_id, f"--format={MARK}%i")
    if not answer.is_good:
        return False if "Invalid job id" in answer.err else None
    found = rows(answer.out, 1)
    return None if found is None else [job_id] in found


def comments(*, ended: bool) -> list[tuple[int, str]]:
    """Return number and comment of this user's jobs, the oldest first; with `ended` also of those that have, as far as Slurm knows.

    Raises SilentError where Slurm does not answer: that is not "none".
    """
    states = ["--states=all"] if ended else []
    answer = ask("squeue", "--me", *states, f"--format={MARK}%i|%k")
    found = rows(answer.out, 2) if answer.is_good else None
    if found is None:
        said = "not in the form that it was asked for, as a wrapper of the site may" if answer.is_good else "no answer"
        raise SilentError(f"squeue: {answer.err.strip() or said}")
    return sorted((int(pair[0]), pair[1]) for pair in found if len(pair) == 2 and pair[0].isdigit())


def patiently(question: Callable[[], Found]) -> Found:
    """Put a question until Slurm answers, with growing pauses, for PATIENCE_S; then SilentError goes on."""
    end, pause_s = time.monotonic() + PATIENCE_S, 1.0
    while True:
        try:
            return question()
        except SilentError as error:  # noqa: PERF203  # each question may be the last
            if time.monotonic() + pause_s > end:
                raise
            print(f"nlp-bench: Slurm does not answer ({error}); asking again in {pause_s:.0f} s", file=sys.stderr)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 30.0)


def cancel(job_ids: list[str]) -> None:
    """Take jobs out of the queue; a Slurm that does not answer is no error: they would end by themselves."""
    if job_ids:
        ask("scancel", *job_ids)


def ask(*command: str, timeout_s: float | None = None) -> Answer:
    """Return the answer of one of Slurm's commands, which get none of the variables that change their answers."""
    variables = ambient.without(os.environ, ambient.OF_QUESTIONS)
    return programs.ask(*command, timeout_s=timeout_s or ASK_TIMEOUT_S, variables=variables)


def _status(exit_code: str) -> int | None:
    """Return one shell-like status from Slurm's "status:signal"; a signal becomes 128 + its number, a number of Slurm's own None."""
    found = re.fullmatch(r"(\d+):(\d+)", exit_code)
    if not found or int(found.group(2)) in {OUTPUT_SIGNAL, MEMORY_SIGNAL}:
        return None
    return int(found.group(1)) or (128 + int(found.group(2)) if int(found.group(2)) else 0)
