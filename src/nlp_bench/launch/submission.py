"""submit.json: the submission of a run, its job ids, and how its earlier jobs ended."""

import contextlib
import os
import shlex
import socket
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from nlp_bench.clock import now
from nlp_bench.config.scheduler import Scheduler, get_scheduler
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_json, read_object, refuse_types, sha256_of, write_json
from nlp_bench.immutable import immutable
from nlp_bench.seal import RUN, SUBMISSION

SCHEMA = "nlp-bench/submit/1"


def machine_identity() -> str | None:
    """Return what tells this machine and container from others of the same host name: boot id and PID namespace."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return None


@immutable
class Submission:
    """A run that was handed over, or is about to be, to a scheduler or to the local backend."""

    job_ids: list[str] = field(default_factory=list)
    """The scheduler's numbers, of a chain several, the first one first; none for a local run that is no job."""
    parts_left: int = 0  # jobs of a chain that are still to be queued, or started by the local backend after this one
    comment: str | None = None  # what the jobs carry; None for a local run
    pid: int = field(default_factory=os.getpid)  # the process that wrote this first
    script_pid: int | None = None  # the process group of a local run
    host: str = field(default_factory=socket.gethostname)  # where that process ran
    place: str | None = field(default_factory=machine_identity)  # which machine or container of that name it was
    submitted: str = field(default_factory=now)  # when it was handed over; no job of it is older
    attempts: list[dict[str, Any]] = field(default_factory=list)  # endings of earlier jobs that were lost, in order
    given_up: str | None = None  # why a pending job is cancelled (--max-pending)
    run_sha256: str | None = None  # of run.json, when this was first written
    unsure: str | None = None  # when the scheduler's answer left open whether it took the job; None where none did
    before: list[str] = field(default_factory=list)  # jobs of this folder that it knew before: none is of this one
    selection: dict[str, str] | None = None
    """The variables that said which cluster got the job (Scheduler.selects); None where nobody has noted them."""

    @property
    def job_id(self) -> str | None:
        """The last job."""
        return self.job_ids[-1] if self.job_ids else None

    @property
    def known(self) -> set[str]:
        """The jobs that are not the one which an intent is about: those before it."""
        return {*self.job_ids, *self.before, *(str(attempt["job_id"]) for attempt in self.attempts)}

    @property
    def is_from_here(self) -> bool:
        """Whether this machine, or container, wrote it: it may have another name by now. By the name where an identity is not known."""
        own = machine_identity()
        return self.host == socket.gethostname() if None in {own, self.place} else self.place == own

    @property
    def is_intent(self) -> bool:
        """Whether the run was about to be handed over, and nobody has written down that all of it was."""
        return bool(self.comment) and (not self.job_ids or self.parts_left > 0)

    @property
    def is_complete(self) -> bool:
        """Whether the scheduler has all jobs."""
        return bool(self.job_ids) and not self.is_intent

    def by(self, scheduler: Scheduler) -> "Submission":
        """Return it as `scheduler` has just submitted it: its job may be on a cluster that a router of the site has chosen."""
        known = scheduler.selection() if self.selection is None else self.selection
        return replace(self, selection={**known, **scheduler.routed}) if scheduler.routed else self

    def write(self, run_dir: Path) -> None:
        """Write submit.json. The first record seals run.json by its SHA-256; those after it keep that."""
        record = {"schema": SCHEMA, "job_id": self.job_id, **asdict(self)}
        if record["run_sha256"] is None:
            run_json = run_dir / RUN
            known = read_object(run_dir / SUBMISSION).get("run_sha256")
            record["run_sha256"] = known or (sha256_of(run_json) if run_json.is_file() else None)
        write_json(run_dir / SUBMISSION, record)


def read_submission(run_dir: Path) -> Submission | None:
    """Return the record of the submission, or None when the run was never handed over. Raises NlpBenchError on a damaged one."""
    path = run_dir / SUBMISSION
    if not path.exists():
        return None
    record = read_json(path, SCHEMA)
    refuse_types(
        record, path, job_id=str | None, **{name: _classes(hint) for name, hint in get_type_hints(Submission).items()}
    )
    if not all(isinstance(value, str) for value in (record["selection"] or {}).values()):
        raise NlpBenchError(f"{path}: selection holds what is no text; put the original back")
    for attempt in record["attempts"]:
        if not isinstance(attempt, dict):
            raise NlpBenchError(f"{path}: attempts holds {str(attempt)[:80]!r}; put the original back")
        refuse_types(attempt, path, job_id=str | None)
    lost = [attempt["job_id"] for attempt in record["attempts"]]
    job_ids = [job_id for job_id in (record["job_id"], *record["job_ids"], *lost) if job_id is not None]
    scheduler = scheduler_of(run_dir) if job_ids else None
    for job_id in job_ids:  # it becomes a word of the scheduler's commands
        if scheduler and not scheduler.job_id.fullmatch(str(job_id)):
            raise NlpBenchError(
                f"{path}: job_id is {str(job_id)[:80]!r}, which is no job of {scheduler.title}; put the original back"
            )
    record["before"] = [str(job_id) for job_id in record["before"]]
    record["job_ids"] = [str(job_id) for job_id in record["job_ids"] if job_id is not None]
    return Submission(**{one.name: record[one.name] for one in fields(Submission)})


def _classes(hint: Any) -> tuple[type, ...]:
    """Return the classes that a value of this type has: `list[str]` is a list, `dict[str, str] | None` a dict or None."""
    return tuple(get_origin(one) or one for one in (get_args(hint) if isinstance(hint, UnionType) else (hint,)))


def repeat_command(run_dir: Path) -> str:
    """Return what a person types to hand the run in this folder over again."""
    return f"nlp-bench submit --run {shlex.quote(str(run_dir / RUN))} --run-dir {shlex.quote(str(run_dir))}"


def asked_scheduler(run_dir: Path, submission: Submission) -> Scheduler:
    """Return the scheduler of the run, which is asked in the way that got its job, whatever is set in this terminal."""
    return scheduler_of(run_dir).as_submitted(submission.selection)


def scheduler_of(run_dir: Path) -> Scheduler:
    """Return the scheduler that the run in this folder was resolved for; Slurm where run.json does not tell."""
    launch = read_object(run_dir / RUN).get("launch")
    name = launch.get("launcher") if isinstance(launch, dict) else None
    return get_scheduler(name if isinstance(name, str) else "slurm")
