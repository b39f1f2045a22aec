"""Find the folders of submitted runs, and JUBE's runs, which `jube continue` drives until nothing waits in them."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.files import read_object, real, user_name
from nlp_bench.launch.submission import SCHEMA
from nlp_bench.walk import walk


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Return every folder with a submit.json of ours at or below `paths`, each real folder once, sorted."""
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"{path} is not a folder; give a run folder or one above run folders")
        for folder, files in walk(path):
            # where run.json was purged, its job may wait all the same
            if "submit.json" in files and (
                "run.json" in files or read_object(folder / "submit.json").get("schema") == SCHEMA
            ):
                found[real(folder)] = None
    return sorted(found)


UNSEEN_S = 10.0  # seconds unseen after which a folder has gone: a file server that is away for a moment hides it


def gone(folders: Iterable[Path]) -> set[Path]:
    """Return those that are not there, nor come back within UNSEEN_S."""
    last, missing = time.monotonic() + UNSEEN_S, set(folders)
    while (missing := set(filter(_is_missing, missing))) and time.monotonic() < last:
        time.sleep(0.5)
    return missing


def _is_missing(folder: Path) -> bool:
    try:
        return not folder.is_dir()
    except OSError:  # an expired ticket, a file server that is away: it may be there
        return False


JUBE_TIMEOUT_S = 3600.0  # seconds for one `jube continue`: it measures and, on the local launcher, trains
RUN = re.compile(r"\d{6}")


def jube_runs(paths: list[Path]) -> list[Path]:
    """Return the runs of JUBE at or below `paths`: folders with six digits for a name that hold workpackages.xml or configuration.xml."""
    found: dict[Path, None] = {}
    for path in (real(path) for path in paths if path.is_dir()):
        for run in (path, *sorted(path.iterdir())):
            if RUN.fullmatch(run.name) and run.is_dir() and (run / "configuration.xml").exists():
                found[run] = None
    return list(found)


def jube_status(run: Path) -> str:
    """Return JUBE's word: RUNNING (also while a step waits for its done file), FINISHED or ERROR. Raises NlpBenchError with JUBE's own words where it gives none."""
    said = _jube("status", run).split()
    if not said or said[-1] not in {"RUNNING", "FINISHED", "ERROR"}:
        raise NlpBenchError(
            f"jube status of {run} says {' '.join(said)[-300:] or 'nothing'}; the runs themselves: nlp-bench report {shlex.quote(str(run))}"
        )
    return said[-1]


def continue_jube(run: Path) -> str:
    """Call `jube continue` once and return JUBE's word afterwards."""
    _jube("continue", run, "--hide-animation")
    return jube_status(run)


def _refuse_foreign(run: Path) -> None:
    """Refuse another user's run of JUBE: its configuration.xml holds the commands of its steps, which would run as the caller."""
    for path in (run, run / "configuration.xml", run / "workpackages.xml"):
        if os.path.lexists(path) and (owner := path.lstat().st_uid) != os.geteuid():
            name = user_name(owner)
            raise NlpBenchError(
                f"{path} belongs to {name}: jube would run its steps as {user_name(os.geteuid())}; let {name} go on with it, or start your own "
                "(benchmark/run.sh); without --continue its runs are only looked at"
            )


def _jube(verb: str, run: Path, *words: str) -> str:
    _refuse_foreign(run)
    command = ["jube", verb, str(run.parent), "--id", str(int(run.name)), *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=JUBE_TIMEOUT_S, stdin=subprocess.DEVNULL
        )  # fmt: skip
    except FileNotFoundError as error:
        raise NlpBenchError(
            "jube is not on PATH: source benchmark/env/jube.bash, then nlp_bench_find_jube ."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise NlpBenchError(f"{' '.join(command)}: no end within {JUBE_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        raise NlpBenchError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout
