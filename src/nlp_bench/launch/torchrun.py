"""The torchrun command of one node and the environment of its ranks."""

import os
import sys
from pathlib import Path

from nlp_bench.config.run import Run
from nlp_bench.launch.arguments import training_arguments
from nlp_bench.launch.rendezvous import Rendezvous

JOIN_TIMEOUT_S = 600
"""Seconds that a node waits for the others: the nodes of a large job do not start together."""


def torchrun_command(run: Run, rendezvous: Rendezvous, run_dir: Path) -> list[str]:
    """Return the words that start this node's ranks, with the options of the JUPITER suite's NLP benchmark.

    Each rank's own stdout and stderr go to `run_dir`/ranks, and through `--tee 3` into the job's log.
    """
    return [
        sys.executable, "-u", "-m", "torch.distributed.run",
        "--nproc_per_node", str(run.parallel.gpus_per_node),
        "--nnodes", str(run.parallel.nodes),
        "--rdzv_backend", "c10d",
        "--rdzv_endpoint", rendezvous.endpoint,
        "--rdzv_id", rendezvous.job_id,
        "--rdzv_conf", f"is_host={int(rendezvous.is_host)},join_timeout={JOIN_TIMEOUT_S}",
        "--local_addr", rendezvous.local_address,
        "--max_restarts", "0",
        "--tee", "3",
        "--log_dir", str(run_dir / "ranks"),
        "-m", "nlp_bench.train",
        *training_arguments(run),
    ]  # fmt: skip


def rank_environment(run: Run, run_dir: Path, build: dict[str, str]) -> dict[str, str]:
    """Return the variables that the ranks need on top of the caller's: threads, error file, kernel caches.

    `run_dir` receives torchrun's error file, never a shared temporary folder.
    """
    environment = {"TORCHELASTIC_ERROR_FILE": str(run_dir / "torch_error.json"), **build}
    if run.system.accelerator == "cpu":
        cores = len(os.sched_getaffinity(0))
        environment["OMP_NUM_THREADS"] = str(max(1, cores // run.parallel.gpus_per_node))
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment
