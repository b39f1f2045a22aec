"""Operators for the CPU, where nothing is compiled, with fewer passes over memory than a chain of torch's.

Their speed-ups are in benchmark/perf/README.md, section "Trainer".
"""

from collections.abc import Callable
from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import gelu

Derivative = Callable[..., torch.Tensor]


class _Whole(torch.nn.Module):
    """megatron-core's linear layer; where one rank has it whole, one product with its bias and less overhead in Python."""

    def forward(self, inputs: torch.Tensor, *more: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return inputs [s, b, k] times the weight [m, k] transposed, and the bias [m] that is still to be added, or None."""
        if not more and not options and _is_whole(self):
            return _Product.apply(inputs, self.weight, self.bias), None  # type: ignore[no-untyped-call]
        return super().forward(inputs, *more, **options)  # type: ignore[no-any-return]


class Column(_Whole, ColumnParallelLinear):  # type: ignore[misc]
    """A column-parallel one."""


class Row(_Whole, RowParallelLinear):  # type: ignore[misc]
    """A row-parallel one."""


def _is_whole(layer: Any) -> bool:
    total = getattr(layer.weight, "main_grad", None)
    added = layer.gradient_accumulation_fusion and total is not None and total.dtype == layer.weight.dtype
    return bool(added and layer.tp_group.size() == 1 and not layer.sequence_parallel)


class _Product(torch.autograd.Function):
    """Adds the gradient of the weight to its sum, `main_grad`, and marks it so for megatron-core's DistributedDataParallel."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.has_bias = bias is not None
        flat = inputs.flatten(0, -2)
        product = flat.mm(weight.t()) if bias is None else torch.addmm(bias, flat, weight.t())
        return product.view(*inputs.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, upper: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        inputs, weight = ctx.saved_tensors
        flat = upper.flatten(0, -2)
        weight.main_grad.addmm_(flat.t(), inputs.flatten(0, -2))
        weight.grad_added_to_main_grad = True
        unused = torch.empty_like(weight)  # the hook of the weight needs a gradient to run
        return flat.mm(weight).view_as(inputs), unused, flat.sum(0) if ctx.has_bias else None


class Gate:
    """The activation of GEGLU and SwiGLU (Shazeer 2020, https://arxiv.org/abs/2002.05202): act(first half) * second half.

    No module, because megatron-core's checkpoints expect `sharded_state_dict` of every module of the block.
    """

    def __init__(self, config: TransformerConfig) -> None:
        self._function = config.activation_func
        derivatives = torch.ops.aten
        chosen = derivatives.gelu_backward if self._function is gelu else derivatives.silu_backward
        self._derivative = chosen.grad_input

    def __call__(self, both: torch.Tensor) -> torch.Tensor:
        """Return [..., n] from [..., 2 * n]."""
        return _Gate.apply(both, self._function, self._derivative)  # type: ignore[no-any-return,no-untyped-call]


class _Gate(torch.autograd.Function):
    """The backward pass writes both halves of the gradient in place, without a concatenation."""

    @staticmethod
    def forward(ctx: Any, both: torch.Tensor, function: Derivative, derivative: Derivative) -> torch.Tensor:
        gate, value = both.chunk(2, dim=-1)
        activated = function(gate)
        ctx.save_for_backward(gate, activated, value)
        ctx.derivative = derivative
        return activated * value

    @staticmethod
    def backward(ctx: Any, upper: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        gate, activated, value = ctx.saved_tensors
        result = gate.new_empty(*gate.shape[:-1], 2 * gate.shape[-1])
        for_gate, for_value = result.chunk(2, dim=-1)
        torch.mul(upper, activated, out=for_value)
        inner = torch.mul(upper, value, out=activated)  # not needed any more
        ctx.derivative(inner, gate, grad_input=for_gate)
        return result, None, None


def loss_in_place(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return -log softmax(logits)[target], [s, b], for whole float32 logits [s, b, v], which become their softmax and, in the backward pass, their gradient."""
    return _Loss.apply(logits, target)  # type: ignore[no-any-return,no-untyped-call]


class _Loss(torch.autograd.Function):
    """In place, as allocating memory of the logits' size costs more than the arithmetic: its pages are zeroed on first touch."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits, index = logits.detach(), target.unsqueeze(-1)  # autograd does not need the original logits
        below = logits.amax(-1, keepdim=True) - logits.gather(-1, index)
        torch.softmax(logits, -1, out=logits)  # its greatest entry is 1 / sum(exp(logits - greatest))
        ctx.save_for_backward(logits, index)
        return (below - logits.amax(-1, keepdim=True).log()).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, upper: torch.Tensor) -> tuple[torch.Tensor, None]:
        softmax, index = ctx.saved_tensors
        upper = upper.unsqueeze(-1)
        return softmax.mul_(upper).scatter_add_(-1, index, -upper), None
