"""What the job script says of its own end, beside the decision: ended.json, the witness that no scheduler can forget."""

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
    """The scheduler's number; None for a local run."""
    restarts: int
    """How often the scheduler had started the job anew before."""
    elapsed_s: int | None = None
    """Seconds from the begin of the script to its end; None where its clock was set back, or an earlier version has written it."""


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
