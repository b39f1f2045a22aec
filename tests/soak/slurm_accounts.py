"""Whether every job of the soak is accounted for: outcome against oracle, Slurm's own list, the report's rows."""

import contextlib
import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

from nlp_bench.cli.main import main as nlp_bench
from soak.slurm_faults import Injector
from soak.slurm_state import Going, Witness

ALLOWED: dict[str, set[str]] = {
    "cancel_running": {"CANCELLED"}, "cancel_pending": {"CANCELLED"}, "requeue": set(), "suspend": {"INVALID"}, "node_down": {"NODE_FAIL"},
    "slurmd_killed": {"NODE_FAIL"}, "submit_killed": set(), "follower_killed": set(), "disk_full": {"INCOMPLETE", "FAILED"}, "fails": {"FAILED"},
    "controller_killed": {"NODE_FAIL", "UNKNOWN", "CANCELLED"},
}  # fmt: skip
"""Outcomes that a fault may lead to; VALID always, where the oracle says that the training came to its end.

A killed controller may have forgotten a job (UNKNOWN), its end (NODE_FAIL), or give its number to another one, which it then takes
off the node of the first (CANCELLED).
"""
NOT_ANSWERED, FORGOTTEN = "Slurm's controller did not answer srun", "Slurm's controller no longer knew"
NO_RANK = {
    "controller_killed": (NOT_ANSWERED, FORGOTTEN),
    "controller_restarted": (NOT_ANSWERED,),
    "controller_stopped": (NOT_ANSWERED,),
}
"""Faults behind which srun may not have started a rank, with the beginnings of the reasons that must then say so: FAILED without
one of them is false."""
LOG_LINES = 15  # how much of the end of a log is shown of a job that is off
TWICE = {"controller_killed"}
"""Faults behind which Slurm itself may start one job twice: the controller has forgotten that it runs."""


def starts(saw: list[Witness]) -> Counter[tuple[str, int]]:
    """Return how often the training was started in each start of each job."""
    return Counter((line.job, line.start) for line in saw if line.word == "begin")


def came_to_its_end(saw: list[Witness], job_id: str) -> bool:
    own = [line for line in saw if line.job == job_id]
    return bool(own) and own[-1].word == "end"


def has_a_hole(job: Going, job_id: str) -> bool:
    begin = [line.time_s for line in job.saw() if line.job == job_id and line.word == "begin"]
    end = [line.time_s for line in job.saw() if line.job == job_id and line.word == "end"]
    return bool(begin and end) and any(begin[-1] < since and to < end[-1] for since, to in job.holes)


def problems(job: Going, of_slurm: list[str]) -> dict[str, str]:
    """Return what is off with one job: "lost", "twice" or "false", and a sentence."""
    ended, saw = job.record("outcome.json"), job.saw()
    outcome, job_id = str(ended.get("outcome")), str(ended.get("job_id"))
    if not ended:
        return {"lost": f"no outcome; submit.json: {job.record('submit.json') or 'none'}; Slurm has {of_slurm}"}
    found = {}
    known = [str(part["job_id"]) for part in ended["attempts"]] + [job_id]
    strangers = set(of_slurm) - set(known)
    often = {key: count for key, count in starts(saw).items() if count > 1}
    if strangers or len(set(known)) != len(known) or (often and not job.met & TWICE):
        found["twice"] = f"recorded {known}, Slurm had {of_slurm}, trainings {dict(starts(saw))}"
    if {line.job for line in saw} - set(known):
        found["twice"] = f"recorded {known}, but trained in {sorted({line.job for line in saw})}"
    if outcome == "VALID" and not came_to_its_end(saw, job_id):
        found["false"] = f"VALID, and job {job_id} did not come to its end: {saw}"
    if outcome == "VALID" and has_a_hole(job, job_id):
        found["false"] = f"VALID, and Slurm had suspended it in its training: {job.holes}"
    allowed = {word for kind in job.met for word in ALLOWED.get(kind, set())}
    if job.plan.fault != "fails":
        allowed.add("VALID")
    named = tuple(reason for kind in job.met for reason in NO_RANK.get(kind, ()))
    if any(reason.startswith(named) for reason in ended["reasons"]) and not came_to_its_end(saw, job_id):
        allowed.add("FAILED")
    if outcome not in allowed:
        found["false"] = f"{outcome} {ended['reasons']}, allowed {sorted(allowed)}"
    return found


def seen(job: Going) -> str:
    """Return what a person needs who meets a job that is off: outcome.json's evidence and sources, and the ends of its logs."""
    ended = job.record("outcome.json")
    said = [f"      {key}: {json.dumps(ended[key])}" for key in ("evidence", "sources", "attempts") if ended.get(key)]
    for name in ("job.err", "job.out"):
        with contextlib.suppress(OSError):
            lines = (job.run_dir / name).read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
            said += [f"      {name}: {line!a}" for line in lines]
    return "\n".join(said)


def jobs_of(injector: Injector) -> dict[str, list[str]]:
    """Return all jobs that Slurm has had, by the comment's part that names the folder; none may wait or run."""
    found: dict[str, list[str]] = {}
    for line in injector.slurm("squeue", "--states=all", "--noheader", "--format=%i %k").splitlines():
        number, _, comment = line.partition(" ")
        found.setdefault("-".join(comment.split("-")[:2]), []).append(number)
    return found


def report(paths: list[Path]) -> list[dict[str, Any]]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        nlp_bench(["report", *map(str, paths), "--format", "json"])
    rows: list[dict[str, Any]] = json.loads(said.getvalue())["runs"]
    return rows


def wrong_rows(rows: list[dict[str, Any]], jobs: list[Going]) -> list[str]:
    """Return what is off with the report: a row for each job, a number for each VALID one only."""
    outcomes = {str(job.run_dir): job.record("outcome.json").get("outcome") for job in jobs}
    wrong = [] if len(rows) == len(jobs) else [f"{len(rows)} rows of {len(jobs)} jobs"]
    for row in rows:
        rate = (row["tokens_per_second"] or {}).get("reference") if isinstance(row["tokens_per_second"], dict) else None
        if (rate is not None) != (row["outcome"] == "VALID"):
            wrong.append(f"{row['source']}: {row['outcome']} with the rate {rate}")
        if row["outcome"] != outcomes.get(str(Path(row["source"]).resolve())):
            wrong.append(
                f"{row['source']}: {row['outcome']} {row['reasons']}, but outcome.json says {outcomes.get(row['source'])}"
            )
    return wrong


def wrong_table(runs: Path, jobs: list[Going]) -> list[str]:
    """Return what is off with JUBE's own table: a row for each job, tokens for each VALID one only."""
    path = next(runs.rglob("result/result.dat"), None)
    if path is None:
        return ["JUBE has no table"]
    rows = {row["case"]: row for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())}
    expected = {job.plan.name: job.record("outcome.json").get("outcome") for job in jobs}
    told = {name: row["outcome"] for name, row in rows.items()}
    wrong = [] if told == expected else [f"JUBE's table: {set(told.items()) ^ set(expected.items())}"]
    return wrong + [f"JUBE's row {row}" for row in rows.values() if bool(row["tokens"]) != (row["outcome"] == "VALID")]
