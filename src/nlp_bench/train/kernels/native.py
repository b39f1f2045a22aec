"""torch's own kernels: which attention kernel is asked first, what is compiled, and the normalisation."""

import contextlib
from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.utils import is_torch_min_version
from torch.nn.attention import SDPBackend, sdpa_kernel

from nlp_bench.build.providers import has_c_compiler
from nlp_bench.train.kernels.kernels import Modules
from nlp_bench.train.kernels.processor import Column, Gate, Row
from nlp_bench.train.settings import Settings

CUDNN_FIRST = {(9, 0), (10, 0)}
"""Compute capabilities on which cuDNN's attention is asked before flash attention 2 (H100, H200, GH200; B200)."""
_ORDER = contextlib.ExitStack()  # never closed: the order holds for the whole training


class Norm:
    """Torch's LayerNorm or RMSNorm whose parameters know about sequence parallelism (megatron-core's own refuses it)."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:  # type: ignore[misc]
        """Return the module that `config.normalization` names; its gradients are summed over tensor-parallel ranks."""
        kind = torch.nn.LayerNorm if config.normalization == "LayerNorm" else torch.nn.RMSNorm
        device = torch.cuda.current_device()
        norm: torch.nn.Module = kind(hidden_size, eps, device=device, dtype=config.params_dtype)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        if kind is torch.nn.RMSNorm and torch.cuda.is_available() and _without_fused_rms_norm() and has_c_compiler():
            norm.compile()
        return norm


def _without_fused_rms_norm() -> bool:
    return not is_torch_min_version("2.9.0a0")  # half a dozen kernels each way


def modules(*, on_cpu: bool = False) -> Modules:
    """Return what layers are made of."""
    column, row, gate = (Column, Row, Gate) if on_cpu else (ColumnParallelLinear, RowParallelLinear, None)
    return Modules(norm=Norm, column=column, norm_column=None, row=row, attention=None, gate=gate)


def order_attention(device: torch.device, off: frozenset[str]) -> str:
    """Let torch try its attention kernels in the best order for this device; return it in words.

    The order is that of torch 2.13 with cuDNN 9.15.1 or later (sdp_utils.cpp, `check_prefer_cudnn_attention`), and here of every
    torch: older ones ask flash attention 2 first everywhere. On Hopper cuDNN's kernel is 1.7 to 2.3 times as fast by the tables
    of https://github.com/huggingface/transformers/pull/48163 (not measured by us).
    """
    if device.type != "cuda":
        return "torch scaled_dot_product_attention; torch picks flash where it can"
    first = preferred_attention(torch.cuda.get_device_capability(device), off)
    kinds = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    rest = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    _ORDER.enter_context(sdpa_kernel([*(kinds[name] for name in first), *rest], set_priority=True))
    return f"torch scaled_dot_product_attention; asked in this order: {', '.join(first)}, memory-efficient"


def preferred_attention(capability: tuple[int, int], off: frozenset[str]) -> list[str]:
    """Return which fast kernels are asked in turn on a GPU of this compute capability; of one with a wrong attention flash alone."""
    if "attention" in off:
        return ["flash"]
    return ["cuDNN", "flash"] if capability in CUDNN_FIRST else ["flash", "cuDNN"]


def compiled_operators(settings: Settings, device: torch.device, off: frozenset[str]) -> tuple[frozenset[str], str]:
    """Return what torch.compile fuses here, and that in words.

    On CPUs nothing is compiled: measured with benchmark/perf/trainer_vs_torch.py, the compiled element-wise kernels
    made a step 4 % slower there.
    """
    if device.type != "cuda":
        return frozenset(), "torch, not fused (as fast on a CPU)"
    if not has_c_compiler():
        text = "torch, NOT FUSED: torch.compile needs a C compiler and there is none; the number will be too low"
        return frozenset(), text
    unwanted = {
        "activation": settings.no_bias_swiglu_fusion if settings.swiglu else settings.no_bias_gelu_fusion,
        "dropout add": settings.no_bias_dropout_fusion,
        "rotary": settings.no_rope_fusion,
        "cross entropy": settings.no_cross_entropy_loss_fusion,
    }
    failed = {kind for kind in unwanted if kind in off}
    apart = [
        f"{kind} ({'off' if unwanted[kind] else 'WRONG in the build'})"
        for kind in unwanted
        if unwanted[kind] or kind in failed
    ]
    kinds = frozenset(kind for kind in unwanted if not unwanted[kind] and kind not in failed)
    text = f"torch.compile: {', '.join(sorted(kinds)) or 'nothing'}"
    return kinds, text + (f"; not fused: {', '.join(apart)}" if apart else "")
