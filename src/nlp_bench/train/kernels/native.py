"""torch's own kernels: attention, normalisation, products that add weight gradients and biases, cross entropy, compiled operators.

At the end those for the CPU, where nothing is compiled, with fewer passes over memory than a chain of torch's operators. Their speed-ups
are in benchmark/perf/README.md, section "Trainer".
"""

import contextlib
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.fusions import fused_bias_gelu
from megatron.core.models.common.language_module import language_module
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear, layers
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.utils import is_torch_min_version
from torch.amp import custom_fwd
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import gelu

from nlp_bench.build.providers import compiler_gap
from nlp_bench.train.kernels import Modules
from nlp_bench.train.settings import Settings

CUDNN_FIRST = {(9, 0), (10, 0)}
"""Compute capabilities on which cuDNN's attention is preferred to flash attention 2 (H100, H200, GH200; B200)."""
_ORDER = contextlib.ExitStack()  # never closed: the order is for the whole training


class Norm:
    """Torch's LayerNorm or RMSNorm with support for sequence parallelism (megatron-core's own refuses it)."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:  # type: ignore[misc]
        """Return the module for `config.normalization`; its gradients are summed over tensor-parallel ranks."""
        kind = torch.nn.LayerNorm if config.normalization == "LayerNorm" else torch.nn.RMSNorm
        device = torch.cuda.current_device()
        norm: torch.nn.Module = kind(hidden_size, eps, device=device, dtype=config.params_dtype)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        fused = kind is torch.nn.LayerNorm or is_torch_min_version("2.9.0a0")  # older RMSNorms are six kernels or so
        if not fused and torch.cuda.is_available() and not compiler_gap():
            norm.compile()
        return norm


def modules(*, on_cpu: bool = False) -> Modules:
    """Return the modules of layers."""
    column, row, gate = (Column, Row, Gate) if on_cpu else (ColumnParallelLinear, RowParallelLinear, None)
    return Modules(norm=Norm, column=column, norm_column=None, row=row, attention=None, gate=gate)


def order_attention(device: torch.device, off: frozenset[str]) -> str:
    """Set the order in which torch tries its attention kernels for this device; return the text for the log.

    The order is that of torch 2.13 with cuDNN 9.15.1 or later (sdp_utils.cpp, `check_prefer_cudnn_attention`), here for every
    torch: older ones try flash attention 2 first everywhere. On Hopper cuDNN's kernel is 1.7 to 2.3 times as fast by the tables
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
    """Return the fast kernels to try in turn for a compute capability; only flash where the build found attention wrong."""
    if "attention" in off:
        return ["flash"]
    return ["cuDNN", "flash"] if capability in CUDNN_FIRST else ["flash", "cuDNN"]


def compiled_operators(settings: Settings, device: torch.device, off: frozenset[str]) -> tuple[frozenset[str], str]:
    """Return the kinds of operators that torch.compile fuses here, and the text for the log.

    None on CPUs: measured with benchmark/perf/trainer_vs_torch.py, compiled element-wise kernels make a step 4 % slower there.
    """
    if device.type != "cuda":
        return frozenset(), "torch, not fused (as fast on a CPU)"
    if gap := compiler_gap():
        return frozenset(), f"torch, NOT FUSED: torch.compile needs {gap}; the number will be too low"
    unasked = {
        "activation": settings.no_bias_swiglu_fusion if settings.swiglu else settings.no_bias_gelu_fusion,
        "dropout add": settings.no_bias_dropout_fusion,
        "rotary": settings.no_rope_fusion,
        "cross entropy": settings.no_cross_entropy_loss_fusion,
    }
    why = {kind: "off" if unasked[kind] else "WRONG in the build" for kind in unasked if unasked[kind] or kind in off}
    kinds = frozenset(unasked) - frozenset(why)
    text = f"torch.compile: {', '.join(sorted(kinds)) or 'nothing'}"
    apart = ", ".join(f"{kind} ({reason})" for kind, reason in why.items())
    return kinds, text + (f"; not fused: {apart}" if apart else "")


Accumulate = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
"""Adds the product of inputs [n, k] and gradient of the outputs [n, m] to the sum [m, k]."""
Linear: Any = layers.LinearWithGradAccumulationAndAsyncCommunication


def same_type(inputs: torch.Tensor, gradient: torch.Tensor, total: torch.Tensor) -> None:
    """Accumulate a weight gradient where inputs and sum have one type."""
    total.addmm_(gradient.t(), inputs)


WAYS: dict[str, Accumulate] = {
    # cuBLAS adds the product of 16-bit inputs to a float32 sum: torch 2.8 or later, CUDA only
    "added to their float32 sum by the matrix product itself (torch.addmm, out_dtype)": lambda inputs, gradient, total: (
        torch.addmm(total, gradient.t(), inputs, out_dtype=torch.float32, out=total)
    ),
    "made in float32, then added": lambda inputs, gradient, total: total.add_(
        torch.mm(gradient.t(), inputs, out_dtype=torch.float32)
    ),
}


def native_way(device: torch.device, dtype: torch.dtype, total: torch.dtype) -> tuple[str, Accumulate] | None:
    """Return how torch accumulates weight gradients here, text and function, the fastest that is right; `dtype` of inputs and gradients, `total` of sums."""
    if dtype == total:
        return "added to their sum by the matrix product itself (torch.addmm_)", same_type
    for text, way in WAYS.items():
        inputs, gradient = (torch.full((32, n), one, device=device, dtype=dtype) for n, one in ((16, 1.0), (8, 0.5)))
        found = torch.ones(8, 16, device=device)
        try:
            way(inputs, gradient, found)
        except (RuntimeError, TypeError, NotImplementedError):  # torch before 2.8, or a device without such a product
            continue
        if bool((found == 17).all()):  # 1 + 32 * 0.5: exact in every type
            return text, way
    return None


def install_accumulation(way: Accumulate) -> None:
    """Make megatron-core's linear layers call `way`, in place of Apex's extension."""
    layers.fused_weight_gradient_mlp_cuda = SimpleNamespace(wgrad_gemm_accum_fp32=way, wgrad_gemm_accum_fp16=same_type)
    layers._grad_accum_fusion_available = True  # noqa: SLF001  # set when it is imported


def install_bias() -> None:
    """Make the matrix product of megatron-core's linear layers add the bias (cuBLASLt's epilogue): one pass less over the output."""
    layers.LinearWithGradAccumulationAndAsyncCommunication = BiasInProduct


class BiasInProduct(Linear):  # type: ignore[misc]
    """megatron-core's linear layer with another forward pass for layers with a bias."""

    @staticmethod
    @custom_fwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def forward(  # noqa: PLR0913, PLR0917  # megatron-core's arguments
        ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, accumulate: bool,
        allreduce_dgrad: bool, sequence_parallel: bool, grad_output_buffer: Any, wgrad_deferral_limit: Any, tp_group: Any,
    ) -> torch.Tensor:  # fmt: skip
        """Return inputs [s, b, k] times weight [m, k] transposed, plus bias [m]; with sequence parallelism inputs are gathered."""
        if bias is None:
            rest = (accumulate, allreduce_dgrad, sequence_parallel, grad_output_buffer, wgrad_deferral_limit, tp_group)
            return Linear.forward(ctx, inputs, weight, bias, *rest)  # type: ignore[no-any-return]
        ctx.save_for_backward(inputs, weight)
        ctx.main_grad = getattr(weight, "main_grad", None) if accumulate else None
        ctx.use_bias, ctx.gradient_accumulation_fusion, ctx.allreduce_dgrad = True, accumulate, allreduce_dgrad
        ctx.sequence_parallel, ctx.tp_group = sequence_parallel, tp_group
        ctx.grad_output_buffer, ctx.wgrad_deferral_limit = grad_output_buffer, wgrad_deferral_limit
        if sequence_parallel:  # into the buffer that all layers share
            shape = [inputs.shape[0] * tp_group.size(), *inputs.shape[1:]]
            whole = layers.get_global_memory_buffer().get_tensor(shape, inputs.dtype, "mpu")
            layers.dist_all_gather_func(whole, inputs, group=tp_group)
            inputs = whole
        product = torch.addmm(bias, inputs.flatten(0, -2), weight.t())
        return product.view(*inputs.shape[:-1], -1)


def install_gelu(*, compiled: bool) -> None:
    """Make megatron-core's fused bias and GELU use `bias_gelu`, `compiled` by torch or not."""
    for function in (bias_gelu, bias_gelu_back):
        setattr(fused_bias_gelu, function.__name__, torch.compile(function) if compiled else function)


def bias_gelu(bias: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the tanh form of GELU (Hendrycks and Gimpel 2016) of x + bias, as z * sigmoid(2 u): tanh(u) = 2 sigmoid(2 u) - 1.

    The same numbers as megatron-core's; an exponential is cheaper on a GPU than a hyperbolic tangent, which bound the kernel there.
    """
    z = x + bias
    return z * torch.sigmoid(z * (SLOPE + CUBIC * z * z))


def bias_gelu_back(upper: torch.Tensor, bias: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of x, which is that of the bias before it is summed."""
    z = x + bias
    share = torch.sigmoid(z * (SLOPE + CUBIC * z * z))
    return upper * (share + z * share * (1 - share) * (SLOPE + 3 * CUBIC * z * z))


SLOPE = 2 * math.sqrt(2 / math.pi)
CUBIC = 0.044715 * SLOPE


def install_loss(*, compiled: bool) -> None:
    """Make megatron-core's models use `vocab_parallel_loss`, `compiled` by torch or not."""
    for name, function in (("sums", sums), ("gradient", gradient)):
        setattr(_VocabParallelLoss, name, staticmethod(torch.compile(function) if compiled else function))
    language_module.fused_vocab_parallel_cross_entropy = vocab_parallel_loss


def vocab_parallel_loss(logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return -log softmax(logits)[target] per token, float32 [s, b], without a second copy of the logits.

    megatron-core's keeps the softmax in float32 (4 bytes per token and vocabulary entry besides the 2 of the logits); here the backward
    pass computes the gradient from the logits and overwrites them.
    `logits` are this rank's columns [s, b, v / tp]. `target` [s, b] are indices into the whole vocabulary; `group` are the
    tensor-parallel ranks.
    """
    if logits.device.type == "cpu" and group.size() == 1 and logits.dtype == torch.float32:
        return loss_in_place(logits, target)  # a third faster there than torch's cross entropy
    return shared_loss(logits, target, group)


def shared_loss(logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Do the same on any device and any number of ranks."""
    return _VocabParallelLoss.apply(logits, target, group)  # type: ignore[no-any-return,no-untyped-call]


def sums(logits: torch.Tensor, local: torch.Tensor, greatest: torch.Tensor) -> torch.Tensor:
    """Return sum(exp(logits - greatest)) and the target's logit, 0 where it is on another rank: [2, s, b] in float32."""
    width = logits.shape[-1]
    total = (logits - greatest.unsqueeze(-1)).exp_().sum(-1)
    ours = (local >= 0) & (local < width)
    picked = logits.gather(-1, local.clamp(0, width - 1).unsqueeze(-1)).squeeze(-1).float()
    return torch.stack((total, torch.where(ours, picked, torch.zeros_like(picked))))


def gradient(logits: torch.Tensor, local: torch.Tensor, log_total: torch.Tensor, upper: torch.Tensor) -> None:
    """Overwrite `logits` with (softmax - one-hot(target)) * upper; `log_total` [s, b] is the logarithm of the softmax's sum."""
    columns = torch.arange(logits.shape[-1], device=logits.device)
    softmax = (logits.float() - log_total.unsqueeze(-1)).exp()
    logits.copy_((softmax - (columns == local.unsqueeze(-1)).float()) * upper.unsqueeze(-1))


def gradient_in_place(logits: torch.Tensor, local: torch.Tensor, log_total: torch.Tensor, upper: torch.Tensor) -> None:
    """Do the same for float32 without compilation: four passes over the logits and no other tensor of their size."""
    width = logits.shape[-1]
    ours = ((local >= 0) & (local < width)).float().unsqueeze(-1)
    logits.sub_(log_total.unsqueeze(-1)).exp_()
    logits.scatter_add_(-1, local.clamp(0, width - 1).unsqueeze(-1), -ours)
    logits.mul_(upper.unsqueeze(-1))


class _VocabParallelLoss(torch.autograd.Function):
    """Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867: the softmax from its maximum and its sum only."""

    sums = staticmethod(sums)
    gradient = staticmethod(gradient)

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        local = target - group.rank() * logits.shape[-1]
        greatest = logits.amax(-1).float()
        if group.size() > 1:
            dist.all_reduce(greatest, op=dist.ReduceOp.MAX, group=group)
        both = _VocabParallelLoss.sums(logits, local, greatest)
        if group.size() > 1:
            dist.all_reduce(both, group=group)
        log_total = both[0].log() + greatest
        ctx.save_for_backward(logits, local, log_total)
        return log_total - both[1]

    @staticmethod
    def backward(ctx: Any, upper: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, local, log_total = ctx.saved_tensors
        plain = _VocabParallelLoss.gradient is gradient and logits.dtype == torch.float32
        (gradient_in_place if plain else _VocabParallelLoss.gradient)(logits, local, log_total, upper)
        return logits, None, None


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
