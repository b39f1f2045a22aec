"""What a process may take: locked memory, open files, shared memory."""

import os
import resource

from nlp_bench.doctor.finding import Finding, ok, together, warning
from nlp_bench.doctor.place import Place
from nlp_bench.machine.node import infiniband

FILES_PER_RANK = 1024
"""Open files of a rank: sockets to its peers, libraries, data; the usual soft limit."""
SHM_BYTES_PER_RANK = 32 * 2**20
"""NCCL's and torch's buffers in /dev/shm; a container's usual 64 MiB are too few for four ranks."""


def check(place: Place) -> Finding:
    """Warn of limits that end a run in the middle: they are those of this shell; Slurm hands them on or sets its own."""
    locked, files = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    ranks = place.run.parallel.gpus_per_node if place.run else 1
    found = [ok("", f"locked memory {_text(locked)}, open files {_text(files)}")]
    if infiniband(place.files) and locked != resource.RLIM_INFINITY:
        found.append(
            warning(
                f"locked memory is limited to {_text(locked)}: InfiniBand cannot register its buffers",
                remedy="ulimit -l unlimited, or ask the site",
            )
        )
    if files != resource.RLIM_INFINITY and files < FILES_PER_RANK:
        found.append(warning(f"only {files} open files are allowed", remedy=f"ulimit -n {4 * FILES_PER_RANK}"))
    shm = place.files / "dev/shm"
    if shm.is_dir():
        room = os.statvfs(shm)
        free = room.f_bavail * room.f_frsize
        found.append(ok("", f"{shm} {free / 2**30:.1f} GiB free"))
        if free < ranks * SHM_BYTES_PER_RANK:
            found.append(
                warning(
                    f"{shm} has {free / 2**20:.0f} MiB for {ranks} rank(s)",
                    remedy="remove what others left there; in a container: --shm-size=8g",
                )
            )
    return together(found, "locked memory, open files and shared memory suffice")


def _text(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
