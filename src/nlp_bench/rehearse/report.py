"""What a rehearsal finds out about one rank."""

from dataclasses import dataclass, field

STATIC = ("weights", "gradients", "optimizer", "buffers")
"""What stays for the whole training."""
SPLIT = (*STATIC, "activations", "temporary")
"""What can live at the peak."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank stands."""

    tensor: int
    """Its place among the tensor-parallel ranks."""
    pipeline: int
    """Its pipeline stage."""
    data: int
    """Its replica."""
    context: int
    """Its part of each sequence."""


@dataclass(frozen=True, kw_only=True)
class Collective:
    """Equal calls of one iteration."""

    kind: str
    """all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, recv, barrier."""
    group: str
    """What the ranks of the group share: tensor, pipeline, data, context, embedding, model, world, … ("data" includes the
    context-parallel ranks where gradients and parameters travel)."""
    group_size: int
    """Ranks of the group."""
    num_bytes: int
    """Bytes of one call's whole message: of all_gather the gathered tensor, of reduce_scatter the tensor before, else the tensor."""
    count: int
    """Calls."""


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """One rank's iteration."""

    rank: int
    """Its number."""
    place: Place
    """Where it stands."""
    parameters: int
    """Parameters that it holds."""
    static_bytes: dict[str, int]
    """What stays for the whole training: weights, gradients, optimizer, buffers."""
    peak_bytes: int
    """Greatest sum of all living tensors in the second iteration (the optimizer's state exists by then), static ones included."""
    peak_split: dict[str, int]
    """What lived at that moment: weights, gradients, optimizer, buffers, activations, temporary; they add up to the peak."""
    activations: dict[str, int]
    """The activations of that moment by the module whose forward pass made them (its class and place, for example
    layers.*.self_attention.core_attention)."""
    flops: dict[str, int]
    """Executed floating-point operations of one iteration by operator (two per multiply-add; only matrix products and attention)."""
    collectives: tuple[Collective, ...]
    """All communication of one iteration."""
    warnings: tuple[str, ...] = field(default=())
    """What torch or megatron-core warned of."""
