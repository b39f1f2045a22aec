"""What the ranks send each other, read where every library's call arrives: the operators c10d::* of torch's dispatcher.

Their names and arguments are those of torch/csrc/distributed/c10d/Ops.cpp. Several tensors that one call carries (torch's
coalesced collectives) count as one collective each: that is how megatron-core reduces its buckets of gradients.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from nlp_bench.rehearse.report import Collective

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
"""Our names of megatron-core's groups (the `group_desc` of parallel_state.py). "optimizer" are the ranks that hold one whole
optimizer: all ranks, unless there are several copies of the distributed optimizer."""

Sizes = Callable[[tuple[Any, ...]], Iterable[int]]
"""From an operator's arguments to the bytes of each message."""


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
"""Of each operator: its kind, which argument is the group, and the bytes of its messages."""


class Collectives:
    """Counts them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._counts: Counter[tuple[str, str, int, int]] = Counter()

    def add(self, name: str, given: tuple[Any, ...]) -> None:
        """Take one call of c10d::`name`."""
        kind, place, sizes = KINDS[name]
        group = dist.ProcessGroup.unbox(given[place])
        words = getattr(group, "group_desc", "") or "default_pg"
        called = GROUPS.get(words, words.removesuffix("_GROUP").replace("_", " ").lower())
        for size in sizes(given):
            self._counts[kind, called, group.size(), size] += 1

    def begin(self) -> None:
        """Forget those so far."""
        self._counts.clear()

    def found(self) -> tuple[Collective, ...]:
        """Return them in order of group, kind and bytes."""
        ordered = sorted(self._counts.items(), key=lambda item: (item[0][1], item[0][0], item[0][3]))
        return tuple(
            Collective(kind=kind, group=group, group_size=ranks, num_bytes=size, count=count)
            for (kind, group, ranks, size), count in ordered
        )
