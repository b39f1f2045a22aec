"""No process outlives the one that started it."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
"""Linux's prctl option: the signal that a process gets when its parent dies; it survives execve."""


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, even by SIGKILL; elsewhere nothing happens."""
    parent = os.getppid()
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it died before the call
        os._exit(1)
