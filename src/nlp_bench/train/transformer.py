"""From the settings to megatron-core's configuration of a transformer."""

from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import gelu, silu

from nlp_bench.train.job import Job
from nlp_bench.train.kernels.recompute import recompute


def transformer_config(job: Job) -> TransformerConfig:
    """Translate the settings into megatron-core's configuration."""
    settings, layout = job.settings, job.layout
    return TransformerConfig(
        num_layers=settings.stack_depth,
        hidden_size=settings.hidden_size,
        ffn_hidden_size=settings.ffn_width,
        num_attention_heads=settings.num_attention_heads,
        kv_channels=settings.head_width,
        num_query_groups=settings.query_groups,
        normalization=settings.normalization,
        layernorm_epsilon=settings.norm_epsilon,
        add_bias_linear=not settings.disable_bias_linear,
        gated_linear_unit=settings.gated,
        activation_func=silu if settings.swiglu else gelu,
        attention_dropout=settings.attention_dropout,
        hidden_dropout=settings.hidden_dropout,
        init_method_std=settings.init_method_std,
        tensor_model_parallel_size=settings.tensor_model_parallel_size,
        context_parallel_size=settings.context_parallel_size,
        cp_comm_type=settings.cp_comm_type if settings.context_parallel_size > 1 else None,
        sequence_parallel=layout.sequence_parallel,
        params_dtype=getattr(torch, settings.params_dtype),
        bf16=settings.bf16,
        fp16=settings.fp16,
        **_pipeline(job),
        **recompute(settings),
        **job.kernels.fusions(settings),
    )


def _pipeline(job: Job) -> dict[str, Any]:
    settings = job.settings
    if settings.pipeline_model_parallel_size == 1:
        return {}
    interleaved = job.layout.virtual_stages > 1
    overlap = interleaved and not settings.no_overlap_p2p_communication
    return {
        "pipeline_model_parallel_size": settings.pipeline_model_parallel_size,
        "virtual_pipeline_model_parallel_size": job.layout.virtual_stages if interleaved else None,
        "num_layers_in_first_pipeline_stage": settings.decoder_first_pipeline_num_layers,
        "num_layers_in_last_pipeline_stage": settings.decoder_last_pipeline_num_layers,
        "microbatch_group_size_per_vp_stage": settings.microbatch_group_size_per_virtual_pipeline_stage,
        "pipeline_dtype": getattr(torch, settings.params_dtype),
        "deallocate_pipeline_outputs": not overlap or job.device.type == "cuda",  # gloo reads them until they are sent
        "overlap_p2p_comm": overlap,
        "overlap_p2p_comm_warmup_flush": overlap and settings.overlap_p2p_communication_warmup_flush,
        "batch_p2p_comm": not overlap,
    }
