"""Locks: who holds one, and which ones nobody will ever release.

Ours are held by flock, which Linux releases with the process, so a file that lies there means nothing. torch's (torch.utils.file_baton)
are files whose existence is the lock: left by a killed compilation, every later rank waits for ever (Megatron-LM issues 63, 82, 998).
"""

import fcntl
import os
import re
import shlex
from pathlib import Path

from nlp_bench.build.environment import build_folder
from nlp_bench.data import default_folder
from nlp_bench.doctor.finding import Finding, failed, together, warning
from nlp_bench.doctor.place import Place
from nlp_bench.files import age_s

STALE_S = 600.0
"""Seconds after which a lock of torch's that no compiler works under is taken for left behind."""


def check(place: Place) -> Finding:
    """Look at the locks of build, virtual environment and data, and at torch's extension folder."""
    ours = [lock for lock in _ours(place) if lock.is_file()]
    found = [one for lock in ours for one in _held(place, lock)]
    found += [_left(lock, age_s(lock)) for lock in _torch(place)]
    return together(found, f"{len(ours)} lock file(s), none held")


def _ours(place: Place) -> list[Path]:
    venv = Path(place.variables.get("NLP_BENCH_VENV") or place.root / ".venv").absolute()
    data = default_folder(place.root)
    return [
        *sorted(build_folder(place.root).glob(".kernels-*.lock")),
        Path(f"{venv}.lock"),
        data.parent / f".{data.name}.lock",
    ]


def _torch(place: Place) -> list[Path]:
    named = place.variables.get("TORCH_EXTENSIONS_DIR")
    home = place.variables.get("HOME", "")
    folder = Path(named) if named else Path(home) / ".cache" / "torch_extensions"
    return sorted(folder.glob("**/lock"))[:20] if named or home else []


def _held(place: Place, lock: Path) -> list[Finding]:
    try:
        with lock.open("r") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go of at once: nobody waits for it
    except BlockingIOError:
        pid = _holder(place, lock)
        who = f"process {pid}" if pid else "a process of another node"
        return [
            warning(
                f"{who} holds {lock} since {age_s(lock) / 60:.0f} min",
                _command(place, pid),
                remedy=f"wait for it, or look at it: ps -fp {pid or 'PID'}",
            )
        ]
    except OSError as error:
        return [
            warning(
                f"{lock}: {error.strerror}: nobody can tell whether it is held",
                remedy=f"ls -l {shlex.quote(str(lock))}",
            )
        ]
    return []


def _left(lock: Path, old_s: float) -> Finding:
    if old_s < STALE_S:
        return warning(f"torch compiles an extension: {lock} is {old_s:.0f} s old", remedy="wait for its end")
    return failed(
        f"{lock} is {old_s / 60:.0f} min old: a compilation was killed, and every rank would wait for it",
        remedy=f"rm {shlex.quote(str(lock))}",
    )


def _holder(place: Place, lock: Path) -> int | None:
    """Return the process that holds a lock on this node: /proc/locks names inode and pid (proc(5))."""
    state = lock.stat()
    device = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
    try:
        text = (place.files / "proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(rf"FLOCK\s+\S+\s+WRITE\s+(\d+)\s+{device}\b", text)
    return int(found.group(1)) if found and int(found.group(1)) > 0 else None


def _command(place: Place, pid: int | None) -> str:
    try:
        return (
            (place.files / f"proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()[:120]
        )
    except OSError:
        return "its command line cannot be seen here"
