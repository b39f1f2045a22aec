"""Context parallelism without Transformer Engine: every rank holds a share of each sequence and attends to all of it.

The sequence is cut into 2 * cp chunks; rank i takes chunk i and chunk 2 * cp - 1 - i, an early and a late one, so that all
ranks have the same work under the causal mask (Megatron-LM's `get_batch_on_this_cp_rank` cuts the same way). Before each
attention the ranks gather all keys and values, and the backward pass reduces and scatters their gradients: the all-gather
form of Llama 3 (arXiv 2407.21783, section 3.3.2), which pays because grouped keys and values are few.

Per layer and rank, with s tokens, b samples, g local key/value heads of width d and e bytes per number: the gathered keys and
values stay for the backward pass, 2 s b g d e bytes in place of 2 s b g d e / cp; each of the two collectives moves
(cp - 1) / cp * 2 s b g d e bytes to and from each rank (ring algorithm). All other activations shrink by cp.
"""

import functools
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import scaled_dot_product_attention

from nlp_bench.errors import UsageError
from nlp_bench.train.attention import FusedAttention, rotary_table


def own_part(tensor: torch.Tensor, dim: int = 1) -> torch.Tensor:
    """Return this rank's early and late chunk along `dim`, joined; the tensor itself without context parallelism.

    The length of `dim` must be a multiple of 2 * cp, which `check_parallel` sees to.
    """
    parts = parallel_state.get_context_parallel_world_size()
    if parts == 1:
        return tensor
    early, late = own_chunks(parts, parallel_state.get_context_parallel_rank())
    chunks = tensor.chunk(2 * parts, dim=dim)
    return torch.cat((chunks[early], chunks[late]), dim=dim)


def own_chunks(parts: int, rank: int) -> tuple[int, int]:
    """Return the numbers of the two chunks, of 2 * `parts`, that context-parallel rank `rank` holds."""
    return rank, 2 * parts - 1 - rank


def in_order(gathered: torch.Tensor, parts: int) -> torch.Tensor:
    """Put what `parts` ranks hold, one behind the other along dimension 0, into the order of the sequence."""
    halves = gathered.view(parts, 2, -1, *gathered.shape[1:])
    return torch.cat((halves[:, 0].flatten(0, 1), halves[:, 1].flip(0).flatten(0, 1)))


class ContextAttention(FusedAttention):
    """Causal attention of this rank's queries to the keys and values of the whole sequence."""

    def __init__(self, config: TransformerConfig, **options: Any) -> None:
        """Take what FusedAttention takes."""
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
        length = q.shape[2] // 2
        answers = [
            self._attend_chunk(rows, k[:, :, : (chunk + 1) * length], v[:, :, : (chunk + 1) * length], dropout)
            for rows, chunk in zip(torch.split(q, length, dim=2), own_chunks(self.parts, self.rank), strict=True)
        ]
        return torch.cat(answers, dim=2)

    def _attend_chunk(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> torch.Tensor:
        rows, columns = q.shape[2], k.shape[2]
        if rows == columns:
            return scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=self.grouped)
        mask = _flash_lower_right(rows, columns) if q.is_cuda else _lower_right(rows, columns)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, enable_gqa=self.grouped)

    def angles(self, heads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows of `rotary_table` for the true positions of this rank's tokens."""
        length = heads.shape[0] * self.parts
        return _own_rotary_table(length, self.rotated_width, self.rotary_base, heads.dtype, heads.device)


@functools.lru_cache(maxsize=4)
def _own_rotary_table(
    length: int, width: int, base: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    cosine, sine = rotary_table(length, width, base, dtype, device)
    return own_part(cosine, dim=0), own_part(sine, dim=0)


@functools.lru_cache(maxsize=4)
def _lower_right(rows: int, columns: int) -> torch.Tensor:
    """Return [rows, columns] of booleans: the last row sees all columns, each row above one less."""
    return torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)


def _flash_lower_right(rows: int, columns: int) -> torch.Tensor:
    """Return the same mask in the form that flash attention knows on GPUs."""
    from torch.nn.attention.bias import causal_lower_right  # noqa: PLC0415  # imports torch's compiler

    return causal_lower_right(rows, columns)
