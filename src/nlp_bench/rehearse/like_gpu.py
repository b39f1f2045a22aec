"""What a GPU rank's kernels keep and take, on tensors that only pretend: the choices of train/kernels as on a GPU.

The trainer is told that its device is "cuda" and chooses as it would there; each line below replaces one thing that such a choice
asks of a GPU, a compiler or a kernel for CUDA.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch

from nlp_bench.rehearse import gpu_attention, gpu_products
from nlp_bench.rehearse.compiler import compile_for, one_kernel
from nlp_bench.rehearse.gpu_dropout import dropout
from nlp_bench.rehearse.gpu_norms import Norm
from nlp_bench.rehearse.tracker import Tracker
from nlp_bench.train import attention
from nlp_bench.train.kernels import choice, native

ATTENTION = "flash attention where it applies, else memory-efficient attention"
CHECK = "_device_dtype_check_for_fused"
"""Name of the check that the fused Adam makes."""


def _adams() -> list[Any]:
    """Return the modules of torch's Adam (since torch 2.7 that of AdamW only inherits) that check the device."""
    found = [importlib.import_module(f"torch.optim.{name}") for name in ("adam", "adamw")]
    return [module for module in found if hasattr(module, CHECK)]


def gpu_type(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what stands for `Tensor.type`, whose word for a tensor without data is torch.meta.FloatTensor."""

    def type_of(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        answer = original(tensor, *arguments, **options)
        return answer.replace(".meta.", ".") if isinstance(answer, str) else answer

    return type_of


@contextlib.contextmanager
def like_gpu(tracker: Tracker) -> Iterator[None]:
    """Let this process choose torch's kernels for a GPU, and keep what they keep."""
    compile_for(tracker)
    attend = gpu_attention.of(tracker)
    with contextlib.ExitStack() as stack:
        for place, name, stand_in in (
            (torch.cuda, "_lazy_init", lambda: None),  # "cuda" may be asked for; TrackerOfShapes places the tensor
            (
                torch.Tensor,
                "type",
                gpu_type(torch.Tensor.type),
            ),  # optimizers sort parameters by "torch.cuda.FloatTensor"
            *((module, CHECK, lambda *_: None) for module in _adams()),  # tensors without data are on no device
            (importlib.import_module("torch.nn.utils.clip_grad"), "_device_has_foreach_support", lambda *_: True),
            (torch, "compile", one_kernel),
            (native, "has_c_compiler", lambda: True),  # the machine's, not this one's
            (native, "order_attention", lambda *_: ATTENTION),  # asks the GPU for its generation
            (native, "Norm", Norm),
            (choice, "native_way", gpu_products.way_of(tracker)),  # tries a product on the device
            (native, "vocab_parallel_loss", native.shared_loss),  # the other way is for CPUs
            (attention, "scaled_dot_product_attention", attend),
            (attention, "_lower_right", lambda *_: gpu_attention.LOWER_RIGHT),  # flash attention has it without a mask
            (torch.nn.functional, "dropout", dropout),
        ):
            stack.enter_context(patch.object(place, name, stand_in))
        yield
