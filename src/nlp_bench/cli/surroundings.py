"""What a program inherits from its caller, made the same everywhere: encoding, streams, signals, import path, private caches."""

import atexit
import contextlib
import io
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""Where torch keeps what it compiles, and loads it from; a value of the user's is kept."""

FOREIGN_VARIABLES = ("PYTHONINSPECT", "PYTHONIOENCODING", "PYTHONOPTIMIZE")
"""Variables for other programs: an interactive prompt at exit, a log in UTF-16, trainers without their assertions."""


def settle() -> None:
    """Continue in Python's UTF-8 mode where the locale has another encoding, without a closed standard stream, FOREIGN_VARIABLES or odd signals.

    In the locale C or a Latin-1 one, Python would read names of files and write results in that encoding: other bytes than
    elsewhere. A file that is opened while a standard stream is closed would get its number, and what a child prints; a non-blocking
    stream would lose what its reader is slow to read. Where SIGCHLD is ignored the exit status of every
    child is lost and reads as 0, and a blocked SIGTERM reaches neither this process nor any rank. Replaces this process, at most once;
    children inherit all of it. Source: PEP 540, wait(2).
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ["PYTHONSAFEPATH"] = "1"  # no Python that is started from here imports from its current folder (3.11)
    for number in (0, 1, 2):
        if not _is_open(number):
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one
            if number == 1:
                print("nlp-bench: stdout is closed: what would be printed there is lost", file=sys.stderr)
        os.set_blocking(number, True)
    _buffer_stdout()
    is_other = sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1"
    taken_out = {name: os.environ.pop(name, "") for name in FOREIGN_VARIABLES}
    if is_other or any(taken_out.values()):
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  # the same words again, no shell


def _buffer_stdout() -> None:
    """Write whole lines where PYTHONUNBUFFERED is set: Python's text layer then drops what a short write leaves (a full disk), without a word.

    The variable stays, for ranks' lines are wanted at once.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stdout.buffer, io.RawIOBase):
        encoding = sys.stdout.encoding
        raw: Any = sys.stdout.detach()
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, line_buffering=True)


def keep_caches_private() -> None:
    """Let torch compile into a folder of this user alone.

    torch's default is /tmp/torchinductor_NAME: a user who makes that first can put code there which every rank of NAME would load.
    """
    if VARIABLE in os.environ:
        return
    import tempfile

    from nlp_bench.errors import NlpBenchError
    from nlp_bench.files import user_folder

    with contextlib.suppress(
        OSError, NlpBenchError
    ):  # no folder for temporary files: torch reports it where it needs one
        folder = user_folder()
        if folder.parent == Path.cwd() and not folder.parent.stat().st_mode & stat.S_ISVTX:
            atexit.register(_remove_empty, folder)  # tempfile's last resort: the folder that somebody works in
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            print(f"nlp-bench: {folder} is not yours alone: torch's cache is a new folder", file=sys.stderr)
            folder = Path(tempfile.mkdtemp(prefix="nlp-bench-"))
        os.environ[VARIABLE] = str(folder / "torchinductor")


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
