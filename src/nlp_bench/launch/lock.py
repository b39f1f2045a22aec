"""Who may work in a run folder: one at a time. The lock is held by a process *and* by what it starts for the run.

flock(2) belongs to the open file, which children inherit: a `submit` that is killed leaves it to the sbatch or the training
that it had started, and the next `submit` waits for those. The system releases it with the last of them, whatever killed it.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nlp_bench.errors import NlpBenchError, explained
from nlp_bench.files import reported_late, user_folder
from nlp_bench.terminal import say

NAME = ".lock"
SAYS = b"nlp-bench: whoever works in this folder holds this file's lock; it lies here afterwards as well, and means nothing then\n"
"""What the file holds: a clean-up of empty files (find -empty -delete) would take one away beside a training, and its lock with it."""
POLL_S = 0.5


@contextlib.contextmanager
def held(run_dir: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Hold the folder's lock and yield its descriptor, to be passed on with `pass_fds`.

    While another process holds it, `on_wait` is called every POLL_S. Raises NlpBenchError where the lock file cannot be written. A
    file system without locks (Lustre mounted without `flock`) is said once and works without.
    """
    try:
        handle = os.open(run_dir / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise NlpBenchError(f"cannot write {run_dir / NAME}: {explained(error)}; or name a writable folder") from error
    try:
        while not _taken(handle):
            on_wait()
            time.sleep(POLL_S)
        if os.fstat(handle).st_size == 0:
            with contextlib.suppress(OSError):  # a full disk
                os.write(handle, SAYS)
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def alone_in(place: str, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Let one run after the other train at `place`, an allocation that a person holds or a machine's GPUs: two at once would share them.

    Those that a user starts on one machine wait for each other; `on_wait` as above. Nobody waits for a folder that another user laid there.
    """
    mine = user_folder()
    if mine.lstat().st_uid != os.getuid() or mine.is_symlink():
        yield
        return
    (mine / place).mkdir(mode=0o700, exist_ok=True)
    with held(mine / place, on_wait=on_wait):
        yield


def _taken(handle: int) -> bool:
    try:  # a lock daemon may not answer
        with reported_late(f"waiting for the file system to answer for the lock {NAME} of the folder"):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        say(f"this file system has no locks ({error.strerror}); submit each run once")
    return True


def is_held(run_dir: Path) -> bool | None:
    """Whether a process of this machine works in the folder, or what it has started does; None on a file system without locks."""
    try:
        handle = os.open(run_dir / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # another user's: nobody can tell, and a run that may go on must not be ended
        return True
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False
