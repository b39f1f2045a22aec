"""What the log of a run says about its end: the first error, Slurm's notice, a loss that is not finite."""

import re
from dataclasses import dataclass
from pathlib import Path

from nlp_bench.logs.reader import OURS, read_log
from nlp_bench.logs.record import NO_RECORDS, Records
from nlp_bench.outcome import Outcome

NOTICE = re.compile(
    r"\*\*\* (?P<what>JOB|STEP) \S+ .*?(?:CANCELLED|FAILED) AT \S+(?: DUE TO (?P<cause>[A-Z ]+?)(?:,[^*]*)?)? \*\*\*"
)
"""slurmstepd's notice in the error file, for example: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"""
CAUSES = {
    None: Outcome.CANCELLED,
    "TIME LIMIT": Outcome.TIMEOUT,
    "PREEMPTION": Outcome.PREEMPTED,
    "NODE FAILURE": Outcome.NODE_FAIL,
    "JOB REQUEUE": Outcome.PREEMPTED,
}
OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|CUDA out of memory|oom[-_]kill|OOM Killed|Out Of Memory|std::bad_alloc|DefaultCPUAllocator: can't allocate"
)
ERROR = re.compile(
    r"^(?:\[\w+\]: ?)?(?P<text>(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|srun: error: .*|nlp[-_]bench[\w. ]*: error: .*|\S*: line \d+: .*: (?:command not found|No such file or directory)))$"
)
ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.*?time\s*: (\S+).*?rank\s*: (\d+).*?exitcode\s*: (-?\d+)", re.DOTALL
)
"""torchrun's failure summary, one per node: time, rank and exit code of the first failure that the node saw."""
KILLED = "killed by SIGKILL: mostly Linux, out of memory (dmesg tells); try a smaller micro batch, or more ranks"
"""SIGKILL leaves no word of its own in the log."""
TAIL_BYTES = 2_000_000
"""The end of a log is where its end is told; an error flood before that is not read."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was found; None where nothing was."""

    last_iteration: int | None
    """Largest iteration in the log."""
    error: str | None
    """The first line that names an error."""
    slurm: str | None
    """Slurm's notice."""
    slurm_outcome: Outcome | None
    """What the notice means."""
    out_of_memory: bool
    """Whether memory was exhausted."""
    not_finite: str | None
    """Where a loss was not finite."""


def gather(run_dir: Path) -> Evidence:
    """Read the ends of job.out and job.err and return what they say."""
    out, err = _tail(run_dir / "job.out"), _tail(run_dir / "job.err")
    lines = (err + "\n" + out).splitlines()
    notice = _last_notice(lines)
    records = last_attempt(run_dir / "job.out")
    broken = records.first_broken()
    return Evidence(
        last_iteration=records[-1].iteration if records else None,
        error=_first_error(lines, err),
        slurm=notice.group(0) if notice else None,
        slurm_outcome=CAUSES.get(notice.group("cause"), Outcome.CANCELLED) if notice else None,
        out_of_memory=any(OUT_OF_MEMORY.search(line) for line in lines),
        not_finite=f"the loss is not finite at iteration {broken.iteration}" if broken else None,
    )


def _first_error(lines: list[str], err: str) -> str | None:
    """Return the first line that names an error and, by torchrun's summary, the rank that failed first."""
    parts = [found.group("text") for line in lines if (found := ERROR.match(line))][:1]
    causes = sorted(ROOT_CAUSE.findall(err))  # by time: the first failure dragged the others along
    parts += [f"rank {causes[0][1]} exitcode {causes[0][2]}"] if causes else []
    parts += [KILLED] if causes and causes[0][2] == "-9" else []
    return "; ".join(parts) or None


def last_attempt(log: Path) -> Records:
    """Return the whole records of the last start of the program in `log`; none where there is no log."""
    if not log.exists():
        return NO_RECORDS
    attempts = read_log(str(log), only=OURS).attempts
    return attempts[-1].records.chosen(attempts[-1].records.whole) if attempts else NO_RECORDS


def _last_notice(lines: list[str]) -> "re.Match[str] | None":
    """Return the notice with a cause, else the job's own: srun cancels a step too, whenever a rank fails."""
    found = [match for line in lines if (match := NOTICE.search(line))]
    found = [match for match in found if match.group("cause") or match.group("what") == "JOB"]
    return next((match for match in found if match.group("cause")), found[-1] if found else None)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""
