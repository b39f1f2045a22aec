"""Core attention through torch, with rotary positions."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import scaled_dot_product_attention


class FusedAttention(torch.nn.Module):
    """Attention of the local heads by `torch.nn.functional.scaled_dot_product_attention`.

    Torch picks the kernel: flash attention on GPUs for 16-bit types, its flash kernel on CPUs. No score matrix is kept;
    the backward pass recomputes it, which is what selective recompute asks for.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        rotated_width: int = 0,
        rotary_base: int = 10000,
        fused_rotary: bool = False,
        attn_mask_type: AttnMaskType = AttnMaskType.causal,
        **_: Any,
    ) -> None:
        """Attention is causal where `attn_mask_type` is, else in both directions.

        `rotated_width` of each head is rotated by position, 0 for none, by one compiled kernel where `fused_rotary`;
        megatron-core's other arguments do not matter.
        """
        super().__init__()
        self.causal = attn_mask_type == AttnMaskType.causal
        self.dropout = config.attention_dropout
        self.sequence_parallel = config.sequence_parallel
        self.grouped = config.num_query_groups != config.num_attention_heads
        self.rotated_width, self.rotary_base, self.fused_rotary = rotated_width, rotary_base, fused_rotary

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None, /, **_: Any
    ) -> torch.Tensor:
        """Attend: query [s, b, heads, d], key and value [t, b, groups, d], answer [s, b, heads * d].

        `mask`, which fits [b, heads, s, t], is True where a query must not look (megatron-core's convention), or a number that
        is added to the scores. With one torch takes a slower kernel than flash, so samples without padding have none.
        """
        if self.rotated_width:
            query, key = self._rotate(query), self._rotate(key)
        if self.dropout and self.training and not self.sequence_parallel:
            with get_cuda_rng_tracker().fork():  # heads differ between tensor-parallel ranks, so their dropout must
                context = self._attend(query, key, value, mask, self.dropout)
        else:
            context = self._attend(query, key, value, mask, self.dropout if self.training else 0.0)
        return context.permute(2, 0, 1, 3).flatten(2)

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout: float
    ) -> torch.Tensor:
        q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))  # [b, heads, s, d]
        causal = self.causal and mask is None  # torch takes one of the two
        bias = None if mask is None else additive(mask, q.dtype, self.causal)
        return scaled_dot_product_attention(
            q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=causal, enable_gqa=self.grouped
        )

    def angles(self, heads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `rotary_table` for the positions of heads [s, b, n, d]; ContextAttention's are not the first s ones."""
        return rotary_table(heads.shape[0], self.rotated_width, self.rotary_base, heads.dtype, heads.device)

    def _rotate(self, heads: torch.Tensor) -> torch.Tensor:
        return rotary(heads, *self.angles(heads), fused=self.fused_rotary)


def additive(mask: torch.Tensor, dtype: torch.dtype, causal: bool) -> torch.Tensor:
    """Return what is added to the scores: 0 or minus infinity for a mask of booleans, and minus infinity above the diagonal."""
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask, -torch.inf)
    if causal:
        length = mask.shape[-1]
        future = torch.ones(length, length, dtype=torch.bool, device=mask.device).triu(1)
        mask = mask.masked_fill(future, -torch.inf)
    return mask.to(dtype)


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


def rotary(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, *, fused: bool = False) -> torch.Tensor:
    """Rotate the pairs (i, i + w/2) of the first w entries of heads [s, b, n, d] by the angles of `rotary_table`.

    w is twice the width of the table. `fused` lets torch.compile make one kernel of it, else there are three each way.
    """
    return _Rotary.apply(heads, cosine, sine, fused)  # type: ignore[no-any-return,no-untyped-call]


class _Rotary(torch.autograd.Function):
    """The backward pass is the rotation back; nothing but the table is kept."""

    @staticmethod
    def forward(ctx: Any, heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, fused: bool) -> torch.Tensor:
        ctx.save_for_backward(cosine, sine)
        ctx.fused = fused
        return _kernel(fused)(heads, cosine, sine, back=False)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _kernel(ctx.fused)(gradient, *ctx.saved_tensors, back=True), None, None, None


@functools.cache
def _kernel(fused: bool) -> Callable[..., torch.Tensor]:
    return torch.compile(rotated) if fused else _rotated_in_place


def rotated(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, *, back: bool) -> torch.Tensor:
    """Return the rotated heads, or with `back` those rotated back; for a compiler, which makes one kernel of it."""
    half = cosine.shape[-1]
    sine = -sine if back else sine
    first, second = heads[..., :half], heads[..., half : 2 * half]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine, heads[..., 2 * half :]), dim=-1)


def _rotated_in_place(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, *, back: bool) -> torch.Tensor:
    half, sign = cosine.shape[-1], -1.0 if back else 1.0
    result = torch.empty(heads.shape, dtype=heads.dtype, device=heads.device)
    first, second = slice(half), slice(half, 2 * half)
    for ours, others, direction in ((first, second, -sign), (second, first, sign)):
        torch.mul(heads[..., ours], cosine, out=result[..., ours])
        result[..., ours].addcmul_(heads[..., others], sine, value=direction)
    if heads.shape[-1] > 2 * half:
        result[..., 2 * half :] = heads[..., 2 * half :]
    return result
