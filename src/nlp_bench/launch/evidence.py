"""What the log of a run says about its end: the first error, Slurm's notice, a loss that is not finite."""

import re
from dataclasses import dataclass
from pathlib import Path

from nlp_bench.outcome import Outcome

NOTICE = re.compile(r"\*\*\* (?:JOB|STEP) \S+ .*?(?:CANCELLED|FAILED) AT \S+(?: DUE TO (?P<cause>[A-Z /]+?))? \*\*\*")
"""slurmstepd's notice in the error file, for example: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"""
CAUSES = {
    None: Outcome.CANCELLED,
    "TIME LIMIT": Outcome.TIMEOUT,
    "PREEMPTION": Outcome.PREEMPTED,
    "NODE FAILURE": Outcome.NODE_FAIL,
    "JOB REQUEUE": Outcome.PREEMPTED,
}
OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|CUDA out of memory|oom-kill|Out Of Memory|std::bad_alloc|DefaultCPUAllocator: can't allocate"
)
ERROR = re.compile(
    r"^(?:\[\w+\]: ?)?(?P<text>(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|srun: error: .*|nlp-bench[\w ]*: error: .*))$"
)
NOT_FINITE = re.compile(r"number of nan iterations:\s+[1-9]|lm loss: (?:nan|inf|-inf)\b", re.IGNORECASE)
ITERATION = re.compile(r"iteration\s+(\d+)/\s*\d+ \|")
INTERVAL = re.compile(r"iteration\s+(\d+)/\s*\d+ \|.*?elapsed time per iteration \(s\):\s+([0-9.]+)")
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
    broken = next((line for line in lines if NOT_FINITE.search(line)), None)
    iterations = [int(found) for found in ITERATION.findall(out)]
    return Evidence(
        last_iteration=max(iterations, default=None),
        error=next((found.group("text") for line in lines if (found := ERROR.match(line))), None),
        slurm=notice.group(0) if notice else None,
        slurm_outcome=CAUSES.get(notice.group("cause"), Outcome.CANCELLED) if notice else None,
        out_of_memory=any(OUT_OF_MEMORY.search(line) for line in lines),
        not_finite=_where(broken) if broken else None,
    )


def last_interval(log: Path) -> tuple[int, float] | None:
    """Return the last iteration in the log and its seconds per iteration, or None before the first line."""
    found = INTERVAL.findall(_tail(log))
    return (int(found[-1][0]), float(found[-1][1])) if found and float(found[-1][1]) > 0 else None


def _last_notice(lines: list[str]) -> "re.Match[str] | None":
    """Return the notice with a cause, else any: a step's notice often lacks the cause that the job's has."""
    found = [match for line in lines if (match := NOTICE.search(line))]
    return next((match for match in found if match.group("cause")), found[-1] if found else None)


def _where(line: str) -> str:
    found = ITERATION.search(line)
    return f"the loss is not finite at iteration {found.group(1)}" if found else "the loss is not finite"


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""
