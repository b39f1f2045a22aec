"""What is detected of this machine: its scheduler, its GPUs, its name. Each query is bounded in time."""

import os
import re
import socket
from itertools import takewhile
from pathlib import Path

from nlp_bench.config import catalog, scheduler
from nlp_bench.config.system import Detect, System
from nlp_bench.errors import UsageError
from nlp_bench.programs import ask
from nlp_bench.terminal import say

DRIVERS_GPUS = Path("/proc/driver/nvidia/gpus")
"""A folder for each GPU of the node's driver, which a container sees that was given none of them."""


def cluster(launcher: str | None = None) -> str | None:
    """Return the name of the cluster that answers, by `launcher` or any; None where there is none. Raises NoAnswerError for an installed one that is silent."""
    names = [launcher] if launcher else [name for name in scheduler.scheduler_names() if name != scheduler.LOCAL]
    found = (scheduler.get_scheduler(name).detect() for name in names)
    return next((one for one in found if one is not None), None)


def detect_system(cluster: str | None) -> str:
    """Return the name of the system file that matches this machine; `cluster` is its scheduler's name for it.

    NLP_BENCH_SYSTEM wins; then each file's `detect`; without a match, `local` where no scheduler answers.
    Raises UsageError on a cluster that no file describes.
    """
    named = os.environ.get("NLP_BENCH_SYSTEM")
    if named:
        return named
    found = _found(cluster)
    if len(found) > 1:
        raise UsageError(
            f"system: {' and '.join(found)} of benchmark/systems both match this machine; change the [detect] of one, or "
            "name one by --system, a tag or NLP_BENCH_SYSTEM"
        )
    if found:
        return found[0]
    if cluster is None:
        return "local"
    raise UsageError(
        f"system: the cluster {cluster!r} is described by no file of benchmark/systems "
        f"(there are: {', '.join(catalog.names('systems'))}); copy one of them to benchmark/systems/{cluster}.toml, "
        "set its [detect], or name a system by --system, a tag or NLP_BENCH_SYSTEM"
    )


def doubt(system: System, cluster: str | None) -> str | None:
    """Return what speaks against a system that NLP_BENCH_SYSTEM names: its `detect` matches another machine, and this one has a file of its own."""
    if system.detect == Detect() or _matches(system.detect, cluster) or not (found := _found(cluster)):
        return None
    return (
        f"NLP_BENCH_SYSTEM names {system.name}, whose [detect] does not match this machine, but that of {' and '.join(found)} does: "
        "the result would be labelled as the other machine's"
    )


def _found(cluster: str | None) -> list[str]:
    return [name for name in catalog.names("systems") if _matches(_detect_of(name), cluster)]


def _detect_of(name: str) -> Detect:
    """Return how a system is recognised; a file that cannot be read describes some other machine, and is named."""
    try:
        return catalog.load_system(name).detect
    except UsageError as error:
        say(f"warning: passed over, while this machine is looked for: {error}")
        return Detect()


def _matches(detect: Detect, cluster: str | None) -> bool:
    by_name = detect.hostname is not None and re.match(detect.hostname, socket.gethostname()) is not None
    return by_name or (cluster is not None and detect.slurm_cluster == cluster)


def num_gpus() -> int:
    """Return how many GPUs nvidia-smi lists, of which CUDA_VISIBLE_DEVICES shows; 0 where there is none.

    An empty word, or a number that no GPU has, ends its list (CUDA C++ Programming Guide, "CUDA Environment Variables").
    """
    answer = ask("nvidia-smi", "-L", timeout_s=20)
    if answer.is_late:
        raise scheduler.NoAnswerError(f"{answer.err}; try again later")
    if answer.is_missing and (num_there := sum(1 for _ in DRIVERS_GPUS.glob("*"))):
        how = "in a container: start it with --nv (Apptainer) or --gpus all (Docker)"
        say(f"warning: this node has {num_there} NVIDIA GPU(s), but no nvidia-smi here, so that none is used; {how}")
    if not answer.is_good and not answer.is_missing:
        say(f"warning: nvidia-smi fails, so that no GPU is seen here: {answer.text}")
    listed = sum(line.startswith("GPU ") for line in answer.out.splitlines()) if answer.is_good else 0
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is None or not listed:
        return listed
    known = {*map(str, range(listed))}
    words = takewhile(lambda word: word in known or word.startswith(("GPU-", "MIG-")), map(str.strip, shown.split(",")))
    visible = min(listed, len({*words}))
    if visible < listed:
        say(f"CUDA_VISIBLE_DEVICES={shown!r} shows {visible} of {listed} GPUs")
    return visible


def cpu_ranks() -> int:
    """Return how many CPU ranks suit this machine: one for each two usable cores, 1 to 4."""
    return max(1, min(4, len(os.sched_getaffinity(0)) // 2))


def settle(system: System) -> tuple[str, int]:
    """Return the accelerator and the ranks per node of `system`, with `auto` resolved on this machine."""
    accelerator, ranks = system.accelerator, system.gpus_per_node
    gpus = num_gpus() if "auto" in {accelerator, ranks} and accelerator != "cpu" else 0
    if accelerator == "auto":
        accelerator = "cuda" if gpus else "cpu"
    if isinstance(ranks, str):
        if accelerator == "cuda" and not gpus:
            raise UsageError(
                f"system.gpus_per_node: auto, but nvidia-smi lists no GPU here; write the number into {system.name}.toml"
            )
        ranks = gpus if accelerator == "cuda" else cpu_ranks()
    return accelerator, ranks
