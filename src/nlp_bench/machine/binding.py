"""Each rank's CPUs: assigned once per node by the launcher, bound by each rank itself at its very start.

The launcher knows the GPUs and its own affinity, which the ranks inherit; the rank only reads a variable, so that nothing
heavy is imported before the threads of torch and NCCL are started on the right cores.
"""

import ctypes
import os
import platform
import sys
from errno import ENOSYS

from nlp_bench.files import parse_json
from nlp_bench.immutable import immutable
from nlp_bench.machine.topology import parse_cpus, ranges_of

VARIABLE = "NLP_BENCH_BINDING"
"""JSON object: mode, memory and for each local rank `cpus` (a list as taskset reads it) and `nodes` (its NUMA nodes, the GPU's
own first), or `why` nothing is bound."""

PREFERRED, BIND = 1, 2
"""MPOL_PREFERRED (one node, others when it is full), MPOL_BIND (these nodes only) of linux/mempolicy.h."""
NUMBER = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261}
"""__NR_set_mempolicy by machine: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h, powerpc's table."""
MAX_NODES = 1024


@immutable
class Binding:
    """The result of binding a rank to its CPUs and memory."""

    line: str  # for the log: " > binding: unique_contiguous, NUMA 3, CPUs 36-47 (12)"
    is_complete: bool  # whether the rank has what the launcher assigned


def bind_rank() -> Binding | None:
    """Bind this rank to the CPUs and memory that the launcher assigned; call it before torch is imported.

    Returns None where no launcher set NLP_BENCH_BINDING. It never ends the run: what fails is in the line and on
    stderr.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    try:
        plan = parse_json(text)
        if "why" in plan:
            return _incomplete(f"nothing is bound: {plan['why']}")
        if plan["mode"] == "none":
            return Binding(line=f" > binding: none, {_current_cpus()}", is_complete=True)
        share = plan["ranks"][int(os.environ.get("LOCAL_RANK", "0"))]
        problems = [_bind_cpus(share["cpus"]), _bind_memory(plan["memory"], share["nodes"])]
        nodes = ",".join(map(str, share["nodes"]))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return _incomplete(f"nothing is bound: {VARIABLE} is {text!r} ({type(error).__name__}: {error})")
    memory = "" if plan["memory"] == "local" else f", memory {plan['memory']}"
    if any(problems):
        return _incomplete("; ".join(filter(None, problems)))
    return Binding(line=f" > binding: {plan['mode']}, NUMA {nodes}, {_current_cpus()}{memory}", is_complete=True)


def _bind_cpus(cpus: str) -> str | None:
    """Move all threads of this process to `cpus`; return the error."""
    wanted = parse_cpus(cpus)
    try:
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208  # names are all that is wanted
            os.sched_setaffinity(int(thread), wanted)
    except OSError as error:
        return f"CPUs {cpus} cannot be taken ({error.strerror}; cgroup, cpuset or offline CPUs?)"
    return None


def _bind_memory(memory: str, nodes: list[int]) -> str | None:
    """Prefer or require the memory of `nodes`; return the error."""
    if memory == "local":
        return None
    try:
        set_memory_policy(memory, nodes)
    except OSError as error:
        places = ",".join(map(str, nodes))
        return (
            f"memory {memory} of NUMA {places} cannot be set ({error.strerror}; containers often forbid set_mempolicy)"
        )
    return None


def set_memory_policy(policy: str, nodes: list[int]) -> None:
    """Allocate new pages on `nodes`: "preferred" (on the first of them if it has any) or "bind" (on no other).

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


def _current_cpus() -> str:
    cpus = os.sched_getaffinity(0)
    return f"CPUs {ranges_of(cpus)} ({len(cpus)})"


def _incomplete(problem: str) -> Binding:
    line = f" > binding: WARNING: {problem}; this rank runs on {_current_cpus()}"
    print(f"nlp-bench:{line}", file=sys.stderr, flush=True)
    return Binding(line=line, is_complete=False)
