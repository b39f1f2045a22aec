"""Core attention through torch, with rotary positions; under context parallelism each rank attends to the whole sequence.

Context parallelism without Transformer Engine: the sequence is split into 2 * cp chunks; rank i has chunk i and chunk
2 * cp - 1 - i, an early and a late one, so that all ranks have the same work under the causal mask (as Megatron-LM's
`get_batch_on_this_cp_rank`). Before each attention the ranks gather all keys and values, and the backward pass reduce-scatters
their gradients: the all-gather form of Llama 3 (arXiv 2407.21783, section 3.3.2), which is cheap because grouped keys and values
are small.

Per layer and rank, with s tokens, b samples, g local key/value heads of width d and e bytes per number: the gathered keys and
values are kept for the backward pass, 2 s b g d e bytes instead of 2 s b g d e / cp; each of the two collectives moves
(cp - 1) / cp * 2 s b g d e bytes to and from each rank (ring algorithm). All other activations shrink by cp.
"""

import contextlib
import functools
import re
from collections.abc import Callable
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, get_cuda_rng_tracker
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import scaled_dot_product_attention

from nlp_bench.errors import UsageError
from nlp_bench.train.watching.startup import RAN


class FusedAttention(torch.nn.Module):
    """Attention of the local heads by `torch.nn.functional.scaled_dot_product_attention`.

    Torch picks the kernel: flash attention on GPUs for 16-bit types, its flash kernel on CPUs. No score matrix is kept; the backward
    pass recomputes it, as selective recompute would.
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
        """`rotated_width` of each head is rotated by position, with `fused_rotary` by one compiled kernel; megatron-core's other arguments are ignored."""
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

        `mask`, broadcast to [b, heads, s, t], is True where a query must not attend (megatron-core's convention), or a number that
        is added to the scores. With a mask torch uses a slower kernel than flash, so samples without padding have none.
        """
        if self.rotated_width:
            query, key = (rotary(heads, *self.angles(heads), fused=self.fused_rotary) for heads in (query, key))
        dropout = self.dropout if self.training else 0.0
        # heads differ between tensor-parallel ranks, so their dropout must
        own = dropout and not self.sequence_parallel
        with get_cuda_rng_tracker().fork() if own else contextlib.nullcontext():
            context = self._attend(query, key, value, mask, dropout)
        if context.grad_fn is not None:
            _note_kernel(context.grad_fn)
        return context.permute(2, 0, 1, 3).flatten(2)

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout: float
    ) -> torch.Tensor:
        q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))  # [b, heads, s, d]
        causal = self.causal and mask is None  # torch accepts only one of the two
        bias = None if mask is None else additive(mask, q.dtype, self.causal)
        return scaled_dot_product_attention(
            q, k, v, attn_mask=bias, dropout_p=dropout, is_causal=causal, enable_gqa=self.grouped
        )

    def angles(self, heads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `rotary_table` for the positions of heads [s, b, n, d], overridden by ContextAttention."""
        return rotary_table(heads.shape[0], self.rotated_width, self.rotary_base, heads.dtype, heads.device)


NAMES = {"Efficient": "memory-efficient", "Cudnn": "cuDNN", "Flash": "flash"}


def _note_kernel(node: Any) -> None:
    """Record in RAN the attention kernel in the graph, before slices and concatenations; without one it is separate products."""
    name, place = node.name(), node
    while name not in RAN:
        found = re.match("ScaledDotProduct(?:Fused)?([A-Z][a-z]+)", place.name())
        place = place.next_functions[0][0] if re.match("Slice|Cat", place.name()) else None
        if found or place is None:
            RAN[name] = NAMES.get(found[1], found[1]) if found else "separate products (math)"


def additive(mask: torch.Tensor, dtype: torch.dtype, causal: bool) -> torch.Tensor:
    """Return the mask as a term of the scores: 0 or minus infinity for booleans, and with `causal` minus infinity above the diagonal."""
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

    Su et al. 2021, https://arxiv.org/abs/2104.09864, section 3.2.2; cached, not made once per layer as in megatron-core.
    """
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)[:, None, None, :]
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def rotary(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, *, fused: bool = False) -> torch.Tensor:
    """Rotate the pairs (i, i + w/2) of the first w entries of heads [s, b, n, d], w twice the table's width; `fused`: one compiled kernel in place of three."""
    return _Rotary.apply(heads, cosine, sine, fused)  # type: ignore[no-any-return,no-untyped-call]


class _Rotary(torch.autograd.Function):
    """The backward pass is the inverse rotation; only the table is kept."""

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
    """Return the rotated heads, with `back` by the inverse rotation; to be compiled to one kernel."""
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


def own_part(tensor: torch.Tensor, dim: int = 1) -> torch.Tensor:
    """Return this rank's early and late chunk along `dim`, a multiple of 2 * cp, concatenated; the tensor itself without context parallelism."""
    parts = parallel_state.get_context_parallel_world_size()
    if parts == 1:
        return tensor
    early, late = own_chunks(parts, parallel_state.get_context_parallel_rank())
    chunks = tensor.chunk(2 * parts, dim=dim)
    return torch.cat((chunks[early], chunks[late]), dim=dim)


def own_chunks(parts: int, rank: int) -> tuple[int, int]:
    """Return the indices of the two chunks, of 2 * `parts`, of context-parallel rank `rank`."""
    return rank, 2 * parts - 1 - rank


def in_order(gathered: torch.Tensor, parts: int) -> torch.Tensor:
    """Reorder the chunks of `parts` ranks, concatenated by rank along dimension 0, to the order of the sequence."""
    halves = gathered.view(parts, 2, -1, *gathered.shape[1:])
    return torch.cat((halves[:, 0].flatten(0, 1), halves[:, 1].flip(0).flatten(0, 1)))


class ContextAttention(FusedAttention):
    """Causal attention of this rank's queries to the keys and values of the whole sequence."""

    def __init__(self, config: TransformerConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self.parts = parallel_state.get_context_parallel_world_size()
        self.rank = parallel_state.get_context_parallel_rank()

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout: float
    ) -> torch.Tensor:
        if mask is not None:
            raise UsageError("context_parallel_size: a mask per sample cannot be shared between context-parallel ranks")
        group = parallel_state.get_context_parallel_group()
        both = gather_from_sequence_parallel_region(torch.cat((key, value), dim=-1), group=group)
        key, value = torch.split(in_order(both, self.parts), [key.shape[-1], value.shape[-1]], dim=-1)
        q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))  # [b, heads, s, d]
        length, answers = q.shape[2] // 2, []
        for rows, chunk in zip(torch.split(q, length, dim=2), own_chunks(self.parts, self.rank), strict=True):
            seen = (chunk + 1) * length
            mask = None if seen == length else _lower_right(length, seen, on_gpu=q.is_cuda)
            options: Any = {
                "attn_mask": mask,
                "is_causal": mask is None,
                "enable_gqa": self.grouped,
                "dropout_p": dropout,
            }
            answers.append(scaled_dot_product_attention(rows, k[:, :, :seen], v[:, :, :seen], **options))
        return torch.cat(answers, dim=2)

    def angles(self, heads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows of `rotary_table` for the positions of this rank's tokens in the whole sequence."""
        length = heads.shape[0] * self.parts
        return _own_rotary_table(length, self.rotated_width, self.rotary_base, heads.dtype, heads.device)


@functools.lru_cache(maxsize=4)
def _own_rotary_table(
    length: int, width: int, base: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    cosine, sine = rotary_table(length, width, base, dtype, device)
    return own_part(cosine, dim=0), own_part(sine, dim=0)


@functools.lru_cache(maxsize=4)
def _lower_right(rows: int, columns: int, *, on_gpu: bool) -> Any:
    """Return the causal mask [rows, columns] whose last row attends to all columns: booleans, on a GPU the form that flash attention supports."""
    if not on_gpu:
        return torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
    from torch.nn.attention.bias import causal_lower_right  # noqa: PLC0415  # imports torch's compiler

    return causal_lower_right(rows, columns)
