"""The feed-forward block that the backward pass computes again, and a repair of megatron-core's recomputed normalisation.

Two faults of megatron-core 0.16.1 are stepped around. Its own recompute of `mlp` hands the bias, a parameter, out of the
checkpoint as one of its results, which makes the checkpoint the parameter's author: the backward pass then calls itself for
ever. And its `CheckpointWithoutOutput()` takes fp8=False for 8-bit floats and looks for Transformer Engine.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
from megatron.core import tensor_parallel
from megatron.core.transformer.mlp import MLP

CheckpointWithoutOutput = tensor_parallel.CheckpointWithoutOutput


class RecomputedMLP(MLP):  # type: ignore[misc]
    """megatron-core's MLP that keeps nothing but its input."""

    def forward(self, hidden: torch.Tensor, per_token_scale: Any = None, **_: Any) -> Any:
        """Return the block's output [s, b, h] and the bias that the residual addition adds, or None."""
        if not torch.is_grad_enabled() or per_token_scale is not None:
            return super().forward(hidden, per_token_scale)
        biases = []

        def block(inputs: torch.Tensor) -> torch.Tensor:
            output, bias = MLP.forward(self, inputs)
            biases.append(bias)  # None where the layer, or no layer, has added it
            return output  # type: ignore[no-any-return]

        output = self._checkpointed(block, hidden)
        return output, biases[0]

    def _checkpointed(self, block: Callable[[torch.Tensor], torch.Tensor], hidden: torch.Tensor) -> torch.Tensor:
        if not self.config.fp8:
            return tensor_parallel.checkpoint(block, False, hidden)  # type: ignore[no-any-return]
        from megatron.core.extensions.transformer_engine import te_checkpoint  # noqa: PLC0415  # keeps scales apart

        tracker = tensor_parallel.random.get_cuda_rng_tracker
        return te_checkpoint(block, False, tracker, self.tp_group, hidden)  # type: ignore[no-any-return]


def repair_recompute() -> None:
    """Let recomputed normalisations run without Transformer Engine, and recomputed feed-forward blocks without a warning."""
    logging.getLogger("megatron.core.transformer.transformer_layer").setLevel(logging.ERROR)  # "Unknown MLP type"
    tensor_parallel.CheckpointWithoutOutput = functools.partial(CheckpointWithoutOutput, fp8=None)
