"""Attention as torch's kernels for GPUs have it: what they keep for the backward pass, and their workspace.

Which kernel is as in torch's sdp_utils.cpp (CUDA): flash attention for 16-bit types, heads of at most 256 and no mask; else the
memory-efficient one, which knows no shared keys (grouped queries), else separate products. cuDNN's, which is asked first on
some GPUs, keeps what flash attention keeps: the output and float32 logarithms of the sums, [b, a, s].
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from nlp_bench.rehearse.tracker import Tracker

LOWER_RIGHT = "lower right"
"""Stands for a causal mask that is aligned to the last query and the last key."""
WIDEST = 256
ROWS, WIDTH = 128, 32
"""To multiples of these flash attention 2 rounds queries and the width of heads in its workspace."""


def of(tracker: Tracker) -> Callable[..., torch.Tensor]:
    """Return what stands for `scaled_dot_product_attention`."""
    tracker.workspaces[operator("flash_attention_backward")] = flash_workspace
    flash, efficient = operator("flash_attention"), operator("efficient_attention")

    def attend(  # noqa: PLR0913  # torch's arguments
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, enable_gqa: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        if attn_mask is LOWER_RIGHT:
            attn_mask, is_causal = None, True
        if attn_mask is None and q.dtype != torch.float32 and q.shape[-1] <= WIDEST:
            return flash(q, k, v, dropout_p, is_causal)[0]  # type: ignore[no-any-return]
        if not enable_gqa:
            mask = None if attn_mask is None else attn_mask.expand(*q.shape[:3], k.shape[2])
            return efficient(q, k, v, mask, q.requires_grad, dropout_p, is_causal)[0]  # type: ignore[no-any-return]
        with sdpa_kernel(SDPBackend.MATH):
            return scaled_dot_product_attention(
                q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, enable_gqa=enable_gqa
            )

    return attend


def operator(name: str) -> Any:
    """Return the operator that `scaled_dot_product_attention` calls for a kernel."""
    return getattr(torch.ops.aten, f"_scaled_dot_product_{name}").default


def flash_workspace(given: tuple[Any, ...]) -> int:
    """Return the bytes that the backward pass of flash attention 2 takes and gives back; `given` are its operator's arguments.

    A float32 sum of the queries' gradient, a float32 number per query, and with grouped queries the gradients of keys and values
    per head. Source: torch's aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, `mha_bwd`.
    """
    query, key = given[1], given[2]
    samples, heads, rows, width = query.shape
    rows, rounded = -(-rows // ROWS) * ROWS, -(-width // WIDTH) * WIDTH
    sums = 4 * samples * heads * rows * (rounded + 1)
    expanded = 2 * samples * heads * key.shape[2] * width * query.element_size() if key.shape[1] != heads else 0
    return int(sums + expanded)
