"""What the log and the job script of a run say about its end: the first error, the scheduler's notice, a loss that is not finite."""

import datetime as dt
import errno
import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import NamedTuple

from nlp_bench.clock import now
from nlp_bench.config.scheduler import Scheduler
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_json, refuse_types, write_json
from nlp_bench.immutable import immutable
from nlp_bench.last_start import ATTEMPT, FINISHED, ITERATION, STARTED, STARTED_ERR, enough_after, of_this_start, tail
from nlp_bench.logs.end_marks import NODE_FAILURE, NOTICE, failure, meaning
from nlp_bench.logs.reader import OURS, read_log
from nlp_bench.logs.record import NO_RECORDS, Records
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason

NAME, SCHEMA = "ended.json", "nlp-bench/ended/1"
NO_RECORD = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EFBIG})
"""What the system, or `opened`, says of a file that is not there or is no record; anything else may pass."""


@immutable
class ScriptRecord:
    """What a job script records when it ends."""

    exit_status: int  # its exit status
    signal: str  # the signal that told it to stop, for example TERM; empty where none did
    job_id: str | None  # the scheduler's number; None for a local run
    restarts: int  # how often the scheduler had started the job anew before
    elapsed_s: int | None = None
    """Seconds from the beginning of the script to its end; None where its clock was set back, or an earlier version wrote it."""


def write_record(run_dir: Path, record: ScriptRecord) -> None:
    """Write it; an earlier one in the folder is of an earlier job of the chain, or of an earlier start."""
    write_json(run_dir / NAME, {"schema": SCHEMA, **asdict(record), "ended": now()})


def read_record(run_dir: Path, job_id: str | None) -> ScriptRecord | None:
    """Return the record of this job, None for none or a damaged one; raises NlpBenchError where it cannot be read at the moment: what it says may decide."""
    path = run_dir / NAME
    try:
        record = {"elapsed_s": None, **read_json(path, SCHEMA)}
        refuse_types(record, path, exit_status=int, signal=str, job_id=str | None, restarts=int, elapsed_s=int | None)
    except NlpBenchError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno not in NO_RECORD:
            raise
        return None
    if record["job_id"] != job_id:
        return None
    if (record["elapsed_s"] or 0) < 0:  # bash without /proc/uptime counts by the time of day
        record["elapsed_s"] = None
    return ScriptRecord(**{field.name: record[field.name] for field in fields(ScriptRecord)})


ERROR = re.compile(
    r"^(?:\[(?P<local>\w+)\]: ?(?:\[rank\d+\]: ?)?|[EF]\d{4} [^\]]*\] )?(?P<text>(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|srun: (?:error: |unrecognized option |invalid option ).*"
    r"|nlp[-_]bench[\w. ]*: error: .*|libgomp: Thread creation failed.*"
    r"|Lmod has detected the following error: .*|\s*(?:\S+:)?ERROR:(?:\d+:)? (?:Unable to locate a modulefile|Module) .*"  # of modules
    r"|(?P<bash>\S*: line \d+: (?!warning: ).*: (?:command not found|No such file or directory|Permission denied|cannot execute.*))"
    r"|[^:]+: (?:error while loading shared libraries|symbol lookup error): .*|[^:]+: [^:]+: version `[^']+' not found .*"  # ld.so
    r"|[^:]*python[\d.]*: (?:No module named |Error while finding module specification for |can't open file ).*"  # python -m of an image without it
    r"|slurmstepd\S*: error: (?:pyxis: +\[ERROR\] |execve\(\): |(?:--task-prolog|TaskProlog) failed ).*|FATAL: .*))$"  # enroot under pyxis, Apptainer
)
LAST_ERROR = re.compile(r"^(?P<head>.*)Last error:\n(?P=head)(?P<text>.+)$", re.MULTILINE)
"""NCCL's own words, some lines below torch's "unhandled system error"."""
ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.*?time\s*: (\S+).*?rank\s*: (\d+).*?exitcode\s*: (-?\d+)", re.DOTALL
)
"""torchrun's failure summary, one per node: time, rank and exit code of the first failure that the node saw."""
FAILURES = re.compile(
    r"time\s*: \S+\s*host\s*: \S+\s*rank\s*: (\d+) \(local_rank: (\d+)\).*?exitcode\s*: (-?\d+)", re.DOTALL
)
"""Each rank of that summary, which lists those that failed, and none that left with status 0."""
ORDER = re.compile(
    r"nlp-bench: ranks ended in the order (?P<ranks>\d+ \(.*?); the first at (?P<at>[^\s;]+)(?:; within one look: (?P<together>[\d ]+))?"
)
"""Our launcher's line on a node whose torchrun failed (launch/nodes/supervise.py)."""
LEFT_ALONE = re.compile(
    r"^\[default(?P<local>\d+)\]:.*"
    r"(?:[Cc]onnection (?:closed|reset) by (?:remote )?peer|[Bb]roken pipe|Connection was likely closed|remote process exit)"
)
"""The error of a rank whose peer has gone: gloo's (transport/tcp/pair.cc), the store's (TCPStore.cpp), NCCL's (ncclRemoteError)."""
ENDED_WITH_A_PEER = frozenset({"1", "-6"})
"""Exit codes of a rank that found a peer gone: an exception of Python's, an abort of NCCL's watchdog."""
_AT_ONCE_S = 0.05  # seconds from the first end in which nobody has ended the others: torchrun looks ten times a second
STALLED = re.compile(r"nlp-bench: error: (stalled .*?)(?:; the run is ended)?$", re.MULTILINE)
RENDEZVOUS = re.compile(
    r"nlp-bench: error: rendezvous: (?P<ours>.*)|(?P<torchrun>Rendezvous\w*Error.*|(?:\w+\.)*Dist\w*Error: .*(?:clients joined|EADDRINUSE|timed out|Timed out).*)"
)
"""Nodes that did not meet: our own check, or torchrun's words (c10d: RendezvousTimeoutError; static: DistStoreError)."""
KILLED = "killed by SIGKILL: mostly Linux, out of memory (dmesg tells)"  # which leaves no message in the log
BEGUN = re.compile(r"([1-9]\d*)$", re.MULTILINE)  # the job number after STARTED_ERR; 0 is a local run


@immutable
class LogFacts:
    """What was found; None where nothing was."""

    last_iteration: int | None  # largest iteration in the log
    error: str | None  # the first line that names an error
    notice: str | None  # the scheduler's notice
    notice_outcome: Outcome | None  # what the notice means
    failure: Outcome  # how it failed, by its words, where it did
    memory_limit: str | None  # the scheduler's words when it killed the job for its memory
    prolog_failure: str | None  # the scheduler's words where a node could not be prepared for the job
    memory_kill: str | None  # the scheduler's words where Linux killed a process for lack of host memory
    not_finite: str | None  # where a loss was not finite
    cause: Reason | None = None
    """What brought the run down, where the log tells more than its exit status: a stall, a rendezvous, the rank that was first."""
    is_finished: bool = False  # whether the trainer logged after its last iteration that it was done
    enough_at: int | None = None  # the iteration after which the trainer said that --until was met
    first_iteration: int | None = None  # iteration of the first line of the last start
    num_starts: int = 0  # starts of the ranks in the log that have iterations: torchrun may restart them inside a job
    failed_node: str | None = None  # the node of the task that failed first, by srun's words
    failed_status: int | None = None  # the exit status of that task, where they give one
    num_failed_nodes: int = 0  # nodes with a task that exited by itself and not well, in all starts of the run
    ranks_failed: bool = False  # whether torchrun or srun says that ranks failed
    is_step_cancelled: bool = False  # whether the step was cancelled before any of its tasks had failed


def gather(run_dir: Path, scheduler: Scheduler) -> LogFacts:
    """Read the ends of job.out and job.err and return what they say."""
    text = _own_tail(run_dir / "job.out")
    out = of_this_start(text, STARTED)
    whole_err = _own_tail(run_dir / "job.err")
    err = of_this_start(whole_err, STARTED_ERR)
    said = f"{err}\n{out}"  # a site's srun may print what it says, and all ranks' errors, to stdout
    lines = said.splitlines()
    is_finished = any(FINISHED.match(line) for line in lines)
    notices = _notices(lines, begun.group(1) if (begun := BEGUN.match(err)) else "")
    step = None if is_finished else _cancelled_step(scheduler, lines, notices)
    notice = _last_notice(notices) or step
    task, tasks = scheduler.task_ended.search(said), scheduler.task_ended.finditer(f"{whole_err}\n{text}")
    node = next((line for line in lines if NODE_FAILURE.search(line)), None)
    # Before this attempt has logged, all records are of an earlier one.
    _, mark, behind = text.rpartition(f"\n{ATTEMPT}")
    has_logged = not mark or re.search(ITERATION, behind) is not None
    num_starts, records = _last_start(run_dir / "job.out") if has_logged else (0, NO_RECORDS)
    exceeded = next(filter(None, map(scheduler.memory_limit.search, lines)), None)
    failed = {rank: (local, status) for rank, local, status in FAILURES.findall(said)}
    first = _first_failed_rank(said, lines, failed)
    broken = records.first_broken()
    return LogFacts(
        last_iteration=records[-1].iteration if records else None,
        first_iteration=records[0].iteration if records else None,
        error=_first_error(lines, said, failed, first),
        notice=notice.group(0) if notice else node,
        notice_outcome=_meaning(notice, node),
        failure=failure(lines),
        memory_limit=exceeded and exceeded.group(),
        prolog_failure=next(filter(scheduler.prolog_failure.search, lines), None),
        memory_kill=next(filter(scheduler.memory_kill.search, lines), None),
        not_finite=f"the loss is not finite at iteration {broken.iteration}" if broken else None,
        cause=_cause(scheduler, said, lines, trained=bool(records)) or _rank_that_failed(failed, first),
        is_finished=is_finished,
        enough_at=enough_after(lines),
        num_starts=num_starts,
        failed_node=task and task["node"],
        failed_status=int(task["status"]) if task and task["status"] else None,
        num_failed_nodes=len({one["node"] for one in tasks if 0 < int(one["status"] or 0) < 128}),
        ranks_failed=bool(failed or task),
        is_step_cancelled=step is not None,
    )


def _own_tail(path: Path) -> str:
    """Return the end of a log. A link to somebody else's file is not read: its lines would go into records that the folder's owner sees."""
    try:
        is_foreign = path.is_symlink() and path.stat().st_uid != path.parent.stat().st_uid
    except OSError:  # a link to nothing
        is_foreign = True
    return "" if is_foreign else tail(path)


def _meaning(notice: "re.Match[str] | None", node: str | None) -> Outcome | None:
    if notice is None:
        return Outcome.NODE_FAIL if node else None
    word = meaning(notice)
    return Outcome.NODE_FAIL if node and word is Outcome.CANCELLED else word


Failed = dict[str, tuple[str, str]]  # rank to its local rank and exit code


def _cause(scheduler: Scheduler, err: str, lines: list[str], *, trained: bool) -> Reason | None:
    """Return what brought the run down before or beside its ranks: a stall, a rendezvous, a starter that started nothing."""
    if found := STALLED.search(err):
        return Reason("stalled", found.group(1))
    causes = sorted(ROOT_CAUSE.findall(err))
    for found in filter(None, map(RENDEZVOUS.search, lines)):
        if found.group("ours"):
            return Reason("rendezvous", f"rendezvous: {found.group('ours')}")
        if not trained and not causes:  # where ranks had started, their peers' agents lose each other at the end
            return Reason("rendezvous", f"rendezvous: the nodes did not meet: {found.group('torchrun')}")
    return None if trained or causes else scheduler.why_not_started(err)


def _rank_that_failed(failed: Failed, first: str | None) -> Reason | None:
    """Return the root cause in a rank: torchrun names the first one that failed, not one that left before it with status 0."""
    if failed and first and first not in failed:
        text = f"rank {first} ended first, without an error of its own (an early exit with status 0); the others failed for it"
        return Reason("early-exit", text)
    status = failed[first][1] if first and failed else ""
    text = f"killed by signal {status[1:]} (rank {first})"
    code = {"-7": "bus-error", "-9": "killed", "-24": "cpu-time"}.get(status, "signal")  # 24: SIGXCPU
    return Reason(code, text) if status.startswith("-") else None


def _first_error(lines: list[str], err: str, failed: Failed, first: str | None) -> str | None:
    """Return the line that names the error of the rank that failed first, and its exit code."""
    rank = first or ""
    if rank not in failed:  # it left without an error: its peers' tells more
        rank = min(ROOT_CAUSE.findall(err), default=("", "", ""))[1]
    local, code = failed.get(rank, ("", ""))
    found = list(filter(None, map(ERROR.match, lines)))
    # Ranks that have begun tell more than bash, which may miss a program without harm.
    is_rank = bool(rank) or any(not one["bash"] and not one["text"].startswith("srun: ") for one in found)
    errors = [(one["local"], one["text"]) for one in found if not (one["bash"] and is_rank)]
    own = [text for prefix, text in errors if local and prefix == f"default{local}"]
    # srun's line on the end of a task may come before slurmstepd's, which says why
    starters = [text for _, text in errors if text.startswith("slurmstepd")]
    parts = (own or starters or [text for _, text in errors])[:1]
    told = LAST_ERROR.finditer("\n".join(lines))
    parts += [one["text"] for one in told if not local or one["head"].startswith(f"[default{local}]")][:1]
    parts += [f"rank {rank} exitcode {code}"] if rank else []
    parts += [KILLED] if code == "-9" else []
    return "; ".join(parts) or None


class _Candidate(NamedTuple):
    """A rank that may have failed first; the least one has."""

    doubt: int  # 0: none; 1: it ended without an error, within one look with others; 2: the end of a peer has ended it
    second: str  # of its end, as torchrun prints it
    at: str  # the time of the first end of its node
    place: int  # in the order of its node
    rank: str


def _first_failed_rank(err: str, lines: list[str], failed: Failed) -> str | None:
    """Return the rank whose failure caused the others', over all nodes; None where the logs do not name the ranks that failed.

    torchrun's root cause is one of the ranks that failed within a second or so; our launcher logs their order on its node. But a rank
    may lose its connection, and end, before its peer has ended: one that logs this, or was terminated, counts only if all did.
    """
    left_alone = {found.group("local") for line in lines if (found := LEFT_ALONE.match(line))}
    candidates: list[_Candidate] = []
    seen: set[str] = set()

    def is_consequence(rank: str) -> bool:
        local, status = failed[rank]
        return status == "-15" or (status in ENDED_WITH_A_PEER and local in left_alone)

    for order in ORDER.finditer(err):
        after_s = {rank: float(seconds) for rank, seconds in re.findall(r"(\d+) \(\+(\d+\.\d+)", order.group("ranks"))}
        ranks = list(after_s)
        seen.update(ranks)
        together, at = (order.group("together") or ranks[0]).split(), order.group("at")
        second = _as_torchrun_prints_it(at)
        for place, rank in enumerate(ranks):
            if rank in failed:
                own_place = 0 if rank in together else place
                candidates.append(_Candidate(2 * is_consequence(rank), second, at, own_place, rank))
            elif rank in together or after_s[rank] < _AT_ONCE_S:
                # It left with status 0 while others needed it, or was ended in the same look.
                candidates.append(_Candidate(int(together != [rank]), second, at, 0, rank))
    for second, rank, _ in ROOT_CAUSE.findall(err):
        if rank not in seen and rank in failed:
            candidates.append(_Candidate(2 * is_consequence(rank), second, "without an order", 0, rank))
    return min(candidates).rank if candidates else None


def _as_torchrun_prints_it(at: str) -> str:
    """Return a time in torchrun's form: whole seconds of local time. A damaged one stays as it is."""
    try:
        return dt.datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d_%H:%M:%S")
    except (ValueError, OverflowError):
        return at


def _last_start(log: Path) -> tuple[int, Records]:
    """Return how many starts of the program `log` holds, and the whole records of the last one; none where there is no log."""
    attempts = read_log(str(log), only=OURS).attempts if log.is_file() else ()
    return len(attempts), attempts[-1].records.chosen(attempts[-1].records.whole) if attempts else NO_RECORDS


Notices = list[tuple[int, "re.Match[str]"]]  # slurmstepd's notices of one job, each with the number of its line


def _notices(lines: list[str], own: str) -> Notices:
    """Return the notices of the job `own`, the one that has begun last; a node that was given up may write of the job before it even later."""
    found = [(number, match) for number, line in enumerate(lines) if (match := NOTICE.search(line))]
    return [(number, match) for number, match in found if not own or match["job"] == own or not match["job"].isdigit()]


def _last_notice(notices: Notices) -> "re.Match[str] | None":
    """Return the notice with a cause, else the job's own: srun cancels a step too, whenever a rank fails."""
    found = [match for _, match in notices if match["cause"] or match["what"] == "JOB"]
    return next((match for match in found if match["cause"]), found[-1] if found else None)


def _cancelled_step(scheduler: Scheduler, lines: list[str], notices: Notices) -> "re.Match[str] | None":
    """Return the notice of a step that was cancelled although the starter had no reason to end it."""
    ends = next((number for number, line in enumerate(lines) if scheduler.ends_step.search(line)), len(lines))
    return next((match for number, match in notices if match["what"] == "STEP" and number < ends), None)
