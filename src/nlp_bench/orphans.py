"""No process outlives the one that started it: each requests a signal from Linux at the death of its parent."""

import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1  # Linux's prctl option: the signal at the death of the parent; kept by execve, not by fork
ANCESTOR = "NLP_BENCH_ANCESTOR"
"""Process that must be an ancestor of those that inherit this variable, to notice a parent that dies before the prctl call."""
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # by which a person or a terminal ends a run


def die_with_parent(number: int = signal.SIGKILL, *, parent: int | None = None) -> None:
    """Let Linux send this process signal `number` when its parent dies, even by SIGKILL; on other systems do nothing.

    `parent` is the parent's process number, where this is called between fork and exec. Ends this process where the parent, or
    the process that ANCESTOR names, has died already.
    """
    known = parent or os.getppid()
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    except (OSError, AttributeError):
        return
    above = os.environ.get(ANCESTOR, "") if parent is None else ""
    if os.getppid() != known or (above.isdigit() and not _is_below(int(above))):
        os._exit(1)


def watch_parent() -> None:
    """Let a thread end this worker process of multiprocessing when its parent ends, on any system.

    Linux's signal would come with the end of the thread that started this process. Raises RuntimeError where there may be no thread more.
    """
    import multiprocessing  # noqa: PLC0415  # few callers need them, and start-up is measured
    import threading  # noqa: PLC0415

    def wait() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os._exit(1)  # the results are not needed any more

    threading.Thread(target=wait, daemon=True).start()


def _is_below(ancestor: int) -> bool:
    """Whether `ancestor` is an ancestor of this process, or that is not known."""
    pid = os.getppid()
    while pid > 1 and pid != ancestor:
        try:
            pid = int(stat_of(pid)[1])
        except OSError:  # noqa: PERF203  # any of them may have ended
            return not Path("/proc/self/stat").exists()
    return pid == ancestor


def stat_of(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat (proc(5)) behind the name, which may hold blanks and brackets: state, parent, and so on. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
