"""How a run ended: decided from the job's state, the exit status and the log together (RULES), then written once.

outcome.json is the record; the marker `ready` (JUBE's done file) is written after it and carries its hash. A training
step always ends in `ready`, with the outcome inside, so that a failed point stays a row of JUBE's table.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

from nlp_bench import files, last_start, reason, schemas, seal
from nlp_bench.clock import now
from nlp_bench.config.run import Run, value_of
from nlp_bench.config.scheduler import LOCAL, Job, Scheduler, State, get_scheduler
from nlp_bench.config.values import clock
from nlp_bench.escape import one_line
from nlp_bench.immutable import immutable
from nlp_bench.launch import starts
from nlp_bench.launch.end.log_facts import LogFacts, gather
from nlp_bench.marker import read_outcome, write_marker
from nlp_bench.measure.workload import lookup
from nlp_bench.outcome import Outcome, read_word
from nlp_bench.reason import Reason
from nlp_bench.walk import RANKS

DUE_TO_SIGNAL = " DUE TO SIGNAL "
"""Before the name of the signal that `submit` got, in the notice of the local backend; its script is then ended by TERM, whatever came."""
_FIRST_SIGNAL = re.compile(f"{DUE_TO_SIGNAL}([A-Z]+)")
OUT_OF_TIME = ("USR1", "USR2", "ALRM", "XCPU")
"""Signals by which a job is told that its time is nearly over: `sbatch --signal=B:USR1@60`, limits of CPU time."""


@immutable
class Ending:
    """How one run ended."""

    outcome: Outcome
    reasons: tuple[Reason, ...] = ()  # why; the remedy goes by their codes (launch/end/advice.py)
    evidence: str | None = None  # the line of the log that shows it
    sources: dict[str, Any] = field(default_factory=dict, compare=False)
    """Which source said what: `decided_by`, and what the scheduler, the job script and the log had to say."""

    @classmethod
    def of(cls, outcome: Outcome, code: str, text: str, evidence: str | None = None) -> "Ending":
        """Return an ending with one reason."""
        return cls(outcome=outcome, reasons=(Reason(code, text),), evidence=evidence)

    @property
    def texts(self) -> list[str]:
        """The reasons in sentences for a person."""
        return reason.texts(self.reasons)

    def also(self, *reasons: Reason) -> "Ending":
        """Return it with further reasons."""
        return replace(self, reasons=(*self.reasons, *reasons))

    def text(self) -> str:
        """Return outcome, reasons and evidence in one line that a terminal shows as it is: a log may hold anything."""
        said = [*self.texts, *([self.evidence] if self.evidence else [])]
        return one_line(self.outcome.value + (f": {'; '.join(said)}" if said else ""))


@immutable
class Facts:
    """What is known when a run has ended."""

    iterations: int  # iterations that the run owes: those of run.json, fewer where its own --until was met before
    first_iteration: int | None  # the last iteration that the log may begin with; None where the run may resume
    exit_status: int | None  # exit status of the job; None where it is lost
    job: Job | None  # what the scheduler says; None where there is none or it does not answer
    signal: str  # the signal that told the job script to stop; empty where none did
    run_log: Path  # job.out
    log: LogFacts  # what the logs say
    scheduler: Scheduler

    @property
    def last_iteration(self) -> int:
        """The last iteration in the log, 0 where there is none."""
        return self.log.last_iteration or 0

    @property
    def is_starters_signal(self) -> bool:
        """Whether the exit status may be no more than the signal with which srun, or slurmstepd, has ended healthy ranks."""
        is_script = self.job is not None and self.job.is_killed
        return self.exit_status in {128 + SIGKILL, 128 + SIGTERM} and not is_script

    def sources(self, decided_by: str) -> dict[str, Any]:
        """Return which source said what, for outcome.json."""
        return {
            "decided_by": decided_by,
            self.scheduler.name: self.job.record() if self.job else None,
            "script": {"exit_status": self.exit_status, "signal": self.signal or None},
            "log": {
                "last_iteration": self.log.last_iteration,
                "starts": self.log.num_starts,
                "notice": self.log.notice,
                "error": self.log.error,
            },
        }


def decide(run: Run, run_dir: Path, *, exit_status: int | None, job: Job | None = None, signal: str = "") -> Ending:
    """Decide how a run ended, by the first of RULES that applies, else VALID; `job` is the scheduler's answer. Raises NlpBenchError where its log was packed."""
    seal.refuse_packed(run_dir)
    scheduler = get_scheduler(run.launch.launcher)
    log = gather(run_dir, scheduler)
    is_enough = run.tuning.until is not None and log.is_finished and log.enough_at == log.last_iteration
    resumes = any(value_of(run.tuning.train_args, option) for option in ("--load", "--save"))
    facts = Facts(
        iterations=(log.last_iteration or 0) if is_enough else run.training.iterations,
        first_iteration=None if resumes else run.training.log_interval,
        exit_status=exit_status,
        job=job,
        signal=signal,
        run_log=run_dir / seal.LOG,
        log=log,
        scheduler=scheduler,
    )
    found = next(((name, ending) for name, rule in RULES.items() if (ending := rule(facts))), None)
    name, ending = found or ("exit status and log", Ending(outcome=Outcome.VALID))
    ending = replace(ending, sources=facts.sources(name.format(scheduler=scheduler.title)))
    return ending.also(*_other_code(run, run_dir), *_missing_modules(run, run_dir), *_lowered_limit(run, job, ending))


def _lowered_limit(run: Run, job: Job | None, ending: Ending) -> list[Reason]:
    """Say so where the job that ran out of time had less than was asked for."""
    if ending.outcome is not Outcome.TIMEOUT or job is None or job.limit_s is None or job.limit_s >= run.launch.limit_s:
        return []
    text = f"it was given {clock(round(job.limit_s))}, not {run.launch.timelimit} as asked for: a wrapper or plugin of the site, or scontrol, lowered it"
    return [Reason("lowered-limit", text)]


def _other_code(run: Run, run_dir: Path) -> list[Reason]:
    """Say so where the code changed since run.json was made, at submission or by `check`: it then names a program that did not run."""
    ran = files.read_object(run_dir / "environment.json").get("nlp_bench")
    ran = ran if isinstance(ran, dict) else {}
    started, submitted = ran.get("code_sha256"), run.nlp_bench.code_sha256
    if not started or not submitted or started == submitted:
        return []
    then, now_ran = (one_line(str(commit or "unknown"))[:60] for commit in (run.nlp_bench.commit, ran.get("commit")))
    hashes = f"SHA-256 of the code: {submitted[:12]}, {one_line(str(started))[:12]}"
    text = f"nlp-bench was changed between the making of run.json (commit {then}) and the start (commit {now_ran}; {hashes})"
    return [Reason("other-code", text)]


def _missing_modules(run: Run, run_dir: Path) -> list[Reason]:
    """Say so where a module that run.json asks for was not loaded: some module systems print an error and end with status 0.

    `GCC` stands for whatever version is the default, and `CUDA/12` for the newest of them. Where no module system says what is loaded (null), none
    is: its program is not on the node. A container may hide it.
    """
    loaded = files.read_object(run_dir / "environment.json").get("modules", "")
    if loaded is None and not run.system.container.image:
        loaded = []
    if not isinstance(loaded, list):
        return []
    asked = {name: name if "/" in name else f"{name}/" for name in run.system.software.modules}
    missing = [
        name for name, begin in asked.items() if not any(one == name or str(one).startswith(begin) for one in loaded)
    ]
    if not missing:
        return []
    known = one_line(" ".join(map(str, loaded)))[:400] or "none"
    text = f"the job asked for {', '.join(map(one_line, missing))}, which the module system did not load (loaded: {known}); job.err may say why"
    return [Reason("missing-module", text)]


def _memory_limit(facts: Facts) -> Ending | None:
    if facts.exit_status == 0 or facts.log.memory_limit is None:
        return None
    text = f"{facts.scheduler.title} killed it for more host memory than it had asked for; ask for more (system file: slurm.mem)"
    return Ending.of(Outcome.OUT_OF_MEMORY, "host-memory", text, facts.log.memory_limit)


def _prolog(facts: Facts) -> Ending | None:
    """Return NODE_FAIL where a node could not be prepared for the job, which the scheduler took back, or for its ranks."""
    line, job = facts.log.prolog_failure, facts.job
    never_ran = facts.exit_status is None and job is not None and job.outcome is Outcome.CANCELLED
    no_rank = bool(facts.exit_status) and not facts.last_iteration and not facts.signal
    if line is None or not (never_ran or no_rank):
        return None
    where = (not never_ran and facts.log.failed_node) or (job and job.node_name) or "its node"
    before = f"{job.word} before it started: " if job and never_ran else ""
    text = f"{facts.scheduler.title}: {before}the prolog of {where} failed"
    return Ending.of(Outcome.NODE_FAIL, "prolog", text, line)


def _not_started(facts: Facts) -> Ending | None:
    """Decide on a job that got nodes and is called cancelled before its script ran: it could not be started there, or somebody was as quick."""
    job = facts.job
    if job is None or job.outcome is not Outcome.CANCELLED or not job.node_name:
        return None
    title = facts.scheduler.title
    if job.is_unstarted:
        text = f"{title} gave it nodes ({job.node_name}) and could not start it there ({job.word})"
        return Ending.of(Outcome.NODE_FAIL, "not-started", text)
    if facts.run_log.is_file():
        return None
    text = f"{title}: {job.word} before it started, when it had been given nodes ({job.node_name})"
    return Ending.of(Outcome.CANCELLED, "not-started", text)


def _state(facts: Facts) -> Ending | None:
    job = facts.job
    if job is None:
        return None
    word, said = job.outcome, job.word
    if word is None and facts.exit_status != 0:
        word, said = job.reason_outcome, job.reason
    if word in {None, Outcome.FAILED}:
        return None
    said = f"{facts.scheduler.title}: {said}"
    if job.state is State.UNKNOWN:
        said += ", a state that this nlp-bench does not know"
    if not facts.run_log.is_file():
        said += " before it started"
    if word is Outcome.OUT_OF_MEMORY:
        return Ending.of(word, "host-memory", said, facts.log.memory_kill or facts.log.notice)
    if facts.log.is_finished and facts.last_iteration >= facts.iterations:
        return Ending.of(
            word, "hung-at-its-end", f"{said} after the last iteration, with the training done", facts.log.notice
        )
    return Ending.of(word, "state", said, facts.log.notice)


def _exit_code(facts: Facts) -> Ending | None:
    """Decide by an exit code with which the scheduler reports a fault of its own in place of a signal."""
    if facts.job is None or facts.job.fault is None:
        return None
    outcome, why = facts.job.fault
    said = Reason(why.code, why.text + facts.job.lost_folder())
    return Ending(outcome=outcome, reasons=(said,), evidence=facts.log.error)


def _notice(facts: Facts) -> Ending | None:
    if facts.exit_status == 0 and facts.last_iteration >= facts.iterations:
        return None  # it was done; srun itself ends with status 0 where a node is lost
    word, code = facts.log.notice_outcome, "told-by-signal" if facts.signal else "from-outside"
    if facts.signal in OUT_OF_TIME and word in {None, Outcome.CANCELLED}:
        text = f"the job was told by signal {facts.signal} that its time is nearly over"
        return Ending.of(Outcome.TIMEOUT, code, text, facts.log.notice)
    step = re.search(r"\*\*\* STEP (\S+)", facts.log.notice or "")
    if step and word is Outcome.CANCELLED and not facts.signal:
        if not facts.is_starters_signal or facts.log.memory_kill:
            return None
        text = f"the step was cancelled from outside (scancel {step.group(1)})"
        return Ending.of(word, code, text, facts.log.notice)
    if word is None and not facts.signal:
        return None
    came = _FIRST_SIGNAL.search(facts.log.notice or "")
    name = came.group(1) if came else facts.signal
    by = f" by signal {name}" if name else ""
    word = word or Outcome.CANCELLED
    if word is Outcome.CANCELLED and facts.scheduler.name == LOCAL:
        code = "hang-up" if name == "HUP" else "ended-here"
        if code == "ended-here" and (around := _job_around(facts.run_log.parent)):
            code, by = "ended-in-job", f"{by}, inside job {around}"
    return Ending.of(word, code, f"the job was ended from outside{by}", facts.log.notice)


def _job_around(run_dir: Path) -> str | None:
    """Return the number of the job of PBS, LSF or Grid Engine inside which a local run was started; None for none."""
    record = files.read_object(run_dir / "environment.json")
    found = ((name, lookup(record, f"variables.{name}")) for name in ("PBS_JOBID", "LSB_JOBID", "JOB_ID"))
    return next((f"{one_line(number)[:60]} ({name})" for name, number in found if number), None)


def _not_finite(facts: Facts) -> Ending | None:
    if facts.log.not_finite is None:
        return None
    return Ending.of(Outcome.INVALID, "not-finite", facts.log.not_finite, facts.log.error)


def _exit_status(facts: Facts) -> Ending | None:
    failed = facts.job is not None and facts.job.outcome is Outcome.FAILED
    if facts.exit_status in {0, None} and not failed:
        return None
    first = facts.log.failed_status
    status = first if first and facts.is_starters_signal else facts.exit_status
    if status is None:
        said = f"{facts.scheduler.title}: {facts.job.word}" if facts.job else ""
    else:
        said = _status_in_words(status) if status == facts.exit_status else _first_task(facts)
    if facts.exit_status == 128 + 9 and facts.job and facts.job.is_memory_suspect:
        said += " (mostly out of memory)"
    is_killed = _signal_of(status) == SIGKILL and not facts.log.is_step_cancelled
    is_one_node = status != facts.exit_status and not facts.last_iteration and facts.log.num_failed_nodes < 2
    return _failed(facts, said, "killed" if is_killed else "one-node" if is_one_node else "exit-status")


def _first_task(facts: Facts) -> str:
    """Return in words how the task ended that failed first, by srun's words; empty where they do not say it."""
    first = facts.log.failed_status
    return f"{_status_in_words(first)} on {facts.log.failed_node}" if first else ""


def _failed(facts: Facts, status: str, code: str = "exit-status") -> Ending:
    """Return the ending of a run that failed, with its `status` in words, and its cause; the `code` is for one that the log does not tell."""
    cause = facts.log.cause or Reason(code, "")
    text = ", ".join(filter(None, (cause.text, status, _last(facts))))
    if facts.log.memory_kill:
        return Ending.of(Outcome.OUT_OF_MEMORY, "host-memory", text, facts.log.memory_kill)
    return Ending.of(facts.log.failure, cause.code, text, facts.log.error)


def _last(facts: Facts) -> str:
    return f"last iteration {facts.last_iteration or 'none'}"


def _failed_after_the_end(facts: Facts) -> Ending | None:
    """Return VALID for a program that failed after its last iteration: the number is kept, the failure noted."""
    if facts.exit_status in {0, None} or facts.signal or not facts.log.is_finished:
        return None
    if facts.last_iteration < facts.iterations or facts.log.notice_outcome or _without_beginning(facts):
        return None
    text = f"completed with errors: {_status_in_words(facts.exit_status or 0)} after the last iteration, when the training was done"
    return Ending.of(Outcome.VALID, "completed-with-errors", text, facts.log.error)


def _signal_of(status: int | None) -> int | None:
    """Return the signal that an exit status tells of, None for another; Python counts a signal negative, a shell from 128 up."""
    number = 0 if status is None else -status if status < 0 else status - 128
    return number if 0 < number < 65 else None


def _status_in_words(status: int) -> str:
    """Return an exit status for a person."""
    number = _signal_of(status)
    return f"killed by signal {number}" if number else f"exit status {status}"


def _incomplete(facts: Facts) -> Ending | None:
    if facts.exit_status is None:
        why = f" ({facts.job.reason})" if facts.job and facts.job.reason else ""
        is_gone = facts.job is not None and facts.job.state is State.GONE
        gone = f"{facts.scheduler.title} no longer knows the job{why}, and " if is_gone else ""
        return Ending.of(Outcome.UNKNOWN, "no-status", f"{gone}the exit status is lost; {_last(facts)}")
    if facts.last_iteration >= facts.iterations:
        return None
    if facts.log.ranks_failed:
        what = _first_task(facts) or "ranks failed"
        return _failed(facts, f"{what}, though {facts.scheduler.starter_name} ended with exit status 0")
    other = facts.job.other_log() if facts.job and not facts.run_log.is_file() else ""
    if other:
        text = f"{facts.scheduler.title} writes the log to {other}: a wrapper or plugin of the site sets --output"
        return Ending.of(Outcome.INCOMPLETE, "other-log", text, facts.log.error)
    lost = _lost_end(facts) if facts.last_iteration else _lost_log(facts.run_log)
    text = f"{lost}{_last(facts)} of {facts.iterations}"
    return Ending.of(Outcome.INCOMPLETE, "lost-log" if lost else "stops-early", text, facts.log.error)


def _lost_log(log: Path) -> str:
    """Say that the log is gone, or has lost the first line that the job script prints; nothing where it has it."""
    if not log.is_file():
        return f"{log.name} is gone: it was removed or moved while the run wrote to it; "
    if last_start.jobs(log):
        return ""
    return f"{log.name} is not what the run has written: it was emptied, or removed and replaced, meanwhile; "


_RANK_BYTES = 1 << 16  # of the end of each rank's log, of which a job may have thousands


def _lost_end(facts: Facts) -> str:
    """Say that a rank's own log of the last start goes on where job.out ends; nothing where none does."""
    folders = (facts.run_log.parent / RANKS).glob("*")
    latest = max(folders, key=lambda one: one.stat().st_mtime, default=None)
    for path in sorted(latest.glob("**/stdout.log")) if latest else ():
        done = max(map(int, re.findall(last_start.ITERATION, last_start.tail(path, _RANK_BYTES))), default=0)
        if done > facts.last_iteration:
            return f"{path} goes on to iteration {done}: {facts.run_log.name} was replaced (by an editor, sed -i), or cut, while the run wrote to it; "
    return ""


def _without_beginning(facts: Facts) -> Ending | None:
    """Return INVALID for a log that has lost its beginning: what is left may be the fast part."""
    first, latest = facts.log.first_iteration, facts.first_iteration
    if first is None or latest is None or first <= latest or facts.log.num_starts > 1:
        return None
    text = (
        f"job.out begins with iteration {first}, not with iteration {latest} or before: it was emptied, moved or cut while the run wrote to it; "
        "run it again, and keep programs that rotate logs away from the folder"
    )
    return Ending.of(Outcome.INVALID, "no-beginning", text)


def _suspended(facts: Facts) -> Ending | None:
    suspended_s = facts.job.suspended_s if facts.job else None
    if not suspended_s:
        return None
    text = f"{facts.scheduler.title} suspended the job for {suspended_s:.0f} s: the times in its log have a hole; run it again"
    return Ending.of(Outcome.INVALID, "suspended", text)


RULES: dict[str, Callable[[Facts], Ending | None]] = {
    "{scheduler}'s memory limit": _memory_limit,
    "{scheduler}'s words in the log": _prolog,
    "{scheduler}'s state before the start": _not_started,
    "{scheduler}'s state": _state,
    "{scheduler}'s exit code": _exit_code,
    "{scheduler}'s notice in the log": _notice,
    "loss in the log": _not_finite,
    "end of the training in the log": _failed_after_the_end,
    "exit status": _exit_status,
    "iterations in the log": _incomplete,
    "beginning of the log": _without_beginning,
    "{scheduler}'s suspension": _suspended,
}
"""The rules in their order, under the names that outcome.json gives them as `decided_by`."""


def write_ending(
    run_dir: Path,
    ending: Ending,
    *,
    exit_status: int | None,
    job_id: str | None,
    attempts: Sequence[dict[str, Any]] = (),
) -> None:
    """Write outcome.json and then the marker, unless an earlier decision stands; of two writers at once the first one wins.

    `attempts` are the endings of the jobs before this one, each with its own number. Raises ValueError for MEASURED, the word for a log
    that nobody has seen end.
    """
    if ending.outcome is Outcome.MEASURED:
        raise ValueError("MEASURED is no ending of a run of ours")
    tries = starts.read(run_dir)
    reasons = (*ending.reasons, *starts.reasons_of(run_dir, tries, job_id))
    record: dict[str, Any] = {
        "schema": schemas.OUTCOME,
        "outcome": ending.outcome.value,
        "reasons": reason.texts(reasons),
        "codes": [one.code for one in reasons],
        "evidence": ending.evidence,
        "exit_status": exit_status,
        "job_id": job_id,
        "ended": now(),
        "sources": ending.sources,
        "attempt": len(attempts) + 1,
        "attempts": list(attempts),
        "starts": tries,
        "sealed": seal.at_end(run_dir),
    }
    files.write_json(run_dir / seal.OUTCOME, record, once=True)
    write_marker(run_dir)


def read_ending(run_dir: Path) -> Ending | None:
    """Return the decision that stands, or None while there is none."""
    path = run_dir / seal.OUTCOME
    if not path.exists():
        return None
    record = read_outcome(run_dir)
    files.refuse_types(record, path, outcome=str, reasons=list, evidence=str | None)
    sources = record.get("sources")
    return Ending(
        outcome=read_word(record["outcome"], path),
        reasons=reason.recorded(record),
        evidence=record["evidence"],
        sources=sources if isinstance(sources, dict) else {},
    )
