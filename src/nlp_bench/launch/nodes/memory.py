"""The memory policy of this process: Linux's set_mempolicy(2), for which the C library has no function."""

import ctypes
import os
import platform
from errno import ENOSYS

PREFERRED, BIND = 1, 2
"""MPOL_PREFERRED (one node, others when it is full), MPOL_BIND (these nodes only) of linux/mempolicy.h."""
NUMBER = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261}
"""__NR_set_mempolicy by machine: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h, powerpc's table."""
MAX_NODES = 1024


def set_memory_policy(policy: str, nodes: list[int]) -> None:
    """Take new pages from `nodes`: "preferred" (from the first of them if it has any) or "bind" (from no other).

    Holds for this thread and all that it starts, so it must be called before other threads exist. Raises OSError, EPERM
    in a container whose seccomp profile forbids it.
    """
    number = NUMBER.get(platform.machine())
    if number is None:
        raise OSError(ENOSYS, os.strerror(ENOSYS))
    mode, wanted = (PREFERRED, nodes[:1]) if policy == "preferred" else (BIND, nodes)
    bits = ctypes.sizeof(ctypes.c_ulong) * 8
    mask = (ctypes.c_ulong * (MAX_NODES // bits))()
    for node in wanted:
        mask[node // bits] |= 1 << node % bits
    library = ctypes.CDLL(None, use_errno=True)
    # One bit more than there are: the kernel takes one off (manual page, NOTES)
    if library.syscall(ctypes.c_long(number), ctypes.c_int(mode), mask, ctypes.c_ulong(MAX_NODES + 1)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
