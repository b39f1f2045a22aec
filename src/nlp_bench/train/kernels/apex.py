"""Apex's kernels: LayerNorm, AdamW, norm of the gradients, and weight gradients added to their sum.

Not tested here: written from Apex's sources (github.com/NVIDIA/apex) and megatron-core's use of them.
"""

import importlib
from dataclasses import replace
from typing import Any

import torch

from nlp_bench.train.kernels import Modules, native
from nlp_bench.train.settings import Settings


def modules(settings: Settings, off: frozenset[str]) -> tuple[Modules, str]:
    """Return the modules of layers, and the normalisation's text for the log; megatron-core uses no RMSNorm of Apex."""
    if settings.normalization != "LayerNorm" or "norm" in off:
        reason = "Apex's gave wrong results in the build" if "norm" in off else "megatron-core uses no RMSNorm of Apex"
        return native.modules(), f"torch ({reason})"
    return replace(native.modules(), norm=Norm), "Apex FusedLayerNorm (persistent where the width has such a kernel)"


class Norm:
    """Apex's LayerNorm through megatron-core."""

    def __new__(cls, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:  # type: ignore[misc]
        """Return the module on the GPU with the parameters' type; megatron-core creates it in float32 on the CPU."""
        from megatron.core.fusions.fused_layer_norm import FusedLayerNorm  # noqa: PLC0415  # only with Apex

        norm: torch.nn.Module = FusedLayerNorm(config, hidden_size, eps)
        norm.to(device=torch.cuda.current_device(), dtype=config.params_dtype)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]  # else lost
        return norm


def accumulation() -> Any:
    """Return Apex's weight gradient."""
    return importlib.import_module("fused_weight_gradient_mlp_cuda").wgrad_gemm_accum_fp32
