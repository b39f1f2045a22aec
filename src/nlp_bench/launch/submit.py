"""Hand a prepared run to Slurm, to the allocation that a person already holds, or to this machine: once."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch import ambient, chain, folder, local
from nlp_bench.launch.follow import retry
from nlp_bench.launch.scheduler import sbatch, slurm
from nlp_bench.launch.scheduler.states import GONE, RUNNING, meaning


def submit(run: Run, script: Path, *, follow: bool, jobs: int = 1, lock: int) -> list[str]:
    """Start the run, as a chain of `jobs`; return Slurm's job ids, none for a run that was done here and has ended.

    `lock` is the descriptor of the folder's lock, which the caller holds. With `follow`, a detached `nlp-bench sync --wait` turns
    the end of the job into outcome.json and JUBE's marker even where the job itself cannot: cancelled while pending, node
    lost, killed.
    """
    is_held = run.launch.launcher == "slurm" and _holds_allocation(run)
    if not is_held and (others := ambient.taken_out(os.environ, ambient.OF_JOBS)):
        print(ambient.said(others), file=sys.stderr)
    if run.launch.launcher == "slurm" and not is_held:
        job_ids = _queue(run, script, jobs, lock)
        if follow:
            _follow(script.parent)
        return job_ids
    local.train(run, script, chain=jobs, lock=lock)
    return []


def _queue(run: Run, script: Path, jobs: int, lock: int) -> list[str]:
    """Hand all jobs of the chain to Slurm; the intent is recorded first, and each job at once, for it may run and end at once."""
    run_dir = script.parent
    earlier = folder.read_submission(run_dir)
    job_ids = chain.job_ids(earlier) if earlier else []
    if earlier and folder.is_intent(earlier):
        jobs = max(jobs, len(job_ids) + chain.parts_left(earlier))  # the command that is printed names no --chain
        comment, is_open = (
            str(earlier["comment"]),
            True,
        )  # the process that wrote it was killed, or Slurm did not answer
    else:
        comment, is_open = sbatch.new_comment(run_dir), False
    try:
        others = [] if is_open else sbatch.active(run_dir)
        if others:
            folder.write_submission(run_dir, others)
            return others
        folder.write_submission(run_dir, job_ids, parts_left=jobs - len(job_ids), comment=comment)
        for part in range(len(job_ids) + 1, jobs + 1):
            own = sbatch.part_comment(comment, part)
            known = (_started(run_dir, part) or sbatch.find(own, may_be_late=True)) if is_open else None
            is_open = is_open and known is not None  # the parts behind the one that was cut off were never handed over
            job_ids.append(known or sbatch.submit(script, run.launch.account, own, lock=lock))
            folder.write_submission(run_dir, job_ids, parts_left=jobs - part, comment=comment)
    except slurm.SilentError as error:
        again = f"nlp-bench submit --run {shlex.quote(str(run_dir / 'run.json'))} --run-dir {shlex.quote(str(run_dir))}"
        raise NlpBenchError(
            f"Slurm does not answer ({error}): whether the job was queued is not known; when it answers again, type the same "
            f"command, which looks for the job before it submits one: {again}"
        ) from error
    except NlpBenchError as error:
        if not job_ids:
            (run_dir / "submit.json").unlink(missing_ok=True)  # nothing was submitted: the intent has ended
            raise
        folder.write_submission(run_dir, job_ids, comment=comment)
        raise NlpBenchError(
            f"--chain: {len(job_ids)} of {jobs} jobs are queued ({' '.join(job_ids)}) and stay; then: {error}"
        ) from error
    return job_ids


def _started(run_dir: Path, part: int) -> str | None:
    """Return the job that the log says has started: Slurm forgets a job that has ended, its log does not."""
    log = run_dir / "job.out"
    found = re.findall(rb"^Submitted batch job (\d+)$", log.read_bytes(), re.MULTILINE) if log.is_file() else []
    lost = {attempt.get("job_id") for attempt in retry.attempts(folder.read_submission(run_dir))}
    own = [number for number in map(bytes.decode, found) if number not in lost]
    return own[part - 1] if len(own) >= part else None


def _holds_allocation(run: Run) -> bool:
    """Whether we stand in an allocation of the run's size that lives; a terminal inside some other job, or left over from one, is none."""
    if os.environ.get("SLURM_JOB_NUM_NODES") != str(run.parallel.nodes):
        return False
    job_id = os.environ.get("SLURM_JOB_ID", "")
    job = slurm.look(job_id) if folder.JOB_ID.fullmatch(job_id) else slurm.Job(state=GONE, reason="", exit_status=None)
    return job is None or meaning(job.state) is RUNNING  # srun says it where Slurm does not answer


def _follow(run_dir: Path) -> None:
    with (run_dir / "sync.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "nlp_bench", "sync", "--wait", str(run_dir)],
            cwd=run_dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )  # fmt: skip


def is_submitted(submission: dict[str, Any] | None) -> bool:
    """Whether Slurm has all jobs of the submission."""
    return submission is not None and bool(submission["job_ids"]) and not folder.is_intent(submission)
