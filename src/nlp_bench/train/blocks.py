"""The transformer layers of one part of a model, made of megatron-core's modules and the kernels that were chosen."""

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
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

from nlp_bench.train.attention import FusedAttention
from nlp_bench.train.context import ContextAttention
from nlp_bench.train.job import Job
from nlp_bench.train.kernels.feedforward import RecomputedMLP
from nlp_bench.train.kernels.kernels import Modules
from nlp_bench.train.kernels.recompute import recomputed_modules

CHECKPOINT_NAMES = {
    "input_layernorm.": "self_attention.linear_qkv.layer_norm_",
    "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_",
}
"""Names of the normalisations in a checkpoint: those of Transformer Engine, which holds them in the linear layer behind, so that
a checkpoint of one provider is read by the others. `weights.py` needs no such table: it tells a normalisation by its ending."""


def stack(
    job: Job, config: TransformerConfig, virtual_stage: int | None, mask: AttnMaskType
) -> TransformerBlockSubmodules:
    """Return the layers of this rank's (virtual) stage and the normalisation behind them."""
    layers = [layer(job, mask)] * get_num_layers_to_build(config, virtual_stage)
    return TransformerBlockSubmodules(layer_specs=layers, layer_norm=job.kernels.norm)


def layer(job: Job, mask: AttnMaskType, *, cross: bool = False) -> ModuleSpec:
    """Return one layer: normalisation, self-attention, normalisation, feed-forward block.

    `cross` puts a normalisation and an attention to another stack's output between the two, as T5's decoder has them.
    """
    settings, use = job.settings, job.kernels.modules
    rotation = {"rotated_width": settings.rotated_width, "rotary_base": settings.rotary_base}
    fused = {"fused_rotary": "rotary" in job.kernels.compiled}
    column, norm = use.norm_column or use.column, IdentityOp if use.norm_column else use.norm
    feedforward = RecomputedMLP if "mlp" in recomputed_modules(settings) else MLP
    attention = SelfAttentionSubmodules(
        linear_qkv=column,
        core_attention=ModuleSpec(use.attention or _core(job), params=rotation | fused),
        linear_proj=use.row,
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
        parts.pre_cross_attn_layernorm, parts.cross_attention = use.norm, _cross_attention(use)
        parts.cross_attn_bda = get_bias_dropout_add
    return ModuleSpec(TransformerLayer, submodules=parts)


def _core(job: Job) -> type[FusedAttention]:
    return ContextAttention if job.settings.context_parallel_size > 1 else FusedAttention


def _cross_attention(use: Modules) -> ModuleSpec:
    attention = CrossAttentionSubmodules(
        linear_q=use.column,
        linear_kv=use.column,
        core_attention=ModuleSpec(FusedAttention),  # positions of two stacks are not compared: nothing is rotated
        linear_proj=use.row,
    )
    return ModuleSpec(CrossAttention, params={"attn_mask_type": AttnMaskType.padding}, submodules=attention)
