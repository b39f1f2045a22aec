"""Matrix products that do their neighbours' work: add weight gradients to their float32 sum, and add the bias."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from megatron.core.tensor_parallel import layers
from torch.amp import custom_fwd

Accumulate = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
"""From the inputs [n, k], the gradient of the outputs [n, m] and the sum [m, k], to which their product is added."""
Linear: Any = layers.LinearWithGradAccumulationAndAsyncCommunication


def in_one_product(inputs: torch.Tensor, gradient: torch.Tensor, total: torch.Tensor) -> None:
    """Let cuBLAS add 16-bit inputs' product to a float32 sum (torch.addmm's out_dtype, torch 2.8 or later; on CUDA only)."""
    torch.addmm(total, gradient.t(), inputs, out_dtype=torch.float32, out=total)


def in_two_steps(inputs: torch.Tensor, gradient: torch.Tensor, total: torch.Tensor) -> None:
    """Make the product in float32, then add it."""
    total.add_(torch.mm(gradient.t(), inputs, out_dtype=torch.float32))


def same_type(inputs: torch.Tensor, gradient: torch.Tensor, total: torch.Tensor) -> None:
    """Add where inputs and sum have one type."""
    total.addmm_(gradient.t(), inputs)


WAYS: dict[str, Accumulate] = {
    "added to their float32 sum by the matrix product itself (torch.addmm, out_dtype)": in_one_product,
    "made in float32, then added": in_two_steps,
}


def native_way(device: torch.device, dtype: torch.dtype) -> tuple[str, Accumulate] | None:
    """Return in words and as a function how torch can sum weight gradients here, the fastest that gives a right result."""
    if dtype == torch.float32:
        return "added to their sum by the matrix product itself (torch.addmm_)", same_type
    for words, way in WAYS.items():
        if _right(way, device, dtype):
            return words, way
    return None


def _right(way: Accumulate, device: torch.device, dtype: torch.dtype) -> bool:
    inputs = torch.ones(32, 16, device=device, dtype=dtype)
    gradient = torch.full((32, 8), 0.5, device=device, dtype=dtype)
    total = torch.ones(8, 16, device=device)
    try:
        way(inputs, gradient, total)
    except (RuntimeError, TypeError, NotImplementedError):  # torch before 2.8, or a device without such a product
        return False
    return bool((total == 17).all())  # 1 + 32 * 0.5: exact in every type


def install_accumulation(way: Accumulate) -> None:
    """Let megatron-core's linear layers call `way`; it looks for Apex's extension by this name."""
    layers.fused_weight_gradient_mlp_cuda = SimpleNamespace(wgrad_gemm_accum_fp32=way, wgrad_gemm_accum_fp16=same_type)
    layers._grad_accum_fusion_available = True  # noqa: SLF001  # what it found out at its import


def install_bias() -> None:
    """Let the matrix product of megatron-core's linear layers add the bias (cuBLASLt's epilogue): one pass less over the output."""
    layers.LinearWithGradAccumulationAndAsyncCommunication = BiasInProduct


class BiasInProduct(Linear):  # type: ignore[misc]
    """megatron-core's linear layer; only the forward pass of one with a bias and without sequence parallelism differs."""

    @staticmethod
    @custom_fwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def forward(  # noqa: PLR0913, PLR0917  # megatron-core's arguments
        ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, accumulate: bool,
        allreduce_dgrad: bool, sequence_parallel: bool, grad_output_buffer: Any, wgrad_deferral_limit: Any, tp_group: Any,
    ) -> torch.Tensor:  # fmt: skip
        """Return inputs [s, b, k] times weight [m, k] transposed, plus bias [m]."""
        rest = (accumulate, allreduce_dgrad, sequence_parallel, grad_output_buffer, wgrad_deferral_limit, tp_group)
        if bias is None or sequence_parallel:
            return Linear.forward(ctx, inputs, weight, bias, *rest)  # type: ignore[no-any-return]
        ctx.save_for_backward(inputs, weight)
        ctx.main_grad = getattr(weight, "main_grad", None) if accumulate else None
        ctx.use_bias, ctx.gradient_accumulation_fusion, ctx.allreduce_dgrad = True, accumulate, allreduce_dgrad
        ctx.sequence_parallel, ctx.tp_group = False, tp_group
        ctx.grad_output_buffer, ctx.wgrad_deferral_limit = grad_output_buffer, wgrad_deferral_limit
        product = torch.addmm(bias, inputs.flatten(0, -2), weight.t())
        return product.view(*inputs.shape[:-1], -1)
