"""A whole scheduler in one file: a queue that is a folder, with jobs that begin at once on this machine.

It is found by an entry point, as one of another package would be; the package under test does not know it.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import ASK_TIMEOUT_S, Allocation, Job, Listed, Scheduler, SilentError, State
from nlp_bench.config.system import Slurm
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.outcome import Outcome

RUNNER = "bash {script} >> job.out 2>> job.err; echo $? > {status}.part; mv {status}.part {status}"


class Toy(Scheduler):
    """Jobs are files NUMBER.json of the folder TOY_QUEUE, ended ones have a NUMBER.status too."""

    name = "toy"
    title = "Toy"
    absent = "(TOY_QUEUE names no folder); make it"
    job_id = re.compile(r"toy-[0-9]+")
    job_variables = re.compile(r"TOY_JOB\w*")
    job_id_variable = "TOY_JOB"

    @property
    def queue(self) -> Path:
        """The folder."""
        return Path(os.environ.get("TOY_QUEUE", "/nowhere"))

    def detect(self) -> str | None:
        """There is one cluster."""
        return "toy-box" if self.queue.is_dir() else None

    def check_options(self, settings: Slurm) -> None:
        """It has no options."""
        if settings.sbatch_args:
            raise UsageError(f"system.slurm.sbatch_args: Toy takes none: {settings.sbatch_args[0]}")

    def check_limits(self, run: Run) -> None:
        """One node is all there is."""
        if run.parallel.nodes > 1:
            raise UsageError(f"parallel.nodes: {run.parallel.nodes} nodes, but Toy has one; choose --nodes 1")

    def header(self, run: Run) -> list[str]:
        """Options that nobody reads."""
        return [f"#TOY name={run.launch.job_name}"]

    def allocation(self) -> Allocation | None:
        """The job is named by one variable."""
        job_id = os.environ.get("TOY_JOB")
        return Allocation(job_id=job_id, num_nodes="1") if job_id else None

    def submit(self, script: Path, *, account: str, comment: str, lock: int, after: str = "") -> str:
        """Start the script, detached."""
        del account, lock, after
        if (self.queue / "closed").exists():
            raise NlpBenchError("Toy refuses all jobs today")
        job_id = f"toy-{len(list(self.queue.glob('*.json'))) + 1}"
        runner = RUNNER.format(script=script.name, status=f"'{self.queue}/{job_id}.status'")
        process = subprocess.Popen(
            ["bash", "-c", runner], cwd=script.parent, env={**os.environ, "TOY_JOB": job_id}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        record = {"comment": comment, "folder": str(script.parent), "pid": process.pid}
        (self.queue / f"{job_id}.json").write_text(json.dumps(record))
        return job_id

    def query(self, job_id: str, *, timeout_s: float = ASK_TIMEOUT_S) -> Job | None:
        """Read its files."""
        del timeout_s
        if (self.queue / "silent").exists():
            return None
        path, status = self.queue / f"{job_id}.json", self.queue / f"{job_id}.status"
        if not path.exists():
            return Job(state=State.GONE, job_id=job_id)
        record = json.loads(path.read_text())
        known = {"job_id": job_id, "comment": record["comment"], "work_dir": record["folder"], "source": "files"}
        if not status.exists():
            return Job(state=State.RUNNING, word="on the move", **known)
        exit_status = int(status.read_text())
        if exit_status > 128:
            return Job(
                state=State.ENDED, word="taken away", outcome=Outcome.CANCELLED, exit_status=exit_status, **known
            )
        return Job(state=State.ENDED, word="over", exit_status=exit_status, **known)

    def jobs(self, *, ended: bool) -> list[Listed]:
        """List the files."""
        if (self.queue / "silent").exists():
            raise SilentError("the folder is locked")
        found = [
            path for path in sorted(self.queue.glob("*.json")) if ended or not path.with_suffix(".status").exists()
        ]
        known = {path.stem: json.loads(path.read_text()) for path in found}
        return [Listed(job_id, record["comment"], record["folder"]) for job_id, record in known.items()]

    def cancel(self, job_ids: list[str], *, waiting_only: bool = False) -> str | None:
        """Kill what runs."""
        for job_id in job_ids:
            with contextlib.suppress(OSError):
                if not waiting_only:
                    os.killpg(json.loads((self.queue / f"{job_id}.json").read_text())["pid"], signal.SIGTERM)
        return None

    def commands(self, job_ids: list[str]) -> tuple[str, str]:
        """Return cat and rm."""
        return f"cat {self.queue}/{job_ids[-1]}.json", f"rm {self.queue}/{job_ids[-1]}.json"
