"""The torchrun command of one node, the environment of its ranks, and the record of both beside the log."""

import os
import platform
import re
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from nlp_bench.config.origin import origin
from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import LOCAL
from nlp_bench.files import read_object, write_json, write_text
from nlp_bench.launch.arguments import training_arguments, upstream_command, upstream_environment
from nlp_bench.launch.nodes.rendezvous import Rendezvous
from nlp_bench.launch.nodes.resources import node_environment
from nlp_bench.launch.script import variables
from nlp_bench.machine.node import NCCL_PACKAGES, cpu_model, loaded_modules
from nlp_bench.packages import installed_version
from nlp_bench.redact import is_secret, without_secrets
from nlp_bench.walk import RANKS


def torchrun_command(run: Run, rendezvous: Rendezvous, run_dir: Path) -> list[str]:
    """Return the words that start this node's ranks, with the options of the JUPITER suite's NLP benchmark.

    Each rank's own stdout and stderr go to `run_dir`/ranks, and through `--tee 3` into the job's log.
    """
    return [
        sys.executable, "-u", "-m", "torch.distributed.run",
        "--nproc_per_node", str(run.parallel.gpus_per_node),
        "--nnodes", str(run.parallel.nodes),
        *_rendezvous_words(run, rendezvous),
        "--local_addr", rendezvous.local_address,
        "--max_restarts", "0",
        "--tee", "3",
        "--log_dir", str(run_dir / RANKS),
        *program_words(run),
    ]  # fmt: skip


def program_words(run: Run) -> list[str]:
    """Return what torchrun starts in each rank: our trainer, or the user's Megatron-LM."""
    if run.tuning.trainer == "megatron-lm":
        return ["-m", "nlp_bench.launch.nodes.bound", "--", sys.executable, "-u", *upstream_command(run)]
    return ["-m", "nlp_bench.train", *training_arguments(run)]


def _rendezvous_words(run: Run, rendezvous: Rendezvous) -> list[str]:
    """Return torchrun's options for c10d, which numbers nodes by the order of their addresses as words, or static.

    `read_timeout` bounds the first connection, whose default of 60 s is short for the nodes of a large job.
    """
    join_s = int(max(1, run.limits.join_s(run.parallel.nodes, is_packed=bool(run.system.container.image))))
    words = ["--rdzv_endpoint", rendezvous.endpoint, "--rdzv_id", rendezvous.job_id]
    if run.system.network.rendezvous == "static" and run.launch.launcher != LOCAL:
        own = ["--node_rank", str(rendezvous.node)]
        return ["--rdzv_backend", "static", *own, *words, "--rdzv_conf", f"timeout={join_s}"]
    limits = f"join_timeout={join_s},read_timeout={join_s}"
    return ["--rdzv_backend", "c10d", *words, "--rdzv_conf", f"is_host={int(rendezvous.is_host)},{limits}"]


def rank_environment(run: Run, build: dict[str, str]) -> dict[str, str]:
    """Return the variables that the ranks need on top of the caller's: accelerator, places, threads, kernel caches.

    With NLP_BENCH_ACCELERATOR=cuda the trainer refuses a node without a GPU, instead of training on its CPU. NCCL is asked
    to print the version that was loaded, which pip's record does not tell, unless the caller wants more or less of it.
    Inside a container the system's own [environment] is set once more: a variable of the image wins over the host's.
    Raises NlpBenchError on a node that shows its ranks too few GPUs.
    """
    environment = {"NLP_BENCH_ACCELERATOR": run.system.accelerator, **build}
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
    r"(SLURM|SBATCH|NCCL|GLOO|UCX|FI_|CUDA|CUBLAS|CUDNN|NVIDIA|NVTE|OMP|GOMP|KMP|MKL|OPENBLAS|TORCH|PYTORCH|TRITON|MALLOC_"
    r"|NLP_BENCH|JUBE|PYTHON|LD_|PATH$|HOSTNAME|TZ$|LANG|LC_)"
)
FROM_ENVIRONMENT = 'export {name}="${{{name}:?is a secret and is not kept here; export it first}}"\n'
"""How command.txt names a secret: it is taken from the environment of whoever types the command again."""


def write_provenance(
    run_dir: Path,
    command: list[str],
    added: dict[str, str],
    data_path: str,
    *,
    taken_out: Mapping[str, str] | None = None,
) -> None:
    """Write command.txt (to type again) and environment.json: versions, host, data, variables; secrets stay out of both.

    `taken_out` are variables of the caller that the ranks do not get.
    """
    added = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **added}
    exports = (
        FROM_ENVIRONMENT.format(name=name) if is_secret(name, value) else f"export {name}={shlex.quote(value)}\n"
        for name, value in sorted(added.items())
    )
    words = without_secrets(shlex.join(command))
    write_text(run_dir / "command.txt", f"{''.join(exports)}{words}\n", errors="surrogateescape")
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
