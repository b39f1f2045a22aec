"""The rendezvous of torchrun, its command on one node, the environment of its ranks, and the record of both beside the log."""

import contextlib
import hashlib
import os
import platform
import re
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from nlp_bench.config.origin import origin
from nlp_bench.config.run import Run, value_of
from nlp_bench.config.scheduler import LOCAL, Allocation, get_scheduler
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_object, write_json, write_text
from nlp_bench.immutable import immutable
from nlp_bench.launch.ambient import variables
from nlp_bench.launch.arguments import training_arguments, upstream_command, upstream_environment
from nlp_bench.launch.nodes.resources import node_environment
from nlp_bench.machine.addresses import look_up
from nlp_bench.machine.node import NCCL_PACKAGES, cpu_model, loaded_modules
from nlp_bench.packages import installed_version
from nlp_bench.redact import is_secret, without_secrets
from nlp_bench.train.layout import NUM_RANKS
from nlp_bench.walk import RANKS

KEPT_ALIVE = 720
"""Heartbeats of 5 s, an hour, without which a node counts as dead: the scheduler notices one that is."""
FIRST_PORT, NUM_PORTS = 20000, 12000  # ports by job id and run folder, below those that Linux hands out (from 32768 on)


@immutable
class Rendezvous:
    """One node's view of the rendezvous."""

    endpoint: str  # host:port of the first node; port 0 means: any free one
    node: int | None  # its number in the scheduler's order, 0 serves the rendezvous; None: any of several
    local_address: str  # this node's own address on the fast network
    job_id: str  # its id, the same on all nodes

    @property
    def is_host(self) -> bool:
        """Whether this node serves the rendezvous."""
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
    """Return the port of the rendezvous by the job's number; the job script looks whether it is free and may hand over another.

    With `run_dir`, which the job script alone knows to be the same on all nodes, two schedulers that share a host and number their
    jobs alike mean different ports.
    """
    own = _number(os.fsencode(run_dir)) if run_dir else 0
    number = int(job_id) if job_id.isdecimal() else _number(job_id.encode())
    return FIRST_PORT + (number + own) % NUM_PORTS


def _number(text: bytes) -> int:
    return int(hashlib.sha256(text).hexdigest()[:8], 16)


def rendezvous_of(run: Run) -> Rendezvous:
    """Return this node's view of the rendezvous; torchrun cannot always tell that an address is its own (PyTorch issue 73656): `is_host` is decided here."""
    nodes = addresses(run)
    if run.launch.launcher == LOCAL:
        return Rendezvous(endpoint=f"{nodes[0]}:0", node=0, local_address=nodes[0], job_id=f"local-{os.getpid()}")
    own = get_scheduler(run.launch.launcher).allocation() or Allocation(job_id="0")
    port = os.environ.get("NLP_BENCH_PORT") or port_of(own.job_id)
    return Rendezvous(endpoint=f"{nodes[0]}:{port}", node=own.node, local_address=nodes[own.node], job_id=own.job_id)


def unknown_rendezvous(run: Run) -> Rendezvous:
    """Return the rendezvous before there is a job: in capitals what only a node knows."""
    if run.launch.launcher == LOCAL:
        return replace(rendezvous_of(run), job_id="JOB_ID")
    node = 0 if run.parallel.nodes == 1 else None
    return Rendezvous(endpoint="FIRST_NODE:PORT", node=node, local_address="NODE_ADDRESS", job_id="JOB_ID")


NAME_TIMEOUT_S = 20.0
NUM_PORTS_TRIED, STRIDE = 8, 1009


def check_rendezvous(rendezvous: Rendezvous) -> None:
    """Raise NlpBenchError ("rendezvous: ...") where a name has no address, or its port is taken on its node."""
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


def torchrun_command(run: Run, rendezvous: Rendezvous, run_dir: Path, python: str = sys.executable) -> list[str]:
    """Return the words that start this node's ranks, as in the JUPITER suite's NLP benchmark; their output goes to ranks/ and, by `--tee 3`, to the log."""
    return [
        python, "-u", "-m", "torch.distributed.run",
        "--nproc_per_node", str(run.parallel.gpus_per_node),
        "--nnodes", str(run.parallel.nodes),
        *_rendezvous_words(run, rendezvous),
        "--local_addr", rendezvous.local_address,
        "--max_restarts", "0",
        "--tee", "3",
        "--log_dir", str(run_dir / RANKS),
        *program_words(run, python),
    ]  # fmt: skip


def program_words(run: Run, python: str = sys.executable) -> list[str]:
    """Return what torchrun starts in each rank: our trainer, or the user's Megatron-LM."""
    if run.tuning.trainer == "megatron-lm":
        return ["-m", "nlp_bench.launch.nodes.bound", "--", python, "-u", *upstream_command(run)]
    return ["-m", "nlp_bench.train", *training_arguments(run)]


def _rendezvous_words(run: Run, rendezvous: Rendezvous) -> list[str]:
    """Return torchrun's options for static, or c10d (nodes in the order of addresses as words); `read_timeout` is else 60 s, short for a large job."""
    join_s = int(max(1, run.limits.join_s(run.parallel.nodes, is_packed=bool(run.system.container.image))))
    words = ["--rdzv_endpoint", rendezvous.endpoint, "--rdzv_id", rendezvous.job_id]
    rank, is_host = "NODE_RANK", "IS_FIRST_NODE"
    if rendezvous.node is not None:
        rank, is_host = str(rendezvous.node), str(int(rendezvous.is_host))
    if run.system.network.rendezvous == "static" and run.launch.launcher != LOCAL:
        own = ["--node_rank", rank]
        return ["--rdzv_backend", "static", *own, *words, "--rdzv_conf", f"timeout={join_s}"]
    # Heartbeats are held against the other node's time of day: with clocks 15 s apart (3 of 5 s) it counted as dead, and was left out.
    limits = f"join_timeout={join_s},read_timeout={join_s},keep_alive_max_attempt={KEPT_ALIVE}"
    return ["--rdzv_backend", "c10d", *words, "--rdzv_conf", f"is_host={is_host},{limits}"]


def rank_environment(run: Run, build: dict[str, str]) -> dict[str, str]:
    """Return the variables that the ranks need on top of the caller's: accelerator, places, threads, kernel caches.

    With NLP_BENCH_ACCELERATOR=cuda the trainer refuses a node without a GPU, instead of training on its CPU. NCCL is asked
    to print the version that was loaded, which pip's record does not tell, unless the caller wants more or less of it.
    Inside a container the system's own [environment] is set once more: a variable of the image wins over the host's.
    Raises NlpBenchError on a node that shows its ranks too few GPUs.
    """
    environment = {"NLP_BENCH_ACCELERATOR": run.system.accelerator, NUM_RANKS: str(run.parallel.num_gpus), **build}
    if run.system.container.image:
        environment = {**variables(run.system, os.environ), **environment}
    if run.tuning.trainer == "megatron-lm":
        environment |= upstream_environment(run)
    environment |= node_environment(run, {**os.environ, **environment})
    if run.system.accelerator == "cuda" and "NCCL_DEBUG" not in {**os.environ, **environment}:
        environment["NCCL_DEBUG"] = "VERSION"
    if run.system.accelerator == "cpu":
        cores = len(os.sched_getaffinity(0))
        environment["OMP_NUM_THREADS"] = str(max(1, cores // run.parallel.gpus_per_node))
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


PACKAGES = ("torch", "megatron-core", "numpy", "apex", "transformer-engine", "triton", "tokenizers", *NCCL_PACKAGES)
KEPT = re.compile(
    r"(SLURM|SBATCH|ATEN|NCCL|GLOO|UCX|FI_|CUDA|CUBLAS|CUDNN|NVIDIA|NVTE|OMP|GOMP|KMP|MKL|OPENBLAS|TORCH|PYTORCH|TRITON|MALLOC_"
    r"|NLP_BENCH|JUBE|PYTHON|LD_|PATH$|HOSTNAME|TZ$|LANG|LC_|(PBS_JOBID|LSB_JOBID|JOB_ID)$)"
)
FROM_ENVIRONMENT = 'export {name}="${{{name}:?is a secret and is not kept here; export it first}}"\n'
"""How command.txt names a secret: it is taken from the environment of whoever types the command again."""


def write_launched(
    run_dir: Path,
    command: list[str],
    added: dict[str, str],
    data_path: str,
    *,
    taken_out: Mapping[str, str] | None = None,
) -> None:
    """Write command.txt (to type again) and environment.json, both without secrets; `taken_out` are variables of the caller that the ranks do not get."""
    added = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **added}
    exports = (
        FROM_ENVIRONMENT.format(name=name) if is_secret(name, value) else f"export {name}={shlex.quote(value)}\n"
        for name, value in sorted(added.items())
    )
    words = without_secrets(shlex.join(command))
    nodes = value_of(command, "--nnodes") or "1"
    note = f"echo 'to be typed on each of {nodes} nodes within a minute: without the others it waits and fails' >&2\n"
    write_text(
        run_dir / "command.txt", f"{note if nodes != '1' else ''}{''.join(exports)}{words}\n", errors="surrogateescape"
    )
    kept = {name: value for name, value in sorted({**os.environ, **added}.items()) if KEPT.match(name)}
    record = {
        "schema": "nlp-bench/environment/1",
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "python": platform.python_version(),
        "nlp_bench": asdict(origin()),
        "modules": loaded_modules(os.environ),
        "data": (read_object(Path(data_path).parent / "data.json") or None) if data_path else None,
        "packages": {name: installed_version(name) for name in PACKAGES},
        "variables": {name: "***" if is_secret(name, value) else value for name, value in kept.items()},
        "taken_out": dict(taken_out or {}),
    }
    write_json(run_dir / "environment.json", record)
