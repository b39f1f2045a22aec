"""What the job script says of its own end, beside the decision: ended.json, the witness that Slurm cannot forget."""

import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from nlp_bench.clock import now
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_json, refuse_types, write_json

NAME, SCHEMA = "ended.json", "nlp-bench/ended/1"


@dataclass(frozen=True, kw_only=True)
class ScriptRecord:
    """The last word of one start of a job script."""

    exit_status: int
    """Its exit status."""
    signal: str
    """The signal that told it to stop, for example TERM; empty where none did."""
    job_id: str | None
    """Slurm's number; None for a local run."""
    restarts: int
    """How often Slurm had started the job anew before."""
    elapsed_s: int | None = None
    """Seconds from the begin of the script to its end; None where its clock was set back, or an earlier version has written it."""


def own_record(exit_status: int, signal: str, elapsed_s: int | None) -> ScriptRecord:
    """Return the record of the job that this process is part of."""
    count = os.environ.get("SLURM_RESTART_COUNT", "")
    return ScriptRecord(
        exit_status=exit_status,
        signal=signal,
        job_id=os.environ.get("SLURM_JOB_ID"),
        restarts=int(count) if count.isdigit() else 0,
        elapsed_s=elapsed_s,
    )


def write_record(run_dir: Path, record: ScriptRecord) -> None:
    """Write it; an earlier one in the folder is of an earlier job of the chain, or of an earlier start."""
    write_json(run_dir / NAME, {"schema": SCHEMA, **asdict(record), "ended": now()})


def read_record(run_dir: Path, job_id: str | None) -> ScriptRecord | None:
    """Return the record of this job, None where there is none that can be read."""
    path = run_dir / NAME
    if not path.exists():
        return None
    try:
        record = {"elapsed_s": None, **read_json(path, SCHEMA)}
        refuse_types(record, path, exit_status=int, signal=str, job_id=str | None, restarts=int, elapsed_s=int | None)
    except NlpBenchError:
        return None
    if record["job_id"] != job_id:
        return None
    if (record["elapsed_s"] or 0) < 0:  # bash counts by the time of day
        record["elapsed_s"] = None
    return ScriptRecord(**{field.name: record[field.name] for field in fields(ScriptRecord)})
