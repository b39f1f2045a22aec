"""Where torchrun's processes meet: an address and a port that all nodes of a job derive alike."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from nlp_bench.config.machine import NoAnswerError, ask_slurm, scontrol_field
from nlp_bench.config.run import Run
from nlp_bench.config.slurm_text import hostnames, hostnames_command, own_nodes, records
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.scheduler import slurm

FIRST_PORT, NUM_PORTS = 20000, 12000
"""The port is taken from job id and run folder, below the range that Linux hands out by itself (32768 and up)."""


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """One node's view of the meeting point."""

    endpoint: str
    """host:port of the first node; port 0 means: any free one."""
    node: int
    """Number of this node in Slurm's order; the first one serves the meeting point."""
    local_address: str
    """This node's own address on the fast network."""
    job_id: str
    """Name of the meeting, the same on all nodes."""

    @property
    def is_host(self) -> bool:
        """Whether this node serves the meeting point."""
        return self.node == 0


def addresses(run: Run) -> list[str]:
    """Return the address of each node of the job, in Slurm's order: 127.0.0.1 for a local run.

    The job script asks once and hands the answer to all nodes as NLP_BENCH_NODES: a container has no scontrol, and the
    controller of a large machine should not be asked by every node. Raises NlpBenchError when the allocation is not
    what run.json asks for.
    """
    if run.launch.launcher == "local":
        return ["127.0.0.1"]
    known = os.environ.get("NLP_BENCH_NODES", "").split() or _ask_slurm(run.system.network.master_addr_suffix)
    if len(known) != run.parallel.nodes:
        raise NlpBenchError(
            f"parallel.nodes: Slurm allocated {len(known)} node(s) ({' '.join(known) or 'no SLURM_JOB_NODELIST'}), "
            f"run.json asks for {run.parallel.nodes}"
        )
    return known


def _ask_slurm(suffix: str) -> list[str]:
    nodes = own_nodes()
    names = hostnames(ask_slurm(*hostnames_command(nodes), timeout_s=30) or "") if nodes else []
    if names is None:
        raise NlpBenchError(f"scontrol does not write out the nodes {nodes}; look at `scontrol show hostnames {nodes}`")
    if suffix:
        return [name + suffix for name in names]
    listing = slurm.patiently(lambda: _shown(names)) if names else None
    shown = records(listing or "", "NodeName")
    return [scontrol_field(shown.get(name, ""), "NodeAddr") or name for name in names]


def _shown(names: list[str]) -> str | None:
    """Ask for the nodes; a controller that is restarted just now is asked again, for the job would be lost without it."""
    try:
        return ask_slurm("scontrol", "show", "node", ",".join(names), "--oneliner", timeout_s=30)
    except NoAnswerError as error:
        raise slurm.SilentError(str(error)) from error


def port_of(job_id: str, run_dir: Path | None = None) -> int:
    """Return the port that a job's number means; the job script looks whether it is free and may hand over another.

    With `run_dir`, which the job script alone knows to be the same on all nodes, two Slurms that share a host and number their
    jobs alike mean different ports.
    """
    own = int(hashlib.sha256(os.fsencode(run_dir)).hexdigest()[:8], 16) if run_dir else 0
    return FIRST_PORT + (int(job_id) + own) % NUM_PORTS


def meet(run: Run) -> Rendezvous:
    """Return the meeting point of the ranks as this node sees it.

    torchrun cannot always tell that an augmented or virtual address is its own (PyTorch issue 73656), so `is_host`
    is decided here from SLURM_NODEID.
    """
    nodes = addresses(run)
    if run.launch.launcher == "local":
        return Rendezvous(endpoint=f"{nodes[0]}:0", node=0, local_address=nodes[0], job_id=f"local-{os.getpid()}")
    job_id = os.environ.get("SLURM_JOB_ID", "0")
    number = int(os.environ.get("SLURM_NODEID", "0"))
    port = os.environ.get("NLP_BENCH_PORT") or port_of(job_id)
    return Rendezvous(endpoint=f"{nodes[0]}:{port}", node=number, local_address=nodes[number], job_id=job_id)
