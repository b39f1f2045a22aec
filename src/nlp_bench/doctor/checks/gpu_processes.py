"""Whether somebody else computes on the GPUs."""

import ctypes
import os
from pathlib import Path

from nlp_bench.doctor.finding import Finding, ok, skipped, warning
from nlp_bench.doctor.place import Place
from nlp_bench.machine.nvml import Nvml, NvmlError

MOST = 64
BUSY_BYTES = 2**30
"""Memory in use on a GPU without a process that we may see: more than a driver and its services take."""


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t of nvml.h (version 2, used by nvmlDeviceGetComputeRunningProcesses_v3)."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


class Processes(ctypes.Structure):
    """Room for the processes of one GPU."""

    _fields_ = (("list", ProcessInfo * MOST),)
    value = 0  # `Nvml.number` reads it


class Memory(ctypes.Structure):
    """nvmlMemory_t of nvml.h, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))

    @property
    def value(self) -> int:
        """Bytes in use, as `Nvml.number` reads it."""
        return int(self.used)


def check(place: Place) -> Finding:
    """Warn of processes that are not this one's kin: they take memory and time from a measurement."""
    if place.no_gpu_here:
        return skipped(place.no_gpu_here)
    if place.nvml is None or not place.nvml.handles:
        return skipped(f"no GPU to ask: {place.no_nvml or 'the driver lists none'}")
    mine = {os.getpid(), os.getppid()}
    seen, quiet = [], []
    for index, handle in enumerate(place.nvml.handles):
        others = [pid for pid in _pids(place.nvml, handle) if pid not in mine]
        seen += [f"GPU {index}: process {pid} ({_command(place, pid)})" for pid in others]
        used = _used(place.nvml, handle)
        if not others and used > BUSY_BYTES:
            quiet.append(f"GPU {index}: {used / 2**30:.1f} GiB are in use by processes that are not shown")
    if seen or quiet:
        return warning(
            f"{len(seen) or 'unseen'} process(es) of others on the GPUs",
            *seen[:16],
            *quiet,
            remedy="nvidia-smi; wait for their end, or ask for the node alone (--exclusive)",
        )
    return ok(f"nobody computes on the {len(place.nvml.handles)} GPU(s)")


def _pids(nvml: Nvml, handle: ctypes.c_void_p) -> list[int]:
    count, infos = ctypes.c_uint(MOST), Processes()
    try:
        nvml.number("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), kind=lambda: infos)
    except NvmlError:
        return []
    return [int(info.pid) for info in infos.list[: count.value]]


def _used(nvml: Nvml, handle: ctypes.c_void_p) -> int:
    try:
        return nvml.number("nvmlDeviceGetMemoryInfo", handle, kind=Memory)
    except NvmlError:
        return 0


def _command(place: Place, pid: int) -> str:
    try:
        words = (place.files / Path(f"proc/{pid}/cmdline")).read_bytes().split(b"\0")
    except OSError:
        return "not to be seen here"
    return b" ".join(words).decode(errors="replace").strip()[:80] or "no command line"
