"""A copy of the code in the run's folder: a job that waits then runs what was submitted, whatever becomes of the checkout meanwhile.

RUN_DIR/snapshot holds src/nlp_bench (the package that runs, compiled) and, of the working folder, the data files of benchmark/ and jube/.
"""

import compileall
import py_compile
import shutil
import tempfile
from pathlib import Path

import nlp_bench
from nlp_bench.config.catalog import root
from nlp_bench.config.origin import SNAPSHOT, code_sha256, origin
from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.files import write_json
from nlp_bench.walk import SNAPSHOT as NAME

DATA = ("benchmark/*.toml", "benchmark/models/*.toml", "benchmark/systems/*.toml", "benchmark/rules/*.toml", "jube/*")
SCHEMA = "nlp-bench/snapshot/1"


def folder_of(run_dir: Path) -> Path:
    """Return where the snapshot of a run lies; it takes the place of the checkout in the job."""
    return run_dir / NAME


def take(run: Run, run_dir: Path) -> Path:
    """Put the code that runs now into the run's folder, whole or not at all, its files read-only, and return the folder.

    One that is there already, of a submission that was cut off, stays. Raises UsageError where the code is not the one that resolved
    the run (`code_sha256` of run.json), NlpBenchError where the copy cannot be written.
    """
    folder = folder_of(run_dir)
    try:
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=run_dir, prefix=f".{NAME}.", suffix=".part") as made:
                whole = Path(made, NAME)
                _copy(whole)
                _refuse_other(run, whole)
                whole.rename(folder)
    except OSError as error:
        raise NlpBenchError(
            f"--snapshot-code: cannot write {folder}: {explained(error)}; nothing was submitted"
        ) from error
    _refuse_other(run, folder)
    return folder


def _copy(target: Path) -> None:
    package = Path(nlp_bench.__file__).parent
    code = ((path, Path("src/nlp_bench", path.relative_to(package))) for path in sorted(package.rglob("*")))
    data = ((path, path.relative_to(root())) for pattern in DATA for path in sorted(root().glob(pattern)))
    for path, name in (*code, *data):  # shutil.copytree keeps of an error its text alone
        if path.is_file() and "__pycache__" not in name.parts and path.suffix != ".part":
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)
    made = origin()
    write_json(target / SNAPSHOT, {"schema": SCHEMA, "version": made.version, "commit": made.commit})
    # Checked by the hash of its source: a time that a file system rounds would compile it anew in every rank.
    compileall.compile_dir(target / "src", quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    for path in target.rglob("*"):
        if path.is_file():
            path.chmod(path.stat().st_mode & ~0o222)
        else:  # a folder stays writable, so that `rm -r` removes the run
            path.chmod(path.stat().st_mode | 0o700)


def _refuse_other(run: Run, folder: Path) -> None:
    held, wanted = code_sha256(folder / "src/nlp_bench"), run.nlp_bench.code_sha256
    if wanted not in {None, held}:
        raise UsageError(
            f"--snapshot-code: the code (SHA-256 {held[:12]}) is not the one that resolved this run (run.json: {wanted[:12]}, commit "
            f"{run.nlp_bench.commit or 'unknown'}); resolve it again with `nlp-bench check`, or leave --snapshot-code out"
        )
