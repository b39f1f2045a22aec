"""The folder of one run: everything that made it, and nothing of another run."""

import contextlib
import json
import os
import shlex
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from nlp_bench import schemas
from nlp_bench.build.environment import build_folder
from nlp_bench.clock import now, stamp
from nlp_bench.config import catalog
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import Scheduler, get_scheduler
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.escape import one_line
from nlp_bench.files import read_json, read_object, refuse_types, sha256_of, write_json, write_text
from nlp_bench.launch import lock, snapshot
from nlp_bench.launch.arguments import check_arguments
from nlp_bench.launch.script import job_script, variables
from nlp_bench.packages import is_missing, remedy

SUBMIT_SCHEMA = "nlp-bench/submit/1"
LATER_FIELDS = {
    "job_ids": [], "parts_left": 0, "comment": None, "script_pid": None, "attempts": [], "given_up": None,
    "run_sha256": None, "place": None,
}  # fmt: skip
"""Fields of submit.json that the records of older versions lack."""
WRITTEN = ("run.json", "submit.job", "command.txt", "environment.json")
"""What a run writes into its folder under names that other programs may use, too."""
TRIAL_BYTES = 65536
"""What the records of a run need at least, before its log."""


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
            raise UsageError(
                f"--run-dir: cannot create {folder}: {explained(error)}; or name another folder"
            ) from error
        return folder
    raise NlpBenchError(f"{base}: 999 runs of this second exist already")


def run_folder(root: Path, run: Run, named: Path | None, *, recorded: Path | None) -> Path:
    """Return the folder that was named, or a new one.

    `recorded` is the run.json that is submitted, if any: such a run may end at any moment. Raises UsageError for a folder that cannot be
    written, that holds another run, or files of somebody else that this run would replace.
    """
    if named is None:
        return new_folder(root, run)
    run_dir = writable_folder(named, may_have_ended=recorded is not None)
    is_checkout = (run_dir / ".git").exists()
    if is_checkout or run_dir == run_dir.parent:
        what = "the root of a git checkout" if is_checkout else "the root of all folders"
        raise UsageError(f"--run-dir: {run_dir} is {what}; name a folder for this run alone")
    found = next((name for name in WRITTEN if (run_dir / name).exists() and not _is_ours(run_dir, run, recorded)), None)
    if found:
        raise UsageError(
            f"--run-dir: {run_dir} holds {found}, which is of no run that was submitted there and would be replaced; name a new folder"
        )
    return run_dir


def _is_ours(run_dir: Path, run: Run, recorded: Path | None) -> bool:
    """Whether the files of a run in its folder are those of an earlier submission of it, or the record that is submitted now."""
    there = run_dir / "run.json"
    if (run_dir / "submit.json").exists():
        return True
    found = read_object(there)
    if (run_dir / lock.NAME).exists() and str(found.get("schema")).startswith(schemas.RUN.rpartition("/")[0]):
        return True  # a submission that was refused, or killed before it was written down
    if any((run_dir / name).exists() for name in WRITTEN if name != there.name):
        return False
    wanted = json.loads(json.dumps(run.record()))
    is_same = all(found.get(key) == value for key, value in wanted.items() if key not in {"created", "nlp_bench"})
    return is_same or (recorded is not None and recorded.exists() and recorded.samefile(there))


def writable_folder(path: Path, *, may_have_ended: bool = False) -> Path:
    """Create `path` if needed and return it resolved; refuse one that cannot be written or holds another run.

    With `may_have_ended` the run in it is the caller's own, which may end at any moment.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--run-dir: cannot create {path}: {explained(error)}; or name another folder") from error
    try:  # os.access knows neither a full disk nor a file server that trusts no root
        with tempfile.TemporaryFile(dir=path) as trial:
            trial.write(b"\0" * TRIAL_BYTES)
            trial.flush()
    except OSError as error:
        raise UsageError(f"--run-dir: {path} is not writable: {explained(error)}; or name another folder") from error
    if not may_have_ended and (path / "outcome.json").exists():
        raise UsageError(f"--run-dir: {path} holds a finished run (outcome.json); name a new folder")
    return path.resolve()


def refuse_name(run: Run, root: Path, run_dir: Path, *, is_snapshot: bool = False) -> None:
    """Raise UsageError for a working folder or a run's folder whose name would lose the run, naming the character and the remedy.

    A colon divides PYTHONPATH, which the job gets the code by; a scheduler has patterns of its own in the path of job.out (Slurm: % and
    backslash). Sources: Python's manual, "PYTHONPATH"; sbatch's, FILENAME PATTERN, and a job in such a folder (it fails without a log).
    """
    run_dir = run_dir.resolve()
    divides = "which divides PYTHONPATH: the ranks would not find the code"
    rules = [("the working folder", root, ":", f"{divides}; rename or move it")]
    if is_snapshot:
        rules.append(("--run-dir", run_dir, ":", f"{divides} of --snapshot-code; name another folder"))
    scheduler = get_scheduler(run.launch.launcher)
    pattern = f"which {scheduler.title} takes for a pattern in the name of the log; name another folder"
    rules.append(("--run-dir", run_dir, scheduler.path_patterns, pattern))
    for field, path, signs, why in rules:
        found = next((sign for sign in str(path) if sign in signs), None)
        if found:
            raise UsageError(f"{field}: {one_line(path)} holds {found!r}, {why}")


def environment_folder(root: Path) -> Path:
    """Return the virtual environment that is current: NLP_BENCH_VENV or .venv with its link followed."""
    return Path(os.environ.get("NLP_BENCH_VENV") or root / ".venv").absolute().resolve()


def interpreter(root: Path) -> str:
    """Return the Python of the virtual environment, or the running one where there is none (--print)."""
    python = environment_folder(root) / "bin" / "python"  # itself a link, which must stay one
    return str(python) if python.exists() else sys.executable


def script_text(run: Run, *, root: Path, run_dir: Path, code: Path | None = None) -> str:
    """Return the job script of `run` from the template jube/submit.job.in; `code` is the snapshot that the job imports, if any."""
    template = catalog.part("jube/submit.job.in").read_text(encoding="utf-8")
    return job_script(
        run,
        template=template,
        root=root,
        run_dir=run_dir,
        python=interpreter(root),
        code=code,
        builds=build_folder(root),
    )


def prepare(run: Run, *, root: Path, run_dir: Path, is_snapshot: bool = False) -> Path:
    """Write run.json and submit.job into the folder, with `is_snapshot` also the code, and return the script's path."""
    refuse_importable(run_dir)
    code = snapshot.take(run, run_dir) if is_snapshot else None
    sealed = sha256_of(run.write(run_dir))
    earlier = read_submission(run_dir)  # of a submission that was cut off
    if earlier and earlier["run_sha256"] != sealed:
        write_json(run_dir / "submit.json", {**earlier, "schema": SUBMIT_SCHEMA, "run_sha256": sealed})
    script = run_dir / "submit.job"
    write_text(script, script_text(run, root=root, run_dir=run_dir, code=code), errors="surrogateescape")
    mode = script.stat().st_mode
    with contextlib.suppress(PermissionError):  # a file system without modes, CIFS; it is read all the same
        script.chmod(mode | (mode & 0o444) >> 2)  # who may read it may start it
    return script


def refuse_importable(run_dir: Path, version: tuple[int, int] = sys.version_info[:2]) -> None:
    """Refuse Python files in the run's folder where Python 3.10 runs, whose `-m` imports from there; PYTHONSAFEPATH ends that from 3.11 on."""
    if version >= (3, 11):
        return
    found = next(
        (
            path
            for path in sorted(run_dir.iterdir())
            if path.suffix in {".py", ".so"} or (path / "__init__.py").exists()
        ),
        None,
    )
    if found:
        raise UsageError(
            f"{found}: Python {version[0]}.{version[1]} would import it in every rank; move it away, or take Python 3.11 or newer"
        )


def preflight(run: Run, root: Path) -> None:
    """Refuse a run whose data or software is missing, before anything is submitted."""
    folder = environment_folder(root)
    if not run.system.container.image and not (folder / "nlp-bench.key").exists():
        if catalog.has_workflow() or folder.exists():
            raise UsageError(
                f"software: no finished virtual environment in {folder}; set it up with "
                f"`bash benchmark/env/setup_venv.sh --system {run.system.name}`"
            )
        if missing := [name for name in ("torch", "megatron") if is_missing(name)]:  # else this Python trains
            raise UsageError(
                f"software: {' and '.join(missing)} cannot be imported by {sys.executable}; {remedy(missing[0])}"
            )
    variables(run.system, os.environ)
    check_arguments(run, files=True)


def write_submission(  # noqa: PLR0913  # one fact each
    run_dir: Path,
    job_ids: list[str],
    *,
    parts_left: int = 0,
    comment: str = "",
    script_pid: int | None = None,
    attempts: list[dict[str, Any]] | None = None,
    given_up: str | None = None,
    submitted: str | None = None,
) -> None:
    """Record that the run is handed over: to a scheduler under these numbers, several of a chain, or to the local backend.

    `parts_left` are those of a chain that are still to be queued, or that the local backend will start after this one. With
    `comment` it is a submission whose jobs carry it: without a number yet it is an intent, written before the scheduler is
    called. `script_pid` is the process group of a local run, `attempts` are the endings of earlier jobs that were lost (those that are
    recorded stay), `given_up` says why a job that waits is cancelled. The first record seals run.json by its SHA-256.
    """
    earlier: dict[str, Any] = {}
    with contextlib.suppress(NlpBenchError):
        earlier = read_submission(run_dir) or {}
    attempts = earlier.get("attempts") if attempts is None else attempts
    run_json = run_dir / "run.json"
    record = {
        "schema": SUBMIT_SCHEMA,
        "job_id": job_ids[-1] if job_ids else None,
        "job_ids": job_ids,
        "parts_left": parts_left,
        "comment": comment or None,
        "pid": os.getpid(),
        "script_pid": script_pid,
        "host": socket.gethostname(),
        "place": place(),
        "submitted": submitted or now(),
        "attempts": attempts or [],
        "given_up": given_up,
        "run_sha256": earlier.get("run_sha256") or (sha256_of(run_json) if run_json.is_file() else None),
    }
    write_json(run_dir / "submit.json", record)


def place() -> str | None:
    """Return what tells this machine and container from others of the same host name: Linux's start and its space of process numbers."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return None


def read_submission(run_dir: Path) -> dict[str, Any] | None:
    """Return the record of the submission, or None when the run was never handed over. Raises NlpBenchError on a damaged one."""
    path = run_dir / "submit.json"
    if not path.exists():
        return None
    record = {**LATER_FIELDS, **read_json(path, SUBMIT_SCHEMA)}
    refuse_types(record, path, job_id=str | None, job_ids=list, parts_left=int, pid=int, host=str, submitted=str)
    refuse_types(
        record,
        path,
        comment=str | None,
        script_pid=int | None,
        attempts=list,
        given_up=str | None,
        run_sha256=str | None,
        place=str | None,
    )
    for attempt in record["attempts"]:
        if not isinstance(attempt, dict):
            raise NlpBenchError(f"{path}: attempts holds {str(attempt)[:80]!r}; put the original back")
        refuse_types(attempt, path, job_id=str | None)
    lost = [attempt["job_id"] for attempt in record["attempts"]]
    job_ids = [job_id for job_id in (record["job_id"], *record["job_ids"], *lost) if job_id is not None]
    scheduler = scheduler_of(run_dir) if job_ids else None
    for job_id in job_ids:  # it becomes a word of the scheduler's commands
        if scheduler and not scheduler.job_id.fullmatch(str(job_id)):
            raise NlpBenchError(
                f"{path}: job_id is {str(job_id)[:80]!r}, which is no job of {scheduler.title}; put the original back"
            )
    known = record["job_ids"] or [record["job_id"]]  # older records know one job
    record["job_ids"] = [str(job_id) for job_id in known if job_id is not None]
    return record


def repeat_command(run_dir: Path) -> str:
    """Return what a person types to hand the run in this folder over again."""
    return f"nlp-bench submit --run {shlex.quote(str(run_dir / 'run.json'))} --run-dir {shlex.quote(str(run_dir))}"


def scheduler_of(run_dir: Path) -> Scheduler:
    """Return the scheduler that the run in this folder was resolved for; Slurm where run.json does not tell."""
    launch = read_object(run_dir / "run.json").get("launch")
    name = launch.get("launcher") if isinstance(launch, dict) else None
    return get_scheduler(name if isinstance(name, str) else "slurm")


def is_intent(submission: dict[str, Any]) -> bool:
    """Whether the run was about to be handed over, and nobody has written down that it was."""
    return bool(submission.get("comment")) and (not submission["job_ids"] or bool(submission.get("parts_left")))
