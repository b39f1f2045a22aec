"""Floating-point operations and messages of the operators of torch's dispatcher.

Operations: two per multiply-add; a product of [m, k] and [k, n] has 2 m k n. Attention of s queries to t keys with b samples, a heads
of width d has two products forward and five backward, one of which computes the scores again (Dao 2023,
https://arxiv.org/abs/2307.08691, section 3.1): 4 b a s t d and 10 b a s t d. The full rectangle s t is counted, although a
kernel for a causal mask skips the blocks above the diagonal and so executes little more than half of it. Element-wise operators,
reductions, the embedding's look-up and the optimizer are not counted. Recomputation in the backward pass is counted.

Collectives are counted at the operators c10d::* (torch/csrc/distributed/c10d/Ops.cpp), through which the calls of all libraries go.
Each tensor of a coalesced collective, by which megatron-core reduces its buckets of gradients, counts as one collective.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from nlp_bench.rehearse.report import Collective

aten = torch.ops.aten
Count = Callable[[tuple[Any, ...]], int]  # from an operator's arguments to its operations, or to bytes of workspace


def product(left: torch.Tensor, right: torch.Tensor) -> int:
    """Return the operations of [..., m, k] times [..., k, n], whose leading dimensions are the same."""
    return 2 * left.numel() * right.shape[-1]


def operator(name: str) -> Any:
    """Return the operator that `scaled_dot_product_attention` calls for a kernel, None where this torch has none."""
    packet = getattr(aten, f"_scaled_dot_product_{name}", None)
    return packet.default if packet else None


def counters() -> dict[Any, tuple[str, Count]]:
    """Return operator to its name in a report and its count; attention has key [b, g, t, d] and query [b, a, s, d]."""
    found: dict[Any, tuple[str, Count]] = {}
    for name, first in (("mm", 0), ("bmm", 0), ("addmm", 1), ("baddbmm", 1)):
        for packet in filter(None, (getattr(aten, spelling, None) for spelling in (name, f"{name}_"))):
            for overload in packet.overloads():
                found[getattr(packet, overload)] = name, lambda given, k=first: product(given[k], given[k + 1])  # type: ignore[misc]
    for kind in ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu"):
        forward, backward = operator(kind), operator(f"{kind}_backward")
        found[forward] = "attention", lambda given: 4 * given[0].numel() * given[1].shape[-2]
        found[backward] = "attention_backward", lambda given: 10 * given[1].numel() * given[2].shape[-2]
    found.pop(None, None)
    return found


GROUPS = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tensor",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pipeline",
    "CONTEXT_PARALLEL_GROUP": "context",
    "DATA_PARALLEL_GROUP": "data",
    "DATA_PARALLEL_GROUP_WITH_CP": "data",
    "EMBEDDING_GROUP": "embedding",
    "POSITION_EMBEDDING_GROUP": "position embedding",
    "MODEL_PARALLEL_GROUP": "model",
    "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": "optimizer",
    "default_pg": "world",
}
"""The `group_desc` of megatron-core's groups (parallel_state.py) to our names. "optimizer" are the ranks of one instance of the
distributed optimizer: all ranks, unless there are several instances."""

Sizes = Callable[[tuple[Any, ...]], Iterable[int]]  # from an operator's arguments to the bytes of each message


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _each(place: int) -> Sizes:
    return lambda given: [_bytes(tensor) for tensor in given[place]]


def _one(place: int) -> Sizes:
    return lambda given: [_bytes(given[place])]


def _all_of(place: int) -> Sizes:
    return lambda given: [sum(_bytes(tensor) for tensor in tensors) for tensors in given[place]]


KINDS: dict[str, tuple[str, int, Sizes]] = {
    "allreduce_": ("all_reduce", 1, _each(0)),
    "allreduce_coalesced_": ("all_reduce", 1, _each(0)),
    "broadcast_": ("broadcast", 1, _each(0)),
    "allgather_": ("all_gather", 2, _all_of(0)),
    "_allgather_base_": ("all_gather", 2, _one(0)),
    "allgather_into_tensor_coalesced_": ("all_gather", 2, _each(0)),
    "reduce_scatter_": ("reduce_scatter", 2, _all_of(1)),
    "_reduce_scatter_base_": ("reduce_scatter", 2, _one(1)),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 2, _each(1)),
    "alltoall_": ("all_to_all", 2, lambda given: [sum(map(_bytes, given[1]))]),
    "alltoall_base_": ("all_to_all", 2, _one(1)),
    "send": ("send", 1, _each(0)),
    "recv_": ("recv", 1, _each(0)),
    "barrier": ("barrier", 1, lambda _given: [0]),
}
"""Operator to the kind of collective, the index of its argument with the group, and the bytes of its messages."""


class Collectives:
    """Counts collectives."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int, int]] = Counter()

    def add(self, name: str, given: tuple[Any, ...]) -> None:
        """Count one call of c10d::`name`."""
        kind, place, sizes = KINDS[name]
        group = dist.ProcessGroup.unbox(given[place])
        description = getattr(group, "group_desc", "") or "default_pg"
        called = GROUPS.get(description, description.removesuffix("_GROUP").replace("_", " ").lower())
        for size in sizes(given):
            self._counts[kind, called, group.size(), size] += 1

    def begin(self) -> None:
        """Reset the counts."""
        self._counts.clear()

    def found(self) -> tuple[Collective, ...]:
        """Return the collectives in order of group, kind and bytes."""
        ordered = sorted(self._counts.items(), key=lambda item: (item[0][1], item[0][0], item[0][3]))
        return tuple(
            Collective(kind=kind, group=group, group_size=ranks, num_bytes=size, count=count)
            for (kind, group, ranks, size), count in ordered
        )
