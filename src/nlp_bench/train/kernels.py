"""Which kernels run: the fused ones that this machine has, and plain torch where it has none, said in the log."""

import importlib.util
from dataclasses import dataclass
from typing import Any

import torch

from nlp_bench.build.compiler import has_c_compiler
from nlp_bench.train.attention import Norm
from nlp_bench.train.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The choice for one device."""

    norm: type
    """Module of the normalisation."""
    fused_elementwise: bool
    """Whether bias, activation, dropout and addition are compiled into one kernel."""
    elementwise: str
    """The same in words, for the log."""
    accumulate_in_gemm: bool
    """Whether the matrix product itself adds weight gradients to their sum (on GPUs Apex's extension)."""

    def fusions(self, settings: Settings) -> dict[str, Any]:
        """Return the switches of megatron-core's configuration."""
        fusible = settings.swiglu or not settings.disable_bias_linear  # GELU without bias has no fused kernel
        return {
            "bias_activation_fusion": self.fused_elementwise and fusible,
            "bias_dropout_fusion": self.fused_elementwise,
            "cross_entropy_loss_fusion": self.fused_elementwise,
            "gradient_accumulation_fusion": self.accumulate_in_gemm,
            "masked_softmax_fusion": False,  # there is no score matrix
            "persist_layer_norm": False,
        }

    def describe(self) -> dict[str, str]:
        """Return one line per kind of kernel for the log."""
        return {
            "attention": "torch scaled_dot_product_attention, causal; torch picks flash where it can",
            "normalisation": f"{self.norm.__module__}.{self.norm.__name__}",
            "element-wise": self.elementwise,
            "weight gradient": "summed in the matrix product" if self.accumulate_in_gemm else "torch",
        }


def choose_kernels(settings: Settings, device: torch.device) -> Kernels:
    """Look at the device and the installed packages.

    On CPUs nothing is compiled: measured with benchmark/perf/trainer_vs_torch.py, the compiled element-wise kernels
    made a step 4 % slower there.
    """
    on_gpu = device.type == "cuda"
    extension = "fused_weight_gradient_mlp_cuda"  # Apex's name; cpu.py has a stand-in for float32
    return Kernels(
        norm=Norm,
        fused_elementwise=on_gpu and has_c_compiler(),
        elementwise=_elementwise(on_gpu),
        accumulate_in_gemm=importlib.util.find_spec(extension) is not None
        and (on_gpu or settings.params_dtype == "float32"),
    )


def _elementwise(on_gpu: bool) -> str:
    if not on_gpu:
        return "torch, not fused (as fast on a CPU)"
    if not has_c_compiler():
        return "torch, NOT FUSED: torch.compile needs a C compiler and there is none; the number will be too low"
    return "torch.compile (megatron-core's fusions)"
