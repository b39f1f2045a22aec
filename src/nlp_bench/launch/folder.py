"""The folder of one run: everything that made it, and nothing of another run."""

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

from nlp_bench.clock import now, stamp
from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import read_json, write_json, write_text
from nlp_bench.launch.arguments import check_arguments
from nlp_bench.launch.script import job_script

SUBMIT_SCHEMA = "nlp-bench/submit/1"


def new_folder(root: Path, run: Run) -> Path:
    """Create and return reports/runs/<time>_<model>_<system>, with a number behind it when that exists."""
    base = root / "reports" / "runs" / f"{stamp()}_{run.model.name}_{run.system.name}"
    for number in range(1, 1000):
        folder = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"--run-dir: cannot create {folder}: {error.strerror}; name a writable folder") from error
        return folder
    raise NlpBenchError(f"{base}: 999 runs of this second exist already")


def writable_folder(path: Path) -> Path:
    """Create `path` if needed and return it resolved; refuse one that cannot be written or holds another run."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--run-dir: cannot create {path}: {error.strerror}; name a writable folder") from error
    if not os.access(path, os.W_OK):
        raise UsageError(f"--run-dir: {path} is not writable; name another folder")
    if (path / "outcome.json").exists():
        raise UsageError(f"--run-dir: {path} holds a finished run (outcome.json); name a new folder")
    return path.resolve()


def refuse_running(run_dir: Path, submission: dict[str, Any]) -> None:
    """Raise UsageError where the local launcher that `submission` names still trains in this folder, on this host."""
    pid = submission.get("pid")
    if submission.get("host") != socket.gethostname() or not isinstance(pid, int) or pid == os.getpid():
        return
    with contextlib.suppress(OSError):  # it has ended; what it left is run again
        if b"submit" in Path(f"/proc/{pid}/cmdline").read_bytes():
            raise UsageError(
                f"--run-dir: {run_dir} holds a run that process {pid} is still training; wait for its end, or name a new folder"
            )


def environment_folder(root: Path) -> Path:
    """Return the virtual environment that is current: NLP_BENCH_VENV or .venv with its link followed."""
    return Path(os.environ.get("NLP_BENCH_VENV") or root / ".venv").absolute().resolve()


def interpreter(root: Path) -> str:
    """Return the Python of the virtual environment, or the running one where there is none (--print)."""
    python = environment_folder(root) / "bin" / "python"  # itself a link, which must stay one
    return str(python) if python.exists() else sys.executable


def script_text(run: Run, *, root: Path, run_dir: Path) -> str:
    """Return the job script of `run` from the template jube/submit.job.in."""
    template = (root / "jube" / "submit.job.in").read_text(encoding="utf-8")
    return job_script(run, template=template, root=root, run_dir=run_dir, python=interpreter(root))


def prepare(run: Run, *, root: Path, run_dir: Path) -> Path:
    """Write run.json and submit.job into the folder and return the script's path."""
    run.write(run_dir)
    script = run_dir / "submit.job"
    write_text(script, script_text(run, root=root, run_dir=run_dir))
    script.chmod(0o755)
    return script


def preflight(run: Run, root: Path) -> None:
    """Refuse a run whose data or software is missing, before anything is submitted."""
    if not run.system.container.image and not (environment_folder(root) / "nlp-bench.key").exists():
        raise UsageError(
            f"software: no finished virtual environment in {environment_folder(root)}; set it up with "
            f"`bash benchmark/env/setup_venv.sh --system {run.system.name}`"
        )
    check_arguments(run, files=True)


def write_submission(run_dir: Path, job_ids: list[str], *, parts_left: int = 0) -> None:
    """Record that the run was handed over: to Slurm under these numbers, several of a chain, or to the local backend.

    `parts_left` are those of a chain that the local backend will start after this one.
    """
    record = {
        "schema": SUBMIT_SCHEMA,
        "job_id": job_ids[-1] if job_ids else None,
        "job_ids": job_ids,
        "parts_left": parts_left,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "submitted": now(),
    }
    write_json(run_dir / "submit.json", record)


def read_submission(run_dir: Path) -> dict[str, Any] | None:
    """Return the record of the submission, or None when the run was never handed over."""
    path = run_dir / "submit.json"
    return read_json(path, SUBMIT_SCHEMA) if path.exists() else None
