"""What the backward pass computes again, in megatron-core's words, and the feed-forward block that does.

Two faults of megatron-core 0.16.1 are stepped around. Its own recompute of `mlp` hands the bias, a parameter, out of the
checkpoint as one of its results, which makes the checkpoint the parameter's author: the backward pass then calls itself for
ever. And its `CheckpointWithoutOutput()` takes fp8=False for 8-bit floats and looks for Transformer Engine.
"""

import functools
import logging
from typing import Any

import torch
from megatron.core import tensor_parallel
from megatron.core.transformer.mlp import MLP

from nlp_bench.train.settings import Settings

MEANING = {
    "mlp": "feed-forward blocks",
    "layernorm": "normalisations",
}


def recomputed_modules(settings: Settings) -> list[str]:
    """Return the modules that selective recompute runs twice.

    core_attn is none: every attention kernel here is a fused one that keeps no scores and recomputes them by itself, so a
    checkpoint around it would only run it once more.
    """
    return (
        [name for name in settings.recompute_modules if name in MEANING] if settings.granularity == "selective" else []
    )


def recompute(settings: Settings) -> dict[str, Any]:
    """Return the fields of megatron-core's TransformerConfig."""
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
    """Say what is computed again, for the log."""
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

        if not self.config.fp8:
            return tensor_parallel.checkpoint(block, False, hidden), biases[0]
        from megatron.core.extensions.transformer_engine import te_checkpoint  # noqa: PLC0415  # keeps scales apart

        tracker = tensor_parallel.random.get_cuda_rng_tracker
        return te_checkpoint(block, False, tracker, self.tp_group, hidden), biases[0]


def repair_recompute() -> None:
    """Let recomputed normalisations run without Transformer Engine, and recomputed feed-forward blocks without a warning."""
    logging.getLogger("megatron.core.transformer.transformer_layer").setLevel(logging.ERROR)  # "Unknown MLP type"
    tensor_parallel.CheckpointWithoutOutput = functools.partial(CheckpointWithoutOutput, fp8=None)
