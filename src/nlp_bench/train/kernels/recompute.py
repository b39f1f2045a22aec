"""Recomputation in the backward pass: megatron-core's options, and a feed-forward block that recomputes.

Two bugs of megatron-core 0.16.1 are worked around. Its own recompute of `mlp` returns the bias, a parameter, from the checkpointed
function, which makes the checkpoint its gradient function: the backward pass then recurses endlessly. And its
`CheckpointWithoutOutput()` treats fp8=False like 8-bit floats and imports Transformer Engine.
"""

import functools
import logging
from typing import Any

import torch
from megatron.core import tensor_parallel
from megatron.core.transformer.mlp import MLP

from nlp_bench.train.settings import Settings

MEANING = {"mlp": "feed-forward blocks", "layernorm": "normalisations"}


def recomputed_modules(settings: Settings) -> list[str]:
    """Return what selective recompute runs twice; not core_attn, for every attention kernel here is fused and recomputes the scores itself."""
    if settings.granularity != "selective":
        return []
    return [name for name in settings.recompute_modules if name in MEANING]


def recompute(settings: Settings) -> dict[str, Any]:
    """Return the settings of recomputation for megatron-core's TransformerConfig."""
    if settings.granularity == "full":
        return {
            "recompute_granularity": "full",
            "recompute_method": settings.recompute_method,
            "recompute_num_layers": settings.recompute_num_layers,
        }
    if "layernorm" not in recomputed_modules(settings):
        return {}
    return {"recompute_granularity": "selective", "recompute_modules": ["layernorm"]}  # mlp is RecomputedMLP


def recompute_text(settings: Settings) -> str:
    """Return the text for the log."""
    if settings.granularity == "full":
        return f"full: whole layers, {settings.recompute_method}, {settings.recompute_num_layers}"
    fused = "the fused attention kernel recomputes its scores"
    if settings.granularity is None:
        return f"none asked for; {fused} all the same"
    names = [MEANING[name] for name in recomputed_modules(settings)]
    if not names:
        return "selective: attention only, and its fused kernel does that by itself (no checkpoint is made)"
    return f"selective: {' and '.join(names)}; {fused} by itself"


CheckpointWithoutOutput = tensor_parallel.CheckpointWithoutOutput


class RecomputedMLP(MLP):  # type: ignore[misc]
    """megatron-core's MLP that saves only its input for the backward pass."""

    def forward(self, hidden: torch.Tensor, per_token_scale: Any = None, **_: Any) -> Any:
        """Return the block's output [s, b, h] and the bias [h] for the residual addition, or None."""
        if not torch.is_grad_enabled() or per_token_scale is not None:
            return super().forward(hidden, per_token_scale)
        biases = []

        def block(inputs: torch.Tensor) -> torch.Tensor:
            output, bias = MLP.forward(self, inputs)
            biases.append(bias)  # None where the layer has added it, or has none
            return output  # type: ignore[no-any-return]

        if not self.config.fp8:
            return tensor_parallel.checkpoint(block, False, hidden), biases[0]
        from megatron.core.extensions.transformer_engine import te_checkpoint  # noqa: PLC0415  # for scales of fp8

        tracker = tensor_parallel.random.get_cuda_rng_tracker
        return te_checkpoint(block, False, tracker, self.tp_group, hidden), biases[0]


def repair_recompute() -> None:
    """Make recomputed normalisations run without Transformer Engine, and RecomputedMLP without a warning."""
    logging.getLogger("megatron.core.transformer.transformer_layer").setLevel(logging.ERROR)  # "Unknown MLP type"
    tensor_parallel.CheckpointWithoutOutput = functools.partial(CheckpointWithoutOutput, fp8=None)
