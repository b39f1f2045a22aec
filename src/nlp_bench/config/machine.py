"""What this machine says of itself: its Slurm, its GPUs, its name. Each question is bounded in time."""

import os
import re
import shutil
import socket

from nlp_bench.config import catalog
from nlp_bench.config.slurm_text import plain
from nlp_bench.config.system import Detect, System
from nlp_bench.errors import UsageError
from nlp_bench.programs import ask

ANSWER_S = 10.0
"""Seconds that a scheduler has to answer; a healthy one takes a few hundredths."""


NO_CONTROLLER = re.compile(r"Unable to contact slurm controller|slurm_load_\w+ error: (?!Invalid)")
"""What Slurm's commands say where there is a Slurm whose controller does not answer. Source: scontrol of Slurm 22.05."""


class NoAnswerError(UsageError):
    """A program is there, but it did not answer in time."""


def ask_slurm(*command: str, timeout_s: float = ANSWER_S) -> str | None:
    """Return the stdout of one of Slurm's commands, or None where it is missing or fails.

    Raises NoAnswerError when it does not end in time, or when Slurm's controller does not answer: "cannot ask" is not "not there".
    """
    answer = ask(*command, timeout_s=timeout_s)
    if answer.is_late:
        raise NoAnswerError(f"{answer.err}; try again later")
    if answer.code and NO_CONTROLLER.search(answer.err):
        raise NoAnswerError(f"`{' '.join(command)}`: {answer.err.strip()}; try again later")
    return answer.out if answer.is_good else None


def scontrol_field(line: str, name: str) -> str:
    """Return the value of `name` in a line of `scontrol show … --oneliner`; empty where it is not there."""
    found = re.search(rf"(?:^|\s){name}=(\S+)", line)
    return found.group(1) if found else ""


def slurm_cluster() -> str | None:
    """Return the ClusterName of the Slurm that answers here, or None."""
    named = os.environ.get("SLURM_CONF")
    if named and not os.path.exists(named):  # noqa: PTH110  # a word of the environment; scontrol would search the network
        return None
    try:
        config = ask_slurm("scontrol", "show", "config")
    except NoAnswerError as error:
        raise NoAnswerError(
            f"{error}, or train on this machine, which needs no Slurm: --system local (tag local)"
        ) from error
    found = re.search(r"^ClusterName\s*=\s*(\S+)", plain(config or ""), re.MULTILINE)
    return found.group(1) if found and shutil.which("sbatch") else None


def detect_system(cluster: str | None) -> str:
    """Return the name of the system file that matches this machine.

    NLP_BENCH_SYSTEM wins; then each file's `detect`; without a match, `local` where no Slurm answers.
    Raises UsageError on a Slurm that no file describes.
    """
    named = os.environ.get("NLP_BENCH_SYSTEM")
    if named:
        return named
    host = socket.gethostname()
    found = [name for name in catalog.names("systems") if _matches(catalog.load_system(name).detect, host, cluster)]
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
        f"system: the Slurm cluster {cluster!r} is described by no file of benchmark/systems "
        f"(there are: {', '.join(catalog.names('systems'))}); copy one of them to benchmark/systems/{cluster}.toml, "
        "set its [detect], or name a system by --system, a tag or NLP_BENCH_SYSTEM"
    )


def _matches(detect: Detect, host: str, cluster: str | None) -> bool:
    by_name = detect.hostname is not None and re.match(detect.hostname, host) is not None
    return by_name or (cluster is not None and detect.slurm_cluster == cluster)


def num_gpus() -> int:
    """Return how many GPUs nvidia-smi lists; 0 where there is none."""
    answer = ask("nvidia-smi", "-L", timeout_s=20)
    if answer.is_late:
        raise NoAnswerError(f"{answer.err}; try again later")
    return sum(line.startswith("GPU ") for line in answer.out.splitlines()) if answer.is_good else 0


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
