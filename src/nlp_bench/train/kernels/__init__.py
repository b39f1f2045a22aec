"""The kernels of Transformer Engine, Apex or torch, one file per provider; choice.py chooses. Here is what a choice is."""

from typing import Any

from nlp_bench.build.providers import NAMES
from nlp_bench.immutable import immutable
from nlp_bench.train.settings import Settings


@immutable
class Modules:
    """The modules of layers, for megatron-core's specs."""

    norm: type  # separate normalisation
    column: type  # column-parallel linear layer
    norm_column: type | None  # the same fused with the normalisation before it (Transformer Engine)
    row: type  # row-parallel linear layer
    attention: type | None  # core self-attention, which applies rotary positions itself; None: torch's
    gate: type | None = None  # activation of a gated block without bias; None: megatron-core's operators


@immutable
class Kernels:
    """The choice for one device."""

    provider: str  # te, apex or torch
    why: str  # what was asked for, and why it is this provider
    modules: Modules
    lines: dict[str, str]  # kind of kernel to its text in the log
    compiled: frozenset[str]  # compiled by torch.compile: of `activation`, `dropout add`, `rotary`, `cross entropy`
    accumulate_in_gemm: bool  # whether the matrix product adds weight gradients to their sum
    overlaps_tensor_parallel: bool = False  # whether Transformer Engine overlaps communication with products

    def fusions(self, settings: Settings) -> dict[str, Any]:
        """Return the switches of megatron-core's configuration."""
        fusible = settings.gated or not settings.disable_bias_linear  # GELU without bias has no fused kernel
        found = {
            "bias_activation_fusion": "activation" in self.compiled and fusible,
            "bias_dropout_fusion": "dropout add" in self.compiled,
            "use_te_activation_func": settings.gated and self.modules.gate is not None,  # not only TE's
            "cross_entropy_loss_fusion": not settings.no_cross_entropy_loss_fusion,
            "cross_entropy_fusion_impl": "native",  # replaced by kernels/native.py
            "gradient_accumulation_fusion": self.accumulate_in_gemm,
            "masked_softmax_fusion": False,  # attention has no score matrix
            "persist_layer_norm": self.provider == "apex",
            "tp_comm_overlap": self.overlaps_tensor_parallel,
        }
        if settings.fp8_format:
            names = {"fp8": "fp8_format", "fp8_recipe": "fp8_recipe", "fp8_param": "fp8_param_gather"}
            found |= {ours: getattr(settings, name) for ours, name in names.items()}
            if settings.fp8_recipe == "delayed":  # Megatron-LM's recommendation; the other recipes keep no history
                found |= {"fp8_amax_history_len": 1024, "fp8_amax_compute_algo": "max"}
        return found

    def describe(self) -> dict[str, str]:
        """Return one line per kind of kernel for the log."""
        return {"kernels": f"{NAMES[self.provider]} ({self.why})", **self.lines}
