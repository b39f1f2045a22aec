"""Where torchrun's processes meet: an address and a port that all nodes of a job derive alike, and whether they can be reached."""

import contextlib
import hashlib
import os
import socket
from pathlib import Path

from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import LOCAL, Allocation, get_scheduler
from nlp_bench.errors import NlpBenchError
from nlp_bench.immutable import immutable
from nlp_bench.machine.addresses import look_up

FIRST_PORT, NUM_PORTS = 20000, 12000
"""The port is taken from job id and run folder, below the range that Linux hands out by itself (32768 and up)."""


@immutable
class Rendezvous:
    """One node's view of the meeting point."""

    endpoint: str  # host:port of the first node; port 0 means: any free one
    node: int  # number of this node in the scheduler's order; the first one serves the meeting point
    local_address: str  # this node's own address on the fast network
    job_id: str  # name of the meeting, the same on all nodes

    @property
    def is_host(self) -> bool:
        """Whether this node serves the meeting point."""
        return self.node == 0


def addresses(run: Run) -> list[str]:
    """Return the address of each node of the job, in the scheduler's order: 127.0.0.1 for a local run.

    The job script asks once and hands the answer to all nodes as NLP_BENCH_NODES: a container has no commands of the scheduler, and the
    controller of a large machine should not be asked by every node. Raises NlpBenchError when the allocation is not
    what run.json asks for.
    """
    scheduler = get_scheduler(run.launch.launcher)
    known = [] if scheduler.name == LOCAL else os.environ.get("NLP_BENCH_NODES", "").split()
    known = known or scheduler.addresses(run.system.network.master_addr_suffix)
    if len(known) != run.parallel.nodes:
        text = (
            "; a container that takes none of the host's variables hides those of the job: start it without --cleanenv and --containall, "
            "and without APPTAINER_CLEANENV, APPTAINER_CONTAINALL (SINGULARITY_...) in the environment"
        )
        raise NlpBenchError(
            f"parallel.nodes: {scheduler.title} allocated {len(known)} node(s) ({' '.join(known) or scheduler.no_nodes}), "
            f"run.json asks for {run.parallel.nodes}{text if run.system.container.image and not known else ''}"
        )
    return known


def port_of(job_id: str, run_dir: Path | None = None) -> int:
    """Return the port that a job's number means; the job script looks whether it is free and may hand over another.

    With `run_dir`, which the job script alone knows to be the same on all nodes, two schedulers that share a host and number their
    jobs alike mean different ports.
    """
    own = _number(os.fsencode(run_dir)) if run_dir else 0
    number = int(job_id) if job_id.isdecimal() else _number(job_id.encode())
    return FIRST_PORT + (number + own) % NUM_PORTS


def _number(text: bytes) -> int:
    return int(hashlib.sha256(text).hexdigest()[:8], 16)


def meet(run: Run) -> Rendezvous:
    """Return the meeting point of the ranks as this node sees it.

    torchrun cannot always tell that an augmented or virtual address is its own (PyTorch issue 73656), so `is_host`
    is decided here from the number of this node in the job.
    """
    nodes = addresses(run)
    if run.launch.launcher == LOCAL:
        return Rendezvous(endpoint=f"{nodes[0]}:0", node=0, local_address=nodes[0], job_id=f"local-{os.getpid()}")
    own = get_scheduler(run.launch.launcher).allocation() or Allocation(job_id="0")
    port = os.environ.get("NLP_BENCH_PORT") or port_of(own.job_id)
    return Rendezvous(endpoint=f"{nodes[0]}:{port}", node=own.node, local_address=nodes[own.node], job_id=own.job_id)


NAME_TIMEOUT_S = 20.0
NUM_PORTS_TRIED, STRIDE = 8, 1009


def check_meeting(rendezvous: Rendezvous) -> None:
    """Raise NlpBenchError ("rendezvous: ...") where a name has no address, or the meeting point's port is taken on its node."""
    host, _, port = rendezvous.endpoint.rpartition(":")
    for name, found in look_up((host, rendezvous.local_address), NAME_TIMEOUT_S).items():
        if found.problem:
            raise NlpBenchError(
                f"rendezvous: {socket.gethostname()} finds no address of node {name!r}: {found.problem}; look at the name service, "
                "NodeAddr in slurm.conf and network.master_addr_suffix of the system file"
            )
    if rendezvous.is_host and port != "0" and not is_free(int(port)):
        raise NlpBenchError(
            f"rendezvous: port {port} of {socket.gethostname()} is taken by {_owner(int(port))}; submit the run again: "
            "another job number means another port"
        )


def is_free(port: int) -> bool:
    """Whether a server can listen on this port of this node now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: old connections do not count
        try:
            probe.bind(("", port))
            probe.listen()
        except OSError:
            return False
    return True


def free_port(first: int, bounds: tuple[int, int]) -> int:
    """Return `first`, or one of the ports behind it within `bounds` (lowest, number) that is free; `first` where none is."""
    lowest, number = bounds
    tried = [lowest + (first - lowest + step * STRIDE) % number for step in range(NUM_PORTS_TRIED)]
    return next((port for port in tried if is_free(port)), first)


def _owner(port: int) -> str:
    """Return the process that listens on the port, as far as this user may see it."""
    wanted = f":{port:04X}"
    sockets = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        sockets |= {f"socket:[{words[9]}]" for words in map(str.split, lines) if words[1].endswith(wanted)}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(str(handle.readlink()) in sockets for handle in (folder / "fd").iterdir()):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {folder.name} ({line[:80]})"
    return "a process of another user"
