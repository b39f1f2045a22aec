"""One file per check: `check(place)` looks at one thing, changes nothing, and returns one finding."""

CHECKS = {
    "system": "the system file of this machine is found, and the run can be resolved",
    "python": "Python 3.10 to 3.13, and the compiled reader of logs",
    "environment": "the virtual environment is finished and holds the pinned versions",
    "jube": "a JUBE that starts under this Python",
    "slurm": "Slurm answers, and how fast",
    "partition": "the partition exists, is up, and gives the nodes and the time",
    "job": "sbatch would take the job script (sbatch --test-only)",
    "allocation": "inside an allocation: as many nodes as the run asks for",
    "names": "the nodes' addresses can be resolved, this one's too",
    "gpus": "as many GPUs of the right kind as the system file says",
    "gpu_health": "ECC errors, retired pages, remapped rows, throttling, NVLink",
    "gpu_processes": "nobody else computes on the GPUs",
    "cuda": "torch's CUDA fits the driver",
    "nccl": "NCCL is there, and the interfaces of *_SOCKET_IFNAME exist",
    "fabric": "InfiniBand ports are up, as many and as fast as the system file says",
    "limits": "locked memory, open files, shared memory",
    "build": "a finished build of the kernels for this machine",
    "locks": "nobody holds, and nobody left, a lock of build, environment or data",
    "disk": "room and inodes where runs, data and builds are written",
    "writable": "a file can be written, flushed and removed there",
    "clock": "the clock is synchronised and agrees with the file server",
    "data": "the training data are whole, and no git-lfs pointers",
}
"""Name of each check (its file) and what is well when it is ok."""

PER_NODE = (
    "python", "names", "gpus", "gpu_health", "gpu_processes", "cuda", "nccl", "fabric", "limits", "disk", "writable", "clock",
)  # fmt: skip
"""The checks that `doctor --nodes` runs on each node as well: their answer differs between nodes."""
