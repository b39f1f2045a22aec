"""The process group of all ranks, and collectives over it."""

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from nlp_bench.errors import UsageError
from nlp_bench.packages import import_megatron
from nlp_bench.train import cpu
from nlp_bench.train.layout import Layout, Rank
from nlp_bench.train.settings import Settings


def pick_device(rank: Rank) -> torch.device:
    """Prepare this rank's GPU, or the CPU, for megatron-core, before that is imported; return it. Raises UsageError where the node has too few GPUs."""
    if not torch.cuda.is_available():
        if os.environ.get("NLP_BENCH_ACCELERATOR") == "cuda":
            raise UsageError(
                "accelerator: the run asks for cuda, but torch sees no GPU on this node; look at the driver "
                "(nvidia-smi) and whether the environment holds a CPU build of torch"
            )
        cpu.install()
        return cpu.CPU
    if rank.local_rank >= torch.cuda.device_count():
        raise UsageError(
            f"parallel: local rank {rank.local_rank} has no GPU, torch sees {torch.cuda.device_count()} on this node; "
            "start fewer ranks per node"
        )
    torch.cuda.set_device(rank.local_rank)
    import_megatron()
    return torch.device("cuda", rank.local_rank)


def connect(settings: Settings, layout: Layout, rank: Rank, device: torch.device) -> None:
    """Join the process group and divide it; raises UsageError when the backend does not fit the device.

    No device is bound to the group: NCCL then creates a communicator when a group is first used, as under Megatron-LM. Otherwise it
    would create one for each of about 16 kinds of groups of `initialize_model_parallel`, most of which a GPT never uses.
    """
    backend = settings.distributed_backend or ("nccl" if device.type == "cuda" else "gloo")
    if backend == "nccl" and device.type == "cpu":
        raise UsageError("distributed_backend: nccl needs a GPU and torch sees none; use gloo, or leave it out")
    timeout = timedelta(minutes=settings.distributed_timeout_minutes)
    options: dict[str, Any] = {}
    if "MASTER_ADDR" not in os.environ and rank.world_size == 1:
        options["store"] = dist.HashStore()  # type: ignore[attr-defined]  # a process alone needs no port
    dist.init_process_group(backend, rank=rank.rank, world_size=rank.world_size, timeout=timeout, **options)
    divide(settings, layout)


def divide(settings: Settings, layout: Layout) -> None:
    """Create megatron-core's groups, after the process group, and seed the random numbers."""
    from megatron.core import parallel_state, tensor_parallel  # noqa: PLC0415  # after pick_device

    parallel_state.initialize_model_parallel(
        settings.tensor_model_parallel_size,
        settings.pipeline_model_parallel_size,
        layout.virtual_stages if layout.virtual_stages > 1 else None,
        context_parallel_size=settings.context_parallel_size,
        distributed_timeout_minutes=settings.distributed_timeout_minutes,
        create_gloo_process_groups=False,
    )
    stage = parallel_state.get_pipeline_model_parallel_rank()
    tensor_parallel.model_parallel_cuda_manual_seed(settings.seed + 100 * stage)  # differs by stage, as in Megatron-LM


def wait_for_all() -> None:
    """Wait until every rank has called this; without the GPU's index torch warns that it uses the current one."""
    dist.barrier(device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None)


def greatest(number: int, device: torch.device) -> int:
    """Return the greatest `number` of all ranks; every rank must call it."""
    value = torch.tensor([number], dtype=torch.int64, device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return int(value.item())
