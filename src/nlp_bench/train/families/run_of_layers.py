"""Consecutive layers of one of T5's two stacks, as far as they stand on one pipeline stage."""

import copy
from dataclasses import dataclass
from typing import Any

from megatron.core.dist_checkpointing.mapping import ShardedStateDict
from megatron.core.dist_checkpointing.utils import replace_prefix_for_sharding
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlock, TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.utils import sharded_state_dict_default
from megatron.core.utils import scaled_init_method_normal


@dataclass(frozen=True, kw_only=True)
class Span:
    """Which layers of a stack are meant."""

    first: int
    """Number of the first one in its stack, counted from 0."""
    count: int
    """How many."""
    depth: int
    """Layers of the whole stack."""
    recomputed: int | None = None
    """What remains of --recompute-num-layers for this run; None where nothing is recomputed."""

    @property
    def is_last(self) -> bool:
        """Whether the stack ends here, with a normalisation."""
        return self.first + self.count == self.depth


class RunOfLayers(TransformerBlock):  # type: ignore[misc]  # megatron-core has no types
    """megatron-core's block of layers, whose layers are counted within their own stack instead of over the pipeline."""

    def __init__(self, config: TransformerConfig, layer: ModuleSpec, norm: type, span: Span, stage: int | None) -> None:
        """Build `span.count` layers like `layer`, and the normalisation where the stack ends."""
        own = copy.copy(config)  # what is set there later (gradient hooks) is asked of the model's, not of a layer's
        own.output_layer_init_method = scaled_init_method_normal(config.init_method_std, span.depth)
        if span.recomputed is not None:
            own.recompute_num_layers = span.recomputed
        super().__init__(
            own,
            TransformerBlockSubmodules(layer_specs=[layer] * span.count, layer_norm=norm),
            pre_process=True,  # its input is handed over, not received
            post_process=span.is_last,
            vp_stage=stage,
        )
        for number, module in enumerate(self.layers, span.first + 1):
            module.layer_number = number

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None
    ) -> ShardedStateDict:
        """Return the parameters under their numbers in the stack, so that a checkpoint fits any layout."""
        found: ShardedStateDict = {}
        for index, layer in enumerate(self.layers):
            here = f"{prefix}layers.{index}."
            part = layer.sharded_state_dict(here, sharded_offsets, metadata)
            replace_prefix_for_sharding(part, here, f"{prefix}layers.{layer.layer_number - 1}.")
            found |= part
        if self.final_layernorm is not None:
            norm = f"{prefix}final_layernorm."
            found |= sharded_state_dict_default(
                self.final_layernorm, norm, sharded_offsets, metadata, tp_group=self.tp_group
            )
        return found
