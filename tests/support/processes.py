"""Which processes of this machine are of a test."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NLP_BENCH = (sys.executable, "-m", "nlp_bench")
CHECKOUT = {"NLP_BENCH_VENV": sys.prefix, "NLP_BENCH_ROOT": str(ROOT), "PYTHONPATH": str(ROOT / "src")}
"""Variables with which a command of its own runs the code that is tested."""
HEARING = ("env", "--default-signal")
"""Words before a command that must heed every signal: a run of the tests under nohup or behind `&` hands down that some are ignored."""


def surroundings(**variables: str) -> dict[str, str]:
    """Return the variables of a terminal outside of any job, with CHECKOUT and `variables`."""
    of_jobs = ("SLURM", "SBATCH", "JUBE", "NLP_BENCH")
    return {name: value for name, value in os.environ.items() if not name.startswith(of_jobs)} | CHECKOUT | variables


def execute(*words: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program and return its end and what it said; it may fail."""
    return subprocess.run(words, check=options.pop("check", False), capture_output=True, text=True, **options)


def text_of(path: Path) -> str:
    """Return what a file holds, "" while it is not there."""
    return path.read_text(errors="replace") if path.exists() else ""


def until(condition: Callable[[], object], bound_s: float = 60, shown: Callable[[], object] = str) -> None:
    """Wait until `condition` holds; where it does not within `bound_s`, fail with what is `shown` then."""
    end = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < end, shown()
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that has ended and that nobody has waited for does not."""
    with contextlib.suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def processes_with(text: str) -> dict[int, str]:
    """Return number and command line of the processes whose command line contains `text`."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found[int(path.parent.name)] = path.read_text(errors="replace").replace("\0", " ").strip()
    return {number: line for number, line in found.items() if text in line}


def gone(text: str, within_s: float = 20.0) -> bool:
    """Wait until no command line contains `text`: a process that was just ended may still be seen."""
    end = time.monotonic() + within_s
    while processes_with(text) and time.monotonic() < end:
        time.sleep(0.05)
    return not processes_with(text)
