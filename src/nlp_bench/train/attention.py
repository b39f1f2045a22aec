"""Core attention through torch's fused kernels, and the normalisation: the two modules that replace Transformer Engine."""

from typing import Any

import torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import scaled_dot_product_attention


class FusedAttention(torch.nn.Module):
    """Causal attention of the local heads by `torch.nn.functional.scaled_dot_product_attention`.

    Torch picks the kernel: flash attention on GPUs for 16-bit types, its flash kernel on CPUs. No score matrix is kept;
    the backward pass recomputes it, which is what selective recompute asks for.
    """

    def __init__(self, config: TransformerConfig, **_: Any) -> None:
        """`config` gives dropout and sequence parallelism; the layer's other arguments do not matter here."""
        super().__init__()
        self.dropout = config.attention_dropout
        self.sequence_parallel = config.sequence_parallel
        self.grouped = config.num_query_groups != config.num_attention_heads

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
    ) -> torch.Tensor:
        """Attend: query [s, b, heads, d], key and value [s, b, groups, d], answer [s, b, heads * d]."""
        if self.dropout and self.training and not self.sequence_parallel:
            with get_cuda_rng_tracker().fork():  # heads differ between tensor-parallel ranks, so their dropout must
                context = self._attend(query, key, value, self.dropout)
        else:
            context = self._attend(query, key, value, self.dropout if self.training else 0.0)
        return context.permute(2, 0, 1, 3).flatten(2)

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout: float
    ) -> torch.Tensor:
        heads_first = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        return scaled_dot_product_attention(*heads_first, dropout_p=dropout, is_causal=True, enable_gqa=self.grouped)


class Norm:
    """Torch's LayerNorm or RMSNorm whose parameters know about sequence parallelism (megatron-core's own refuses it)."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:  # type: ignore[misc]
        """Return the module that `config.normalization` names; its gradients are summed over tensor-parallel ranks."""
        kind = torch.nn.LayerNorm if config.normalization == "LayerNorm" else torch.nn.RMSNorm
        norm: torch.nn.Module = kind(hidden_size, eps, device=torch.cuda.current_device(), dtype=config.params_dtype)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return norm
