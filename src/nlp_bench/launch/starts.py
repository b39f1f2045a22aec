"""The starts of the ranks inside one job: the starter (srun) gets a second try where no process of its first began on any node.

Whether one began is decided by a record, starts/NAME.json, not by srun's messages. Exactly one process can write it: the first of the
start, on whichever node, before anything else; or the job script, once the starter has ended. Whoever finds the other's record stops,
so that a process which a slow node starts late does not train at the same time as the second try.
"""

import os
import re
import socket
import time
from pathlib import Path
from typing import Any

from nlp_bench.clock import now
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import LOCAL, Allocation, State, get_scheduler
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_object, write_json
from nlp_bench.launch.prediction import RECORD, START_UP_S
from nlp_bench.launch.submission import scheduler_of
from nlp_bench.reason import Reason
from nlp_bench.terminal import say

VARIABLE = "NLP_BENCH_START"  # name of the start: job, restart, time and process of the script, number of the try
NAME = re.compile(r"[\w.-]{1,120}-(?P<number>[0-9])")
SCHEMA = "nlp-bench/start/1"
RANKS, SCRIPT = "ranks", "script"
MAX_STARTS = 2
PAUSE_S = 10.0  # between two tries, for transient faults to pass
SILENT_S = 600.0  # how long a silent scheduler is asked whether the job still runs here, before the try is given up
LEAST_SHARE = 0.5  # share of the time limit that must be left where no prediction says how long the run takes


def claim(run: Run, run_dir: Path) -> None:
    """Write down, first of all, that the ranks begin; raises NlpBenchError where the job script has given this start up or it cannot be written."""
    name = os.environ.get(VARIABLE, "")
    if run.launch.launcher != LOCAL and NAME.fullmatch(name) and _first(run, run_dir, name, RANKS)["by"] != RANKS:
        starter = get_scheduler(run.launch.launcher).starter_name
        raise NlpBenchError(f"this start of the ranks ({name}) began after {starter} had ended: another one trains")


def once_more(run: Run, run_dir: Path, *, exit_status: int, elapsed_s: float) -> bool:
    """Whether the job script, whose starter has ended with `exit_status`, is to call it again; waits a little before yes."""
    found = NAME.fullmatch(os.environ.get(VARIABLE, ""))
    if run.launch.launcher == LOCAL or not found or exit_status == 0:
        return False
    if _first(run, run_dir, found.group(), SCRIPT, exit_status=exit_status)["by"] != SCRIPT:
        return False
    begin = time.monotonic() - elapsed_s
    why = "it was the last try" if int(found["number"]) >= MAX_STARTS else _why_not(run, run_dir, begin)
    starter = get_scheduler(run.launch.launcher).starter_name
    say(
        f"{starter} ended with exit status {exit_status} and had started nothing on any node; {why or 'it is tried again'}"
    )
    if not why:
        time.sleep(PAUSE_S)
    return not why


def read(run_dir: Path) -> list[dict[str, Any]]:
    """Return the records of all starts in this folder, the first one first; one that cannot be read is left out."""
    folder = run_dir / "starts"
    records = [read_object(path) for path in (folder.glob("*.json") if folder.is_dir() else ())]
    return sorted(
        (one for one in records if one.get("by") in {RANKS, SCRIPT}),
        key=lambda one: (str(one.get("at")), str(one.get("start"))),
    )


def reasons_of(run_dir: Path, tries: list[dict[str, Any]], job_id: str | None) -> list[Reason]:
    """Return what to report of the starts of one job (`tries` are those of all jobs), nothing where its first one began."""
    tries = [one for one in tries if one.get("job_id") == job_id]
    lost = [one for one in tries if one["by"] == SCRIPT]
    if not lost:
        return []
    ended = ", ".join(str(one.get("exit_status")) for one in lost)
    began = "; the next try, in the same job, did" if tries[-1]["by"] == RANKS else ""
    text = f"{scheduler_of(run_dir).starter_name} started no rank on any node (exit status {ended}){began}"
    return [Reason("no-start", text)]


def _first(run: Run, run_dir: Path, name: str, by: str, *, exit_status: int | None = None) -> dict[str, Any]:
    """Return the record of a start as the first writer has left it: this process, or an earlier one."""
    path = run_dir / "starts" / f"{name}.json"
    if not path.exists():
        own = get_scheduler(run.launch.launcher).allocation()
        record = {
            "schema": SCHEMA, "job_id": own.job_id if own else None, "start": int(name[-1]), "by": by,
            "host": socket.gethostname(), "exit_status": exit_status, "at": now(),
        }  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        write_json(path, record, once=True)
    found = read_object(path)
    if found.get("by") not in {RANKS, SCRIPT}:
        raise NlpBenchError(f"cannot read {path}, which says who has begun this start; nothing is started")
    return found


def _why_not(run: Run, run_dir: Path, begin: float) -> str | None:
    """Return why another try would be wrong or in vain; None where the job still runs, here, with time enough."""
    end = time.monotonic() + SILENT_S
    scheduler = get_scheduler(run.launch.launcher)
    own = scheduler.allocation() or Allocation(job_id="0")
    while (job := scheduler.query(own.job_id)) is None:
        if time.monotonic() > end:
            return f"{scheduler.title} does not answer for {SILENT_S:g} s"
        time.sleep(5.0)
    is_elsewhere = bool(own.node_name and job.node_name) and job.node_name != own.node_name
    if job.state is not State.RUNNING or is_elsewhere or job.restarts != own.restarts:
        return f"the job no longer runs here ({scheduler.title}: {job.word or job.state.name})"
    limit_s = run.launch.limit_s
    predicted_s = read_object(run_dir / RECORD).get("iterations_s")
    needed_s = predicted_s + START_UP_S if isinstance(predicted_s, int | float) else LEAST_SHARE * limit_s
    left_s = limit_s - (time.monotonic() - begin)
    return f"{left_s:.0f} s of its time are left, {needed_s:.0f} s are needed" if left_s < needed_s else None
