"""The folder of one run: everything that made it, and nothing of another run.

RUN_DIR/snapshot, where it is asked for, holds a copy of the code: src/nlp_bench (the package that runs, compiled) and, of the working folder,
the data files of benchmark/ and jube/. A job that waits then runs what was submitted, whatever becomes of the checkout meanwhile.
"""

import compileall
import contextlib
import itertools
import json
import os
import py_compile
import shlex
import shutil
import stat
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import nlp_bench
from nlp_bench import schemas
from nlp_bench.build.environment import PACKAGES, unpinned
from nlp_bench.build.providers import check_shadow
from nlp_bench.clock import stamp
from nlp_bench.config import catalog
from nlp_bench.config.origin import SNAPSHOT_RECORD, code_files, code_sha256, origin
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import get_scheduler
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.escape import one_line
from nlp_bench.files import new_owner, read_object, real, sha256_of, user_name, write_json, write_text
from nlp_bench.launch import lock
from nlp_bench.launch.ambient import variables
from nlp_bench.launch.arguments import check_arguments
from nlp_bench.launch.script import environment_folder, job_script
from nlp_bench.launch.submission import read_submission
from nlp_bench.packages import installed_version, is_missing, remedy
from nlp_bench.seal import LOG, OUTCOME, RUN, SUBMISSION
from nlp_bench.terminal import say
from nlp_bench.walk import SNAPSHOT

WRITTEN = (RUN, "submit.job", "command.txt", "environment.json")
"""What a run writes into its folder under names that other programs may use, too."""
OWN = (LOG, "job.err", "sync.log", SUBMISSION, "ended.json", OUTCOME, "ready", lock.NAME)
"""What a run and its scheduler append to, lock or go by under these names in its folder."""
TRIAL_BYTES = 65536  # what the records of a run need at least, before its log


def new_folder(root: Path, run: Run) -> Path:
    """Create and return reports/runs/<time>_<model>_<system>, with a number behind it when that exists."""
    base = root / "reports" / "runs" / f"{stamp()}_{run.model.name}_{run.system.name}"
    for number in range(1, 1000):
        folder = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            if os.path.lexists(folder):
                continue  # of another run
            raise UsageError(
                f"--run-dir: cannot create {folder}: {explained(error)}; or name another folder"
            ) from error
        return real(folder)  # reports may be a link, to a scratch with more room
    raise NlpBenchError(f"{base}: 999 runs of this second exist already")


def run_folder(root: Path, run: Run, named: Path | None, *, recorded: Path | None, again: bool = False) -> Path:
    """Return the folder that was named, or a new one; with `again` a finished run in it is moved aside.

    `recorded` is the run.json that is submitted, if any: such a run may end at any moment. Raises UsageError for a folder that cannot be
    written, that holds another run, or files of somebody else that this run would replace.
    """
    if named is None:
        if again:
            raise UsageError("--again: it goes with --run-dir; without one each run has a new folder")
        return new_folder(root, run)
    if again:
        _set_aside(named)
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
    _refuse_prepared(run_dir)
    _refuse_foreign(run_dir)
    return run_dir


def _refuse_foreign(run_dir: Path) -> None:
    """Refuse a folder in which another user's submission was cut off: its job, if there is one, is not among those that we may ask for."""
    found = read_submission(run_dir)
    path = next((run_dir / name for name in (SUBMISSION, lock.NAME) if os.path.lexists(run_dir / name)), None)
    if path is None or (found and found.is_complete):
        return
    if path.lstat().st_uid != new_owner(run_dir):
        name = user_name(path.lstat().st_uid)
        raise UsageError(
            f"--run-dir: {path} belongs to {name}, who may have a job for this folder that {name} alone can ask for; let {name} go on "
            "with it, or name a new folder"
        )


def _refuse_prepared(run_dir: Path) -> None:
    """Refuse a folder in which another hand has laid what a run writes into: a link leads the scheduler's log to any file of the caller's."""
    for name in OWN:
        path = run_dir / name
        mode = path.lstat().st_mode if os.path.lexists(path) else stat.S_IFREG
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a folder the scheduler itself says that it is one
            kind = "a link" if stat.S_ISLNK(mode) else "no regular file"
            raise UsageError(
                f"--run-dir: {path} is {kind}, and the run would write into it; remove it, or name a new folder"
            )
    if (run_dir / LOG).is_file() and not any((run_dir / name).exists() for name in (SUBMISSION, lock.NAME)):
        raise UsageError(
            f"--run-dir: {run_dir} holds job.out, the log of a run that was not submitted there, and this run's would be appended to it; "
            "name a new folder"
        )


def _is_ours(run_dir: Path, run: Run, recorded: Path | None) -> bool:
    """Whether the files of a run in its folder are those of an earlier submission of it, or the record that is submitted now."""
    there = run_dir / RUN
    if (run_dir / SUBMISSION).exists():
        return True
    found = read_object(there)
    if (run_dir / lock.NAME).exists() and str(found.get("schema")).startswith(schemas.RUN.rpartition("/")[0]):
        return True  # a submission that was refused, or killed before it was written down
    if any((run_dir / name).exists() for name in WRITTEN if name != there.name):
        return False
    wanted = json.loads(json.dumps(run.record()))
    is_same = all(found.get(key) == value for key, value in wanted.items() if key not in {"created", "nlp_bench"})
    return is_same or (recorded is not None and recorded.exists() and recorded.samefile(there))


def writable_folder(path: Path, *, may_have_ended: bool = False, option: str = "--run-dir") -> Path:
    """Return `path`, named by `option`, made if needed; refuse one that cannot be written or, unless the caller's own `may_have_ended`, holds a finished run."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option}: cannot create {path}: {explained(error)}; or name another folder") from error
    try:  # os.access knows neither a full disk nor a file server that trusts no root
        with tempfile.TemporaryFile(dir=path) as trial:
            trial.write(b"\0" * TRIAL_BYTES)
            trial.flush()
    except OSError as error:
        raise UsageError(f"{option}: {path} is not writable: {explained(error)}; or name another folder") from error
    if not may_have_ended and (path / OUTCOME).exists():
        raise UsageError(
            f"{option}: {path} holds a finished run (outcome.json); name a new folder, or give --again to `submit`, which keeps this one as {path.name}.1"
        )
    return real(path)


def _set_aside(run_dir: Path) -> None:
    """Move the folder of a finished run to the next free name (DIR.1, DIR.2), whole, and leave an empty one in its place; one that has not ended stays."""
    folder = real(run_dir)
    if not (folder / OUTCOME).exists():
        return
    with lock.held(folder):
        if not (folder / OUTCOME).exists():
            return  # another `submit` was here until now
        aside = next(
            one
            for number in itertools.count(1)
            if not os.path.lexists(one := folder.with_name(f"{folder.name}.{number}"))
        )
        try:
            folder.rename(aside)
            folder.mkdir()
        except OSError as error:
            raise UsageError(f"--again: cannot move {folder} to {aside}: {explained(error)}") from error
    say(f"the finished run in {folder} is kept as {aside}")


def record_folder(path: Path, name: str, schema: str) -> Path:
    """Return the folder of --output for the record `name`; raises UsageError where a run was started in it, or `name` is somebody else's file."""
    if found := next((one for one in (SUBMISSION, OUTCOME, LOG) if os.path.lexists(path / one)), None):
        raise UsageError(
            f"--output: {path} holds {found}: a run was started there, and its records stay as they were; name another folder"
        )
    own = schema.rpartition("/")[0]
    if os.path.lexists(path / name) and str(read_object(path / name).get("schema")).rpartition("/")[0] != own:
        raise UsageError(
            f"--output: {path / name} is none of nlp-bench's and would be replaced; name another folder, or move it away"
        )
    return writable_folder(path, option="--output")


def refuse_name(run: Run, root: Path, run_dir: Path, *, is_snapshot: bool = False) -> None:
    """Raise UsageError for a working folder or a run's folder whose name would lose the run, naming the character and the remedy.

    A colon divides PYTHONPATH, which the job gets the code by; a scheduler has patterns of its own in the path of job.out (Slurm: % and
    backslash). Sources: Python's manual, "PYTHONPATH"; sbatch's, FILENAME PATTERN, and a job in such a folder (it fails without a log).
    """
    run_dir = real(run_dir)
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


def prepare(run: Run, *, root: Path, run_dir: Path, is_snapshot: bool = False) -> Path:
    """Write run.json and submit.job into the folder, with `is_snapshot` also the code, and return the script's path.

    A run.json of the same run, which was only resolved earlier, stays: a job that was handed over already is for it.
    """
    refuse_importable(run_dir)
    code = take_snapshot(run, run_dir) if is_snapshot else None
    found = read_object(run_dir / RUN)
    is_written = bool(found) and json.loads(json.dumps(run.record())) == {**found, "created": run.created}
    sealed = sha256_of(run_dir / RUN if is_written else run.write(run_dir))
    earlier = read_submission(run_dir)  # of a submission that was cut off
    if earlier:
        replace(earlier, run_sha256=sealed).write(run_dir)
    script = run_dir / "submit.job"
    text = job_script(run, root=root, run_dir=run_dir, code=code, run_sha256=sealed)
    write_text(script, text, errors="surrogateescape")
    mode = script.stat().st_mode
    with contextlib.suppress(PermissionError):  # a file system without modes, CIFS; it is read all the same
        script.chmod(mode | (mode & 0o444) >> 2)  # who may read it may start it
    return script


def refuse_importable(run_dir: Path, version: tuple[int, int] = sys.version_info[:2]) -> None:
    """Refuse Python files in the run's folder where Python 3.10 runs, whose `-m` imports from there; PYTHONSAFEPATH ends that from 3.11 on."""
    if version >= (3, 11):
        return
    for path in sorted(run_dir.iterdir()):
        if path.suffix in {".py", ".so"} or (path / "__init__.py").exists():
            raise UsageError(
                f"{path}: Python {version[0]}.{version[1]} would import it in every rank; move it away, or take Python 3.11 or newer"
            )


def preflight(run: Run, root: Path, system: str | None) -> None:
    """Refuse a run whose data or software is missing, before anything is submitted; `system` is the name or path that was given, if any."""
    if not run.system.container.image:
        _check_software(run, environment_folder(root), system)
    variables(run.system, os.environ)
    check_arguments(run, files=True)


def _check_software(run: Run, folder: Path, system: str | None) -> None:
    """Refuse an environment in `folder` that is not finished, and say where it has other versions than the pinned ones."""
    renew = f"bash benchmark/env/setup_venv.sh --system {shlex.quote(system or run.system.name)}"
    if not (folder / "nlp-bench.key").exists():
        if catalog.has_workflow() or folder.exists():
            raise UsageError(f"software: no finished virtual environment in {folder}; set it up with `{renew}`")
        if missing := [name for name in ("torch", "megatron") if is_missing(name)]:  # else this Python trains
            raise UsageError(
                f"software: {' and '.join(missing)} cannot be imported by {sys.executable}; {remedy(missing[0])}"
            )
    if not run.system.software.system_site_packages and folder.is_dir() and folder.samefile(sys.prefix):
        others = unpinned({package: installed_version(package) for package in PACKAGES})
        for other in others:
            say(
                f"warning: {folder} has other versions than the pins, as before a git pull or after a pip install by hand: {other}; renew it: {renew}"
            )
    if run.tuning.trainer == "nlp-bench":
        check_shadow()


COPIED = ("benchmark/*.toml", "benchmark/models/*.toml", "benchmark/systems/*.toml", "benchmark/rules/*.toml", "jube/*")
SNAPSHOT_SCHEMA = "nlp-bench/snapshot/1"


def snapshot_folder(run_dir: Path) -> Path:
    """Return where the snapshot of a run lies; it takes the place of the checkout in the job."""
    return run_dir / SNAPSHOT


def take_snapshot(run: Run, run_dir: Path) -> Path:
    """Put the code that runs now into the run's folder, whole or not at all, its files read-only, and return the folder.

    One that is there already, of a submission that was cut off, stays. Raises UsageError where the code is not the one that resolved
    the run (`code_sha256` of run.json), NlpBenchError where the copy cannot be written.
    """
    folder = snapshot_folder(run_dir)
    try:
        if not folder.exists():
            # Beside it, for file systems that rename within a folder alone.
            made = run_dir / f".{SNAPSHOT}.{os.urandom(6).hex()}.part"
            try:
                _copy(made)
                _refuse_other(run, made)
                made.rename(folder)
            finally:
                shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise NlpBenchError(
            f"--snapshot-code: cannot write {folder}: {explained(error)}; nothing was submitted"
        ) from error
    _refuse_other(run, folder)
    return folder


def _copy(target: Path) -> None:
    package = Path(nlp_bench.__file__).parent
    code = ((path, Path("src/nlp_bench", path.relative_to(package))) for path in code_files(package, "*"))
    root = catalog.root()
    data = ((path, path.relative_to(root)) for pattern in COPIED for path in sorted(root.glob(pattern)))
    for path, name in (*code, *data):  # shutil.copytree keeps of an error its text alone
        if path.is_file() and "__pycache__" not in name.parts and path.suffix != ".part":
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    made = origin()
    write_json(target / SNAPSHOT_RECORD, {"schema": SNAPSHOT_SCHEMA, "version": made.version, "commit": made.commit})
    # Checked by the hash of its source: a time that a file system rounds would compile it anew in every rank.
    compileall.compile_dir(target / "src", quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    for path in target.rglob("*"):
        mode = path.stat().st_mode
        with contextlib.suppress(OSError):  # a file system without modes (CIFS)
            # A folder stays writable, so that `rm -r` removes the run.
            path.chmod(mode & ~0o222 if path.is_file() else mode | 0o700)


def _refuse_other(run: Run, folder: Path) -> None:
    held, wanted = code_sha256(folder / "src/nlp_bench"), run.nlp_bench.code_sha256
    if wanted not in {None, held}:
        raise UsageError(
            f"--snapshot-code: the code (SHA-256 {held[:12]}) is not the one that resolved this run (run.json: {wanted[:12]}, commit "
            f"{run.nlp_bench.commit or 'unknown'}); resolve it again with `nlp-bench check`, or leave --snapshot-code out"
        )
