"""The GPT of one rank, built from megatron-core's parts and wrapped for data parallelism."""

from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.models.gpt import GPTModel
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from torch.nn.functional import gelu, silu

from nlp_bench.train.attention import FusedAttention
from nlp_bench.train.kernels import Kernels
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings
from nlp_bench.train.weights import draw_weights


def transformer_config(settings: Settings, layout: Layout, kernels: Kernels) -> TransformerConfig:
    """Translate the settings into megatron-core's configuration."""
    dtype = getattr(torch, settings.params_dtype)
    pipelined = settings.pipeline_model_parallel_size > 1
    return TransformerConfig(
        num_layers=settings.num_layers,
        hidden_size=settings.hidden_size,
        ffn_hidden_size=settings.ffn_width,
        num_attention_heads=settings.num_attention_heads,
        num_query_groups=settings.query_groups,
        normalization=settings.normalization,
        layernorm_epsilon=settings.norm_epsilon,
        add_bias_linear=not settings.disable_bias_linear,
        gated_linear_unit=settings.swiglu,
        activation_func=silu if settings.swiglu else gelu,
        attention_dropout=settings.attention_dropout,
        hidden_dropout=settings.hidden_dropout,
        init_method_std=settings.init_method_std,
        tensor_model_parallel_size=settings.tensor_model_parallel_size,
        pipeline_model_parallel_size=settings.pipeline_model_parallel_size,
        sequence_parallel=layout.sequence_parallel,
        params_dtype=dtype,
        pipeline_dtype=dtype if pipelined else None,
        deallocate_pipeline_outputs=pipelined,
        bf16=settings.bf16,
        fp16=settings.fp16,
        **_recompute(settings),
        **kernels.fusions(settings),
    )


def _recompute(settings: Settings) -> dict[str, Any]:
    if not settings.recomputes_layers:
        return {}
    return {
        "recompute_granularity": "full",
        "recompute_method": settings.recompute_method,
        "recompute_num_layers": settings.recompute_num_layers,
    }


def _block(config: TransformerConfig, settings: Settings, kernels: Kernels) -> TransformerBlockSubmodules:
    rotation = {"rotated_width": settings.rotated_width, "rotary_base": settings.rotary_base}
    attention = SelfAttentionSubmodules(
        linear_qkv=ColumnParallelLinear,
        core_attention=ModuleSpec(FusedAttention, params=rotation),
        linear_proj=RowParallelLinear,
    )
    layer = TransformerLayerSubmodules(
        input_layernorm=kernels.norm,
        self_attention=ModuleSpec(SelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=attention),
        self_attn_bda=get_bias_dropout_add,
        pre_mlp_layernorm=kernels.norm,
        mlp=ModuleSpec(MLP, submodules=MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)),
        mlp_bda=get_bias_dropout_add,
    )
    layers = [ModuleSpec(TransformerLayer, submodules=layer)] * get_num_layers_to_build(config)
    return TransformerBlockSubmodules(layer_specs=layers, layer_norm=kernels.norm)


def build_model(settings: Settings, layout: Layout, kernels: Kernels, device: torch.device) -> DistributedDataParallel:
    """Return this rank's stage of the GPT, with its initial weights, ready for `forward_backward`."""
    config = transformer_config(settings, layout, kernels)
    model: Any = GPTModel(
        config,
        _block(config, settings, kernels),
        vocab_size=layout.padded_vocab_size,
        max_sequence_length=settings.max_position_embeddings,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=not settings.untie_embeddings_and_output_weights,
        position_embedding_type="none" if settings.rotated_width else "learned_absolute",  # FusedAttention rotates
    )
    if settings.use_cpu_initialization or device.type == "cpu":
        draw_weights(model, settings)
    if settings.bf16 or settings.fp16:
        model = Float16Module(config, model)
    return _distribute(model, config, settings)


def _distribute(model: torch.nn.Module, config: TransformerConfig, settings: Settings) -> DistributedDataParallel:
    wrapped = DistributedDataParallel(
        config,
        DistributedDataParallelConfig(
            grad_reduce_in_fp32=settings.bf16 or settings.fp16,
            overlap_grad_reduce=settings.overlap_grad_reduce,
            overlap_param_gather=settings.overlap_param_gather,
            use_distributed_optimizer=settings.use_distributed_optimizer,
        ),
        model,
    )
    config.finalize_model_grads_func = finalize_model_grads
    if settings.overlap_grad_reduce:
        config.no_sync_func = wrapped.no_sync
    return wrapped
