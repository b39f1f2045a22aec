"""The memory of a GPU rank's kernels, on tensors without data: train/kernels chooses as on a GPU.

The trainer's device is "cuda"; each line of `like_gpu` replaces one call to a GPU, a compiler or a CUDA kernel on which a choice depends.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from nlp_bench.plan.memory.trainer import FLASH_ROWS, FLASH_WIDTH
from nlp_bench.plan.work import WIDEST_HEAD
from nlp_bench.rehearse.operators import operator, product
from nlp_bench.rehearse.tracker import Tracker, compile_for, one_kernel, substituted
from nlp_bench.train import attention
from nlp_bench.train.kernels import choice, native

ATTENTION = "flash attention where it applies, else memory-efficient attention"
CHECK = "_device_dtype_check_for_fused"  # of torch's fused Adam; since torch 2.7 AdamW only inherits it
LOWER_RIGHT = "lower right"  # in place of a causal mask that is aligned to the last query and the last key


@contextlib.contextmanager
def like_gpu(tracker: Tracker) -> Iterator[None]:
    """Make this process choose torch's kernels for a GPU, and save the tensors that they save."""
    compile_for(tracker)
    type_name = torch.Tensor.type

    def type_of(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        answer = type_name(tensor, *arguments, **options)
        return answer.replace(".meta.", ".") if isinstance(answer, str) else answer

    adams = [importlib.import_module(f"torch.optim.{name}") for name in ("adam", "adamw")]
    with substituted(
        (torch.cuda, "_lazy_init", lambda: None),  # device="cuda" is allowed; TrackerOfShapes places the tensor
        # optimizers sort parameters by "torch.cuda.FloatTensor", not torch.meta.FloatTensor
        (torch.Tensor, "type", type_of),
        *((module, CHECK, lambda *_: None) for module in adams if hasattr(module, CHECK)),  # no data, no device
        (importlib.import_module("torch.nn.utils.clip_grad"), "_device_has_foreach_support", lambda *_: True),
        (torch, "compile", one_kernel),
        (native, "compiler_gap", lambda: None),  # of the rehearsed machine, not of this one
        (native, "order_attention", lambda *_: ATTENTION),  # depends on the GPU's generation
        (native, "Norm", Norm),
        (choice, "native_way", _way_of(tracker)),  # runs a product on the device
        (native, "vocab_parallel_loss", native.shared_loss),  # the other implementation is for CPUs
        (attention, "scaled_dot_product_attention", _attention_of(tracker)),
        (attention, "_lower_right", lambda *_, **__: LOWER_RIGHT),  # flash attention needs no mask for it
        (torch.nn.functional, "dropout", _dropout),
    ):
        yield


def _way_of(tracker: Tracker) -> Callable[[torch.device, torch.dtype, torch.dtype], tuple[str, native.Accumulate]]:
    """Return a replacement of `native_way`: the product adds a weight's gradient to its float32 sum itself, as cuBLAS does."""

    def accumulate(inputs: torch.Tensor, gradient: torch.Tensor, total: torch.Tensor) -> Any:
        tracker.flops["addmm"] += product(gradient.t(), inputs)
        return total

    def way(_device: torch.device, dtype: torch.dtype, total: torch.dtype) -> tuple[str, native.Accumulate]:
        return next(iter(native.WAYS)), native.same_type if dtype == total else accumulate

    return way


def _dropout(tensor: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """Save a mask of one byte per element; a CPU saves one of the tensor's type (torch's Dropout.cpp, `is_fused_kernel_acceptable`)."""
    del inplace
    return torch.native_dropout(tensor, p, training)[0] if training and p else tensor


def _attention_of(tracker: Tracker) -> Callable[..., torch.Tensor]:
    """Return a replacement of `scaled_dot_product_attention`: the kernel that a GPU would run, with the tensors that it saves.

    It is chosen as in torch's sdp_utils.cpp (CUDA): flash attention for 16-bit types, heads of at most 256 and no mask; else the
    memory-efficient one, which does not support grouped queries, else separate products. cuDNN's, which is preferred on some GPUs,
    saves the same as flash attention: the output and float32 logarithms of the sums, [b, a, s].
    """
    tracker.workspaces[operator("flash_attention_backward")] = flash_workspace
    flash, efficient = operator("flash_attention"), operator("efficient_attention")

    def attend(  # noqa: PLR0913  # torch's arguments
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, enable_gqa: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        if attn_mask is LOWER_RIGHT:
            attn_mask, is_causal = None, True
        if attn_mask is None and q.dtype != torch.float32 and q.shape[-1] <= WIDEST_HEAD:
            return flash(q, k, v, dropout_p, is_causal)[0]  # type: ignore[no-any-return]
        if not enable_gqa:
            mask = None if attn_mask is None else attn_mask.expand(*q.shape[:3], k.shape[2])
            return efficient(q, k, v, mask, q.requires_grad, dropout_p, is_causal)[0]  # type: ignore[no-any-return]
        with sdpa_kernel(SDPBackend.MATH):
            return scaled_dot_product_attention(
                q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, enable_gqa=enable_gqa
            )

    return attend


def flash_workspace(given: tuple[Any, ...]) -> int:
    """Return the workspace of the backward pass of flash attention 2 in bytes; `given` are its operator's arguments.

    A float32 sum of the queries' gradient, a float32 number per query, and with grouped queries the gradients of keys and values
    per head. Source: torch's aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, `mha_bwd`.
    """
    query, key = given[1], given[2]
    samples, heads, rows, width = query.shape
    rows, rounded = -(-rows // FLASH_ROWS) * FLASH_ROWS, -(-width // FLASH_WIDTH) * FLASH_WIDTH
    sums = 4 * samples * heads * rows * (rounded + 1)
    expanded = 2 * samples * heads * key.shape[2] * width * query.element_size() if key.shape[1] != heads else 0
    return int(sums + expanded)


class Norm:
    """LayerNorm and RMSNorm as on a GPU, in place of train/kernels/native.py's: float32 statistics for any type of input.

    On a CPU torch's LayerNorm has statistics of the input's type, and its RMSNorm is about ten operators. Source: torch's
    aten/src/ATen/native/cuda/layer_norm_kernel.cu (`acc_type`).
    """

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:  # type: ignore[misc]
        """Return the module for `config.normalization`."""
        kind = _LayerNorm if config.normalization == "LayerNorm" else _RMSNorm
        norm = kind(hidden_size, eps, dtype=config.params_dtype)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return norm


class _LayerNorm(torch.nn.LayerNorm):
    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return _Kernel.apply(tensor, self.weight, getattr(self, "bias", None))  # type: ignore[no-any-return,no-untyped-call]


class _RMSNorm(torch.nn.RMSNorm):
    forward = _LayerNorm.forward  # type: ignore[assignment]


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
