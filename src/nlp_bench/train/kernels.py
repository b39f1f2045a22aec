"""Which kernels run: the fused ones that this machine has, and plain torch where it has none, said in the log."""

import importlib.util
from dataclasses import dataclass
from typing import Any

import torch

from nlp_bench.train.attention import Norm
from nlp_bench.train.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The choice for one device."""

    norm: type
    """Module of the normalisation."""
    fused_elementwise: bool
    """Whether bias, activation, dropout and addition are compiled into one kernel."""
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
            "element-wise": "torch.compile (megatron-core fusions)" if self.fused_elementwise else "torch, not fused",
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
        fused_elementwise=on_gpu,
        accumulate_in_gemm=importlib.util.find_spec(extension) is not None and (on_gpu or not settings.bf16),
    )
