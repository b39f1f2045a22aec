"""T5's relative positions: a number per head and distance, added to the scores of every layer of a stack."""

import math
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedStateDict
from megatron.core.tensor_parallel.mappings import scatter_to_tensor_model_parallel_region
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.utils import make_sharded_tensor_for_checkpoint

from nlp_bench.train.families.family import Place

NUM_BUCKETS = 32
FARTHEST = 128
"""Megatron-LM's defaults of --relative-attention-num-buckets and --relative-attention-max-distance, and T5's own values."""


class RelativeBias(torch.nn.Module):
    """A table [buckets, heads]; every part of the model holds a copy, and the copies stay equal."""

    def __init__(self, config: TransformerConfig, place: Place, length: int, *, both_directions: bool) -> None:
        """`length` is that of the sequence whose tokens are compared with each other."""
        super().__init__()
        device: Any = torch.cuda.current_device()
        shape = (NUM_BUCKETS, config.num_attention_heads)
        self.weight = torch.nn.Parameter(torch.empty(shape, device=device, dtype=config.params_dtype))
        draw: Any = config.init_method
        draw(self.weight)
        marks: Any = self.weight
        marks.pipeline_parallel = True  # megatron-core sums the gradients over the pipeline stages
        marks.shared_embedding = True  # a bucket of its own, cut in the same way on all of them
        marks.shared = not place.first  # counted once in the norm of the gradient
        self._copy = (place.virtual_stage or 0) * config.pipeline_model_parallel_size
        self._copy += parallel_state.get_pipeline_model_parallel_rank()
        self._buckets = buckets(length, both_directions=both_directions).to(device)

    def forward(self, unused_by: torch.Tensor | None = None) -> torch.Tensor:
        """Return the bias of this rank's heads, [1, heads, s, s].

        Where no layer uses the table, return the hidden state `unused_by` as it is, with a gradient of 0 for the table:
        reductions and gatherings that overlap wait for every parameter.
        """
        if unused_by is not None:
            return unused_by + 0 * self.weight.sum()
        bias = torch.nn.functional.embedding(self._buckets, self.weight)
        local: torch.Tensor = scatter_to_tensor_model_parallel_region(bias)
        return local.permute(2, 0, 1)[None].contiguous()

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None
    ) -> ShardedStateDict:
        """Return the table as one of several copies, of which a checkpoint keeps one."""
        del metadata
        replica = (
            self._copy,
            parallel_state.get_tensor_model_parallel_rank(),
            parallel_state.get_data_parallel_rank(with_context_parallel=True),
        )
        name = f"{prefix}weight"
        return {name: make_sharded_tensor_for_checkpoint(self.weight, name, sharded_offsets, replica_id=replica)}


def buckets(length: int, *, both_directions: bool) -> torch.Tensor:
    """Return the bucket of each pair of query and key, int64 [length, length].

    Half of the buckets (of each direction) are one distance each, the others grow logarithmically up to FARTHEST, which the
    last one holds with all beyond. Raffel et al. 2020, section 2.1.
    """
    positions = torch.arange(length)
    distance = positions[None, :] - positions[:, None]  # key - query
    count = NUM_BUCKETS // 2 if both_directions else NUM_BUCKETS
    later = (distance > 0).long() * count if both_directions else torch.zeros_like(distance)
    distance = distance.abs() if both_directions else (-distance).clamp(min=0)
    exact = count // 2
    growth = torch.log(distance.clamp(min=1) / exact) / math.log(FARTHEST / exact)
    far = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
    return later + torch.where(distance < exact, distance, far)
