"""Floating-point operations of the operators that do nearly all of them: matrix products and attention.

Two per multiply-add: a product of [m, k] and [k, n] has 2 m k n. Attention of s queries to t keys with b samples, a heads of
width d has two products forward and five backward, one of which computes the scores again (Dao 2023,
https://arxiv.org/abs/2307.08691, section 3.1): 4 b a s t d and 10 b a s t d. The full rectangle s t is counted, although a
kernel for a causal mask skips the blocks above the diagonal and so executes little more than half of it. Element-wise operators,
reductions, the embedding's look-up and the optimizer are not counted. What the backward pass computes again is counted again.
"""

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

Count = Callable[[tuple[Any, ...]], int]
"""From an operator's arguments to its operations."""


def product(left: torch.Tensor, right: torch.Tensor) -> int:
    """Return the operations of [..., m, k] times [..., k, n], the same leading dimensions in both."""
    return 2 * left.numel() * right.shape[-1]


def forward(query: torch.Tensor, key: torch.Tensor) -> int:
    """Return the operations of attention of query [b, a, s, d] to key [b, g, t, d] and a value of the same width."""
    return 4 * query.numel() * key.shape[-2]


def backward(query: torch.Tensor, key: torch.Tensor) -> int:
    """Return the operations of its backward pass."""
    return 10 * query.numel() * key.shape[-2]


def counters() -> dict[Any, tuple[str, Count]]:
    """Return for each operator its name in a report and its count."""
    return {**_products(), **_attentions()}


def _products() -> dict[Any, tuple[str, Count]]:
    found: dict[Any, tuple[str, Count]] = {}
    for name, count in (("mm", _of_first), ("bmm", _of_first), ("addmm", _of_second), ("baddbmm", _of_second)):
        for spelling in (name, f"{name}_"):
            packet = getattr(aten, spelling, None)
            for overload in packet.overloads() if packet else ():
                found[getattr(packet, overload)] = (name, count)
    return found


def _of_first(given: tuple[Any, ...]) -> int:
    return product(given[0], given[1])


def _of_second(given: tuple[Any, ...]) -> int:
    return product(given[1], given[2])


def _attentions() -> dict[Any, tuple[str, Count]]:
    found: dict[Any, tuple[str, Count]] = {}
    for kind in ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu"):
        name, back = f"_scaled_dot_product_{kind}", f"_scaled_dot_product_{kind}_backward"
        if kind == "flash_attention_for_cpu":
            back = "_scaled_dot_product_flash_attention_for_cpu_backward"
        if hasattr(aten, name):
            found[getattr(aten, name).default] = ("attention", lambda given: forward(given[0], given[1]))
        if hasattr(aten, back):
            found[getattr(aten, back).default] = ("attention_backward", lambda given: backward(given[1], given[2]))
    return found
