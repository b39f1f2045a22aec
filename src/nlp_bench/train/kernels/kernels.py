"""The choice of kernels for one device: what blocks are made of, megatron-core's switches, and the words of the log."""

from dataclasses import dataclass
from typing import Any

from nlp_bench.build.providers import NAMES
from nlp_bench.train.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Modules:
    """What layers are made of; megatron-core's arguments."""

    norm: type  # normalisation of its own
    column: type  # linear layer whose outputs tensor-parallel ranks share
    norm_column: type | None  # the same with the normalisation before it in one module (Transformer Engine)
    row: type  # linear layer whose inputs tensor-parallel ranks share
    attention: type | None  # core self-attention, which rotates by position itself; None: torch's
    gate: type | None = None  # of both halves of a gated block, without bias; None: megatron-core's operators


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The choice for one device."""

    provider: str  # te, apex or torch
    why: str  # what was asked for and why this provider it is
    modules: Modules  # what layers are made of
    words: dict[str, str]  # one line per kind of kernel for the log
    compiled: frozenset[str]  # what torch.compile fuses: of `activation`, `dropout add`, `rotary`, `cross entropy`
    accumulate_in_gemm: bool  # whether weight gradients are added to their sum by the product that makes them
    overlaps_tensor_parallel: bool = False  # whether Transformer Engine overlaps communication with products

    def fusions(self, settings: Settings) -> dict[str, Any]:
        """Return the switches of megatron-core's configuration."""
        fusible = settings.gated or not settings.disable_bias_linear  # GELU without bias has no fused kernel
        found = {
            "bias_activation_fusion": "activation" in self.compiled and fusible,
            "bias_dropout_fusion": "dropout add" in self.compiled,
            "use_te_activation_func": settings.gated and self.modules.gate is not None,  # whoever's it is
            "cross_entropy_loss_fusion": not settings.no_cross_entropy_loss_fusion,
            "cross_entropy_fusion_impl": "native",  # replaced by ours: kernels/native.py
            "gradient_accumulation_fusion": self.accumulate_in_gemm,
            "masked_softmax_fusion": False,  # there is no score matrix
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
        return {"kernels": f"{NAMES[self.provider]} ({self.why})", **self.words}
