"""Core attention with rotary positions, and the normalisation: what replaces Transformer Engine's modules."""

import functools
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

    def __init__(
        self, config: TransformerConfig, *, rotated_width: int = 0, rotary_base: int = 10000, **_: Any
    ) -> None:
        """`rotated_width` of each head is rotated by position, 0 for none; megatron-core's other arguments do not matter."""
        super().__init__()
        self.dropout = config.attention_dropout
        self.sequence_parallel = config.sequence_parallel
        self.grouped = config.num_query_groups != config.num_attention_heads
        self.rotated_width, self.rotary_base = rotated_width, rotary_base

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Attend: query [s, b, heads, d], key and value [s, b, groups, d], answer [s, b, heads * d]."""
        if self.rotated_width:
            query, key = self._rotate(query), self._rotate(key)
        if self.dropout and self.training and not self.sequence_parallel:
            with get_cuda_rng_tracker().fork():  # heads differ between tensor-parallel ranks, so their dropout must
                context = self._attend(query, key, value, self.dropout)
        else:
            context = self._attend(query, key, value, self.dropout if self.training else 0.0)
        return context.permute(2, 0, 1, 3).flatten(2)

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout: float) -> torch.Tensor:
        q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))  # [b, heads, s, d]
        return scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=self.grouped)

    def _rotate(self, heads: torch.Tensor) -> torch.Tensor:
        width = self.rotated_width
        cosine, sine = rotary_table(heads.shape[0], width, self.rotary_base, heads.dtype, heads.device)
        if width == heads.shape[-1]:
            return rotary(heads, cosine, sine)
        return torch.cat((rotary(heads[..., :width], cosine, sine), heads[..., width:]), dim=-1)


@functools.lru_cache(maxsize=4)
def rotary_table(
    length: int, width: int, base: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine of position / base^(2i/width), each [length, 1, 1, width / 2] in `dtype`.

    Su et al. 2021, https://arxiv.org/abs/2104.09864, section 3.2.2; made once, not once per layer as in megatron-core.
    """
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)[:, None, None, :]
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def rotary(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (i, i + d/2) of the last dimension of heads [s, b, n, d] by the angles of `rotary_table`."""
    return _Rotary.apply(heads, cosine, sine)  # type: ignore[no-any-return,no-untyped-call]


class _Rotary(torch.autograd.Function):
    """The backward pass is the rotation back: three kernels each way, and nothing but the table is kept."""

    @staticmethod
    def forward(ctx: Any, heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(cosine, sine)
        return _rotated(heads, cosine, sine, 1.0)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        return _rotated(gradient, cosine, sine, -1.0), None, None


def _rotated(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, sign: float) -> torch.Tensor:
    half = cosine.shape[-1]
    result = torch.empty(heads.shape, dtype=heads.dtype, device=heads.device)
    for ours, others, direction in ((slice(half), slice(half, None), -sign), (slice(half, None), slice(half), sign)):
        torch.mul(heads[..., ours], cosine, out=result[..., ours])
        result[..., ours].addcmul_(heads[..., others], sine, value=direction)
    return result


class Norm:
    """Torch's LayerNorm or RMSNorm whose parameters know about sequence parallelism (megatron-core's own refuses it)."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:  # type: ignore[misc]
        """Return the module that `config.normalization` names; its gradients are summed over tensor-parallel ranks."""
        kind = torch.nn.LayerNorm if config.normalization == "LayerNorm" else torch.nn.RMSNorm
        norm: torch.nn.Module = kind(hidden_size, eps, device=torch.cuda.current_device(), dtype=config.params_dtype)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return norm
