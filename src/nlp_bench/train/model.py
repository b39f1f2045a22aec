"""Builds this rank's parts of the model of megatron-core: configuration, layers, initial weights, data parallelism."""

import hashlib
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.transformer.attention import (
    CrossAttention,
    CrossAttentionSubmodules,
    SelfAttention,
    SelfAttentionSubmodules,
)
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from torch.nn.functional import gelu, silu

from nlp_bench.immutable import immutable
from nlp_bench.train.attention import ContextAttention, FusedAttention
from nlp_bench.train.kernels import Kernels
from nlp_bench.train.kernels.recompute import RecomputedMLP, recompute, recomputed_modules
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings

if TYPE_CHECKING:
    from nlp_bench.train.families import Family


@immutable
class Job:
    """One rank's work."""

    settings: Settings
    layout: Layout
    kernels: Kernels
    device: torch.device  # the GPU of this rank, or the CPU


@immutable
class Place:
    """The position of one part in the model."""

    first: bool  # whether it holds the embedding
    last: bool  # whether it holds the output layer
    virtual_stage: int | None  # its index among this rank's parts; None without interleaving


SAME_IN_CONFIG = (
    "hidden_size", "num_attention_heads", "normalization", "attention_dropout", "hidden_dropout", "init_method_std",
    "tensor_model_parallel_size", "context_parallel_size", "bf16", "fp16",
)  # fmt: skip
"""Settings with the same names in megatron-core's TransformerConfig."""
SAME_IN_COMMUNICATION = ("overlap_grad_reduce", "overlap_param_gather", "use_distributed_optimizer", "fp8_param_gather")
"""Likewise in its DistributedDataParallelConfig."""


def same_names(settings: Settings, names: Iterable[str]) -> dict[str, Any]:
    """Return the settings `names` as keyword arguments for megatron-core."""
    return {name: getattr(settings, name) for name in names}


def transformer_config(job: Job) -> TransformerConfig:
    """Translate the settings into megatron-core's configuration."""
    settings, layout = job.settings, job.layout
    return TransformerConfig(
        **same_names(settings, SAME_IN_CONFIG),
        num_layers=settings.stack_depth,
        ffn_hidden_size=settings.ffn_width,
        kv_channels=settings.head_width,
        num_query_groups=settings.query_groups,
        layernorm_epsilon=settings.norm_epsilon,
        add_bias_linear=not settings.disable_bias_linear,
        gated_linear_unit=settings.gated,
        activation_func=silu if settings.swiglu else gelu,
        cp_comm_type=settings.cp_comm_type if settings.context_parallel_size > 1 else None,
        sequence_parallel=layout.sequence_parallel,
        params_dtype=getattr(torch, settings.params_dtype),
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


CHECKPOINT_NAMES = {
    "input_layernorm.": "self_attention.linear_qkv.layer_norm_",
    "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_",
}
"""Names of the normalisations in a checkpoint: those of Transformer Engine, which has them in the linear layer that follows, so that
a checkpoint fits all providers. `draw_weights` needs no such table: it recognizes both names."""


def stack(job: Job, config: TransformerConfig, stage: int | None, mask: AttnMaskType) -> TransformerBlockSubmodules:
    """Return the layers of this rank's (virtual) stage and the final normalisation."""
    layers = [layer(job, mask)] * get_num_layers_to_build(config, stage)
    return TransformerBlockSubmodules(layer_specs=layers, layer_norm=job.kernels.modules.norm)


def layer(job: Job, mask: AttnMaskType, *, cross: bool = False) -> ModuleSpec:
    """Return a layer: normalisation, self-attention, normalisation, feed-forward block; `cross` adds a cross-attention between the two, as in T5's decoder."""
    settings, use = job.settings, job.kernels.modules
    rotation = {"rotated_width": settings.rotated_width, "rotary_base": settings.rotary_base}
    fused = {"fused_rotary": "rotary" in job.kernels.compiled}
    column, norm = use.norm_column or use.column, IdentityOp if use.norm_column else use.norm
    own = ContextAttention if settings.context_parallel_size > 1 else FusedAttention
    feedforward = RecomputedMLP if "mlp" in recomputed_modules(settings) else MLP
    attention = SelfAttentionSubmodules(
        linear_qkv=column, core_attention=ModuleSpec(use.attention or own, params=rotation | fused), linear_proj=use.row
    )
    parts = TransformerLayerSubmodules(
        input_layernorm=norm,
        self_attention=ModuleSpec(SelfAttention, params={"attn_mask_type": mask}, submodules=attention),
        self_attn_bda=get_bias_dropout_add,
        pre_mlp_layernorm=norm,
        mlp=ModuleSpec(
            feedforward, submodules=MLPSubmodules(linear_fc1=column, linear_fc2=use.row, activation_func=use.gate)
        ),
        mlp_bda=get_bias_dropout_add,
        sharded_state_dict_keys_map={} if use.norm_column else dict(CHECKPOINT_NAMES),
    )
    if cross:
        across = CrossAttentionSubmodules(
            linear_q=use.column,
            linear_kv=use.column,
            core_attention=ModuleSpec(FusedAttention),  # not rotated: positions of two stacks are not comparable
            linear_proj=use.row,
        )
        parts.cross_attention = ModuleSpec(
            CrossAttention, params={"attn_mask_type": AttnMaskType.padding}, submodules=across
        )
        parts.pre_cross_attn_layernorm, parts.cross_attn_bda = use.norm, get_bias_dropout_add
    return ModuleSpec(TransformerLayer, submodules=parts)


def places(job: Job) -> list[Place]:
    """Return the places of this rank's parts of the model: one, or with interleaving one per virtual stage."""
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


def build_model(job: Job, family: "Family") -> list[DistributedDataParallel]:
    """Return this rank's parts, with their initial weights, wrapped for data parallelism."""
    config, settings = transformer_config(job), job.settings
    chunks: list[torch.nn.Module] = []
    for place in places(job):
        chunk = family.build(job, config, place).to(job.device)  # megatron-core leaves learned positions on the CPU
        if settings.use_cpu_initialization or job.device.type == "cpu":
            draw_weights(chunk, settings)
        chunks.append(Float16Module(config, chunk) if settings.bf16 or settings.fp16 else chunk)
    bucket_size = settings.ddp_bucket_size
    if settings.ddp_num_buckets:
        bucket_size = sum(p.numel() for chunk in chunks for p in chunk.parameters()) // settings.ddp_num_buckets
    rules = DistributedDataParallelConfig(
        **same_names(settings, SAME_IN_COMMUNICATION),
        grad_reduce_in_fp32=settings.gradients_dtype != settings.params_dtype,
        align_param_gather=settings.align_param_gather and job.layout.virtual_stages > 1,
        bucket_size=bucket_size,
        average_in_collective=settings.ddp_average_in_collective,
    )
    wrapped = [
        DistributedDataParallel(config, rules, chunk, disable_bucketing=number > 0)  # later parts overlap by themselves
        for number, chunk in enumerate(chunks)
    ]

    def calls(name: str) -> Any:  # schedules without interleaving take one function; as Megatron-LM's training.py
        found = [getattr(part, name) for part in wrapped]
        return found if len(found) > 1 else found[0]

    config.finalize_model_grads_func = finalize_model_grads
    if settings.overlap_grad_reduce:
        config.no_sync_func = calls("no_sync")
        if not settings.no_align_grad_reduce:
            config.grad_sync_func = calls("start_grad_sync")
    if rules.align_param_gather:
        config.param_sync_func = calls("start_param_sync")
    return wrapped


OUTPUT_LAYERS = ("linear_proj.weight", "linear_fc2.weight")


def draw_weights(model: torch.nn.Module, settings: Settings) -> None:
    """Initialize every parameter of this rank with its share of the weights that a single rank would have.

    Weights are normal with `init_method_std`, divided by sqrt(2 * layers of the stack) for those that write to the residual stream;
    biases are 0 and normalisation weights 1 (Radford et al. 2019; Megatron-LM does the same).
    """
    with torch.no_grad():
        for name, parameter in _global_names(model, tied=not settings.untie_embeddings_and_output_weights):
            if parameter.dim() == 1:
                parameter.fill_(float("norm" in name and name.endswith("weight")))
            else:
                own = settings.decoder_num_layers if name.startswith("decoder.") else settings.encoder_num_layers
                scale = 1 / math.sqrt(2 * (own or settings.num_layers)) if name.endswith(OUTPUT_LAYERS) else 1.0
                parameter.copy_(_share(name, parameter, settings.seed, settings.init_method_std * scale))


def _global_names(model: torch.nn.Module, *, tied: bool) -> Iterator[tuple[str, torch.nn.Parameter]]:
    for name, parameter in model.named_parameters():
        if name.startswith(("decoder.layers.", "encoder.layers.")):
            stack, _, index, rest = name.split(".", 3)
            layer = model.get_submodule(f"{stack}.layers.{index}")
            yield f"{stack}.layers.{int(layer.layer_number) - 1}.{rest}", parameter  # type: ignore[arg-type]
        elif tied and name == "output_layer.weight":
            yield "embedding.word_embeddings.weight", parameter
        else:
            yield name, parameter


def _share(name: str, parameter: torch.nn.Parameter, seed: int, deviation: float) -> torch.Tensor:
    parallel = getattr(parameter, "tensor_model_parallel", False)
    ranks = parallel_state.get_tensor_model_parallel_world_size() if parallel else 1
    dimension, stride = getattr(parameter, "partition_dim", 0), getattr(parameter, "partition_stride", 1)
    shape = list(parameter.shape)
    if ranks > 1:
        shape[dimension] *= ranks
    number = int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "big")
    generator = torch.Generator().manual_seed(number)
    whole = torch.empty(shape).normal_(0.0, deviation, generator=generator)
    if ranks == 1:
        return whole
    rank = parallel_state.get_tensor_model_parallel_rank()
    width = parameter.shape[dimension] // stride  # stride 2: gate and value of SwiGLU
    pieces = torch.split(whole, width, dim=dimension)
    return torch.cat(pieces[rank::ranks], dim=dimension)
