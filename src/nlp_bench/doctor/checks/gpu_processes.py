"""Whether somebody else computes on the GPUs."""

import os
from pathlib import Path

from nlp_bench.doctor.finding import Finding, ok, skipped, warning
from nlp_bench.doctor.place import Place

BUSY_BYTES = 2**30
"""Memory in use on a GPU without a process that we may see: more than a driver and its services take."""


def check(place: Place) -> Finding:
    """Warn of processes that are not this one's kin: they take memory and time from a measurement."""
    if place.no_gpu_here:
        return skipped(place.no_gpu_here)
    if place.nvml is None or not place.nvml.handles:
        return skipped(f"no GPU to ask: {place.no_nvml or 'the driver lists none'}")
    mine = {os.getpid(), os.getppid()}
    seen, quiet = [], []
    for index, handle in enumerate(place.nvml.handles):
        running = place.nvml.maybe("nvmlDeviceGetComputeRunningProcesses", handle) or []
        others = [process.pid for process in running if process.pid not in mine]
        seen += [f"GPU {index}: process {pid} ({_command(place, pid)})" for pid in others]
        memory = place.nvml.maybe("nvmlDeviceGetMemoryInfo", handle)
        if not others and memory and memory.used > BUSY_BYTES:
            quiet.append(f"GPU {index}: {memory.used / 2**30:.1f} GiB are in use by processes that are not shown")
    if seen or quiet:
        return warning(
            f"{len(seen) or 'unseen'} process(es) of others on the GPUs",
            *seen[:16],
            *quiet,
            remedy="nvidia-smi; wait for their end, or ask for the node alone (--exclusive)",
        )
    return ok(f"nobody computes on the {len(place.nvml.handles)} GPU(s)")


def _command(place: Place, pid: int) -> str:
    try:
        words = (place.files / Path(f"proc/{pid}/cmdline")).read_bytes().split(b"\0")
    except OSError:
        return "not to be seen here"
    return b" ".join(words).decode(errors="replace").strip()[:80] or "no command line"
