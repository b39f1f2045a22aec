"""Where torchrun's processes meet: an address and a port that all nodes of a job derive alike."""

import os
import re
from dataclasses import dataclass

from nlp_bench.config.machine import ask
from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError

FIRST_PORT, NUM_PORTS = 20000, 20000
"""Ports below the range that Linux hands out by itself (32768 up, in part) are taken from the job id."""


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """One node's view of the meeting point."""

    endpoint: str
    """host:port of the first node; port 0 means: any free one."""
    is_host: bool
    """Whether this node serves it."""
    local_address: str
    """This node's own address on the fast network."""
    job_id: str
    """Name of the meeting, the same on all nodes."""


def meet(run: Run) -> Rendezvous:
    """Return the meeting point: this machine for a local run, else from Slurm's own node addresses.

    torchrun cannot always tell that an augmented or virtual address is its own (PyTorch issue 73656), so `is_host`
    is decided here from SLURM_NODEID. Raises NlpBenchError when the allocation is not what run.json asks for.
    """
    if run.launch.launcher == "local":
        return Rendezvous(
            endpoint="127.0.0.1:0", is_host=True, local_address="127.0.0.1", job_id=f"local-{os.getpid()}"
        )
    job_id = os.environ.get("SLURM_JOB_ID", "")
    nodes = (ask("scontrol", "show", "hostnames", timeout_s=30) or "").split()
    if len(nodes) != run.parallel.nodes:
        raise NlpBenchError(
            f"parallel.nodes: Slurm allocated {len(nodes)} node(s) ({' '.join(nodes) or 'no SLURM_JOB_NODELIST'}), "
            f"run.json asks for {run.parallel.nodes}"
        )
    suffix = run.system.network.master_addr_suffix
    number = int(os.environ.get("SLURM_NODEID", "0"))
    port = FIRST_PORT + int(job_id or 0) % NUM_PORTS
    return Rendezvous(
        endpoint=f"{_address(nodes[0])}{suffix}:{port}",
        is_host=number == 0,
        local_address=_address(nodes[number]) + suffix,
        job_id=job_id,
    )


def _address(node: str) -> str:
    description = ask("scontrol", "show", "node", node, "--oneliner", timeout_s=30) or ""
    found = re.search(r"\bNodeAddr=(\S+)", description)
    return found.group(1) if found else node
