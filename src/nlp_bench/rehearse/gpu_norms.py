"""LayerNorm and RMSNorm as on a GPU: one kernel each way, whose statistics are float32 whatever the type of the input.

On a CPU torch's LayerNorm has statistics of the input's type, and its RMSNorm is some ten operators. Source: torch's
aten/src/ATen/native/cuda/layer_norm_kernel.cu (`acc_type`).
"""

from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig


class Norm:
    """Stands for the trainer's own (train/kernels/native.py)."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:  # type: ignore[misc]
        """Return the module that `config.normalization` names."""
        kind = _LayerNorm if config.normalization == "LayerNorm" else _RMSNorm
        norm = kind(hidden_size, eps, dtype=config.params_dtype)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return norm


class _LayerNorm(torch.nn.LayerNorm):
    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return _Kernel.apply(tensor, self.weight, self.bias)  # type: ignore[no-any-return,no-untyped-call]


class _RMSNorm(torch.nn.RMSNorm):
    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return _Kernel.apply(tensor, self.weight, None)  # type: ignore[no-any-return,no-untyped-call]


class _Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        shape = (*tensor.shape[:-1], 1)
        count = 1 if bias is None else 2  # the mean too
        statistics = [torch.empty(shape, dtype=torch.float32, device=tensor.device) for _ in range(count)]
        ctx.save_for_backward(tensor, weight, bias, *statistics)
        return torch.empty_like(tensor)

    @staticmethod
    def backward(ctx: Any, upper: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tensor, weight, bias, *_ = ctx.saved_tensors
        del upper
        return tuple(None if one is None else torch.empty_like(one) for one in (tensor, weight, bias))
