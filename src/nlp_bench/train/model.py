"""The parts of the model that this rank holds, wrapped for data parallelism."""

from collections.abc import Callable
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

from nlp_bench.train.families.family import Family, Place
from nlp_bench.train.job import Job
from nlp_bench.train.transformer import transformer_config
from nlp_bench.train.weights import draw_weights


def places(job: Job) -> list[Place]:
    """Return where in the model the parts of this rank stand: one, or with interleaving one per virtual stage."""
    count = job.layout.virtual_stages
    stages = [None] if count == 1 else list(range(count))
    return [
        Place(
            first=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
            last=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
            virtual_stage=stage,
        )
        for stage in stages
    ]


def build_model(job: Job, family: Family) -> list[DistributedDataParallel]:
    """Return this rank's parts, with their initial weights, ready for `forward_backward`."""
    config, settings = transformer_config(job), job.settings
    chunks = []
    for place in places(job):
        chunk = family.build(job, config, place).to(job.device)  # megatron-core leaves learned positions on the CPU
        if settings.use_cpu_initialization or job.device.type == "cpu":
            draw_weights(chunk, settings)
        chunks.append(Float16Module(config, chunk) if settings.bf16 or settings.fp16 else chunk)
    return _distribute(chunks, config, job)


def _distribute(chunks: list[torch.nn.Module], config: TransformerConfig, job: Job) -> list[DistributedDataParallel]:
    """Wrap the parts and tell the pipeline schedule when to communicate, as Megatron-LM's `training.py` does."""
    settings, rules = job.settings, _communication(chunks, job)
    wrapped = [
        DistributedDataParallel(config, rules, chunk, disable_bucketing=number > 0)  # later parts overlap by themselves
        for number, chunk in enumerate(chunks)
    ]
    config.finalize_model_grads_func = finalize_model_grads
    if settings.overlap_grad_reduce:
        config.no_sync_func = _one_or_all([part.no_sync for part in wrapped])
        if not settings.no_align_grad_reduce:
            config.grad_sync_func = _one_or_all([part.start_grad_sync for part in wrapped])
    if rules.align_param_gather:
        config.param_sync_func = _one_or_all([part.start_param_sync for part in wrapped])
    return wrapped


def _communication(chunks: list[torch.nn.Module], job: Job) -> DistributedDataParallelConfig:
    settings, bucket_size = job.settings, job.settings.ddp_bucket_size
    if settings.ddp_num_buckets:
        bucket_size = sum(p.numel() for chunk in chunks for p in chunk.parameters()) // settings.ddp_num_buckets
    return DistributedDataParallelConfig(
        grad_reduce_in_fp32=settings.bf16 or settings.fp16,
        overlap_grad_reduce=settings.overlap_grad_reduce,
        overlap_param_gather=settings.overlap_param_gather,
        align_param_gather=settings.align_param_gather and job.layout.virtual_stages > 1,
        use_distributed_optimizer=settings.use_distributed_optimizer,
        bucket_size=bucket_size,
        average_in_collective=settings.ddp_average_in_collective,
        fp8_param_gather=settings.fp8_param_gather,
    )


def _one_or_all(calls: list[Callable[..., Any]]) -> Any:
    return calls if len(calls) > 1 else calls[0]  # the schedules without interleaving take one call
