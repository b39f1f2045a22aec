"""Each rank's CPUs: shared out once per node by the launcher, taken by each rank itself at its very start.

The launcher knows the GPUs and its own affinity, which the ranks inherit; the rank only reads a variable, so that nothing
heavy is imported before the threads of torch and NCCL are started on the right cores.
"""

import os
import sys
from collections.abc import Mapping

from nlp_bench.files import parse_json
from nlp_bench.launch.nodes.memory import set_memory_policy
from nlp_bench.machine.topology import format_cpus, parse_cpus

VARIABLE = "NLP_BENCH_BINDING"
"""JSON object: mode, memory and for each local rank `cpus` (a list as taskset reads it) and `nodes` (its NUMA nodes, the GPU's
own first), or `why` nothing is bound."""


def bind_rank(variables: Mapping[str, str] = os.environ) -> str | None:
    """Take this rank's CPUs and memory, as the launcher shared them out; call it before torch is imported.

    Returns one line for the log, " > binding: unique_contiguous, NUMA 3, CPUs 36-47 (12)", None where no launcher set
    NLP_BENCH_BINDING. It never ends the run: what cannot be done is said in the line and on stderr.
    """
    text = variables.get(VARIABLE)
    if text is None:
        return None
    try:
        plan = parse_json(text)
        if "why" in plan:
            return _said(f"nothing is bound: {plan['why']}")
        if plan["mode"] == "none":
            return f" > binding: none, {_here()}"
        share = plan["ranks"][int(variables.get("LOCAL_RANK", "0"))]
        problems = [_take_cpus(share["cpus"]), _take_memory(plan["memory"], share["nodes"])]
        nodes = ",".join(map(str, share["nodes"]))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return _said(f"nothing is bound: {VARIABLE} is {text!r} ({type(error).__name__}: {error})")
    memory = "" if plan["memory"] == "local" else f", memory {plan['memory']}"
    told = [problem for problem in problems if problem]
    return _said("; ".join(told)) if told else f" > binding: {plan['mode']}, NUMA {nodes}, {_here()}{memory}"


def _take_cpus(cpus: str) -> str | None:
    """Move all threads of this process to `cpus`; return what went wrong."""
    wanted = parse_cpus(cpus)
    try:
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208  # names are all that is wanted
            os.sched_setaffinity(int(thread), wanted)
    except OSError as error:
        return f"CPUs {cpus} cannot be taken ({error.strerror}; cgroup, cpuset or offline CPUs?)"
    return None


def _take_memory(memory: str, nodes: list[int]) -> str | None:
    """Prefer or demand the memory of `nodes`; return what went wrong."""
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


def _here() -> str:
    cpus = os.sched_getaffinity(0)
    return f"CPUs {format_cpus(cpus)} ({len(cpus)})"


def _said(problem: str) -> str:
    line = f" > binding: WARNING: {problem}; this rank runs on {_here()}"
    print(f"nlp-bench:{line}", file=sys.stderr, flush=True)
    return line
