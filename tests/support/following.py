"""Runs that are followed where Slurm is a stand-in: what it says of a job, its commands as programs, the lines of a log."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.launch.end.ending import Ending
from nlp_bench.launch.submission import Submission, read_submission

Says = Callable[..., None]  # lets Slurm say a state, with these facts, of any job
LINE = "[default0]: iteration {:8d}/      40 | elapsed time per iteration (s): 0.1000 | lm loss: 1.0E+00 |\n"


def offline(model: str, system: str, **choices: object) -> Run:
    """Return a run that is resolved without asking a scheduler."""
    return resolve(Request(model=model, system=system, **choices), ask_scheduler=False)  # type: ignore[arg-type]


def sandbox_run() -> Run:
    """Return a run of the tiny model, 40 iterations logged by two, for the private Slurm."""
    return offline("tiny", "slurm-sandbox", data_path="mock")


def undecided(folder: Path) -> Path:
    """Write a run that was handed over to Slurm as job 7, and of which nothing more is known."""
    folder.mkdir(parents=True, exist_ok=True)
    sandbox_run().write(folder)
    Submission(comment="nlp-bench:1", job_ids=["7"]).write(folder)
    return folder


def iterations(last: int, first: int = 2) -> str:
    return "".join(LINE.format(number) for number in range(first, last + 1, 2))


def rest_for(run_dir: Path, time_s: float) -> None:
    """Let the run's files be as old as this."""
    for name in ("submit.json", "job.out"):
        if (run_dir / name).exists():
            os.utime(run_dir / name, (time.time() - time_s,) * 2)


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


def forgets(tools: Path, sacct: str) -> None:
    """Let scontrol know no job any more, and sacct answer by this line of bash."""
    program(tools, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    program(tools, "sacct", sacct)


class Site:
    """Slurm's commands as programs on PATH: each job is a file in `jobs`, with what squeue prints of it."""

    SBATCH = """\
for word; do case $word in --comment=*) comment=${{word#--comment=}} ;; esac; done
number=$(($(ls {jobs} | wc -l) + 7))
make() {{ echo "$number|$PWD|nlp-bench|{comment}" > {jobs}/$number; }}
{answer}
"""
    SQUEUE = """\
for word; do case $word in --me) echo 'squeue: unrecognized option --me' >&2; exit 1 ;; esac; done
echo 'nlp-bench|JOBID|WORK_DIR|nlp-bench|COMMENT'
for job in $(ls {jobs}); do sed 's/^/nlp-bench|/' {jobs}/$job; done
"""

    def __init__(self, tools: Path) -> None:
        self.tools, self.jobs = tools, tools / "jobs"
        self.jobs.mkdir(parents=True)
        self.listing = self.SQUEUE.format(jobs=self.jobs)
        self.program("squeue", self.listing)
        self.sbatch()
        self.program("scancel", "")

    def program(self, name: str, text: str) -> None:
        program(self.tools, name, text)

    def sbatch(self, answer: str = 'make; echo "$number"', comment: str = "$comment") -> None:
        """Let sbatch do `answer`, in which `make` makes the job, with `comment`; each call is a line of the file `called`."""
        text = self.SBATCH.format(jobs=self.jobs, answer=answer, comment=comment)
        self.program("sbatch", f'echo called >> "{self.tools}/called"\n{text}')

    def put(self, number: str, folder: Path | str, comment: str) -> None:
        (self.jobs / number).write_text(f"{number}|{folder}|nlp-bench|{comment}\n")

    def numbers(self) -> list[str]:
        return sorted(path.name for path in self.jobs.iterdir())

    def comment(self, number: str) -> str:
        return (self.jobs / number).read_text().strip().rpartition("|")[2]

    def was_called(self) -> bool:
        return (self.tools / "called").exists()


def ending_of(found: tuple[Ending | None, str]) -> Ending:
    """Return the ending of what `sync` or `sync_script` returned; there must be one."""
    ending, state = found
    assert ending, state
    return ending


def submission_of(run_dir: Path) -> Submission:
    """Return the record of a submission, which must be there."""
    record = read_submission(run_dir)
    assert record
    return record
