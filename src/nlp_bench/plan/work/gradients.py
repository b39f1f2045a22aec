"""The buffers that gradients are summed in, and how megatron-core cuts them into buckets that are reduced while the backward pass runs."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.work.parameters import num_tables, position_parameters, table_parameters
from nlp_bench.plan.work.stages import Stage, key_width, query_width, round_up, shard_ranks, shares_optimizer


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """The tensors of one virtual stage in the order of the backward pass; arrays of shape [N] or [], 0 for no tensor."""

    layers: Numbers
    """Its layers."""
    front: tuple[Numbers, ...]
    """Numbers of each tensor behind the layers, which come first here."""
    layer: tuple[Numbers, ...]
    """Numbers of each tensor of a layer."""
    back: Numbers
    """Numbers of the learned positions."""
    table: Numbers
    """Numbers of the embedding table."""
    apart: Flags
    """Whether the table has a bucket of its own."""
    alignment: Numbers
    """Of which number every tensor begins at a multiple."""
    multiple: Numbers
    """Of which number every bucket ends at a multiple."""
    bucket: Numbers
    """Numbers with which a bucket is full."""


def cut(chunk: Chunk, chosen: Flags) -> tuple[Numbers, Numbers]:
    """Return the numbers of the buffer, padding included, and its buckets, where `chosen` [N] is true; 0 elsewhere.

    Source: megatron-core, distributed/param_and_grad_buffer.py, `_ParamAndGradBuffer.__init__`. Equal chunks are cut once: of a
    hundred thousand configurations a few hundred differ.
    """
    rows = np.stack([np.broadcast_to(part, chosen.shape) for part in _flat(chunk)])[:, chosen]
    weights = np.random.default_rng(0).random(len(rows))
    _, place, inverse = np.unique(weights @ rows, return_index=True, return_inverse=True)
    numbers, buckets = _fill(rows[:, place], len(chunk.front))
    answers = np.zeros((2, *chosen.shape))
    answers[:, chosen] = np.stack((numbers, buckets))[:, inverse.reshape(-1)]
    return answers[0], answers[1]


def _flat(chunk: Chunk) -> list[npt.NDArray[np.float64]]:
    parts = (chunk.layers, chunk.alignment, chunk.multiple, chunk.bucket, chunk.apart, chunk.table, chunk.back)
    return [np.asarray(part, dtype=np.float64) for part in (*parts, *chunk.front, *chunk.layer)]


class _Filling:
    """The state of the loop over tensors: the end of the last tensor, the begin of its bucket, buckets that are closed."""

    def __init__(self, rows: Numbers) -> None:
        self.alignment, self.multiple, self.bucket = rows[1], rows[2], rows[3]
        self.end, self.begin, self.closed = (np.zeros(rows.shape[1]) for _ in range(3))

    def add(self, size: Numbers, there: Flags) -> None:
        start = round_up(self.end, self.alignment)
        self.end = np.where(there, start + size, self.end)
        self.close(there & (self.end - self.begin >= self.bucket))

    def close(self, now: Flags) -> None:
        self.end = np.where(now, round_up(self.end, self.multiple), self.end)
        self.begin = np.where(now, self.end, self.begin)
        self.closed = self.closed + now

    def is_open(self) -> Flags:
        return np.asarray(self.end > self.begin)


def _fill(rows: Numbers, num_front: int) -> tuple[Numbers, Numbers]:
    layers, apart, table, back = rows[0], rows[4] > 0, rows[5], rows[6]
    front, layer = rows[7 : 7 + num_front], rows[7 + num_front :]
    filling = _Filling(rows)
    for size in front:
        filling.add(size, size > 0)
    for number in range(int(layers.max(initial=0))):
        for size in layer:
            filling.add(size, (size > 0) & (number < layers))
    filling.add(back, back > 0)
    filling.close(apart & filling.is_open())
    filling.add(table, table > 0)
    filling.close(filling.is_open())
    return filling.end, filling.closed


SMALLEST_BUCKET = 40e6
"""Numbers of a bucket, at least; 10^6 for each data-parallel rank where that is more. Source: DistributedDataParallel."""


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """All buffers of one rank; arrays of shape [N]."""

    numbers: Numbers
    """Numbers in all of them, padding included."""
    buckets: Numbers
    """Buckets: one collective call each."""


def gradient_buffers(c: Configurations, stage: Stage, *, bucketed: bool = True) -> Buffers:
    """Return the buffers of a rank of this stage; without `bucketed` as if none was cut where its reduction overlaps.

    Cutting adds some padding, at most a few kilobytes, which only matters where bytes are to be exact.
    """
    tensors = layer_tensors(c)
    aligned, multiple = np.where(shares_optimizer(c), 64.0, 1.0), _bucket_multiple(c)
    layer = sum(round_up(size, aligned) for size in tensors) * stage.layers / c.spread.virtual
    norm = round_up(c.network.hidden_size, aligned) * (1.0 + c.network.norm_biases)
    table, positions = table_parameters(c), round_up(position_parameters(c), aligned)
    plain = round_up(layer, multiple)
    ends = stage.first.astype(float) + stage.last - (stage.first & stage.last)
    apart = shares_optimizer(c) & ~c.network.untied_embeddings & (c.spread.pipeline > 1)
    rest = layer + stage.last * norm + stage.first * positions
    own = num_tables(c, stage) * round_up(table, aligned)
    special = np.where(apart, round_up(table, multiple) + round_up(rest, multiple), round_up(rest + own, multiple))
    numbers = (c.spread.virtual - ends) * plain + ends * special
    buckets = c.spread.virtual + ends * apart
    found = Buffers(numbers=np.asarray(numbers), buckets=np.asarray(buckets))
    return _with_buckets(c, stage, found, special, apart) if bucketed else found


def layer_tensors(c: Configurations) -> list[Numbers]:
    """Sizes of a layer's tensors on one rank in the order of the backward pass; 0 where there is none."""
    n, tensor = c.network, c.spread.tensor
    inner, queries = n.ffn_hidden_size / tensor, query_width(c) / tensor
    joined, branches = queries + 2 * key_width(c) / tensor, 1.0 + n.gated
    hidden, bias, shift = n.hidden_size, n.linear_biases, n.norm_biases
    return [
        *(hidden * bias, inner * hidden, inner * branches * bias, inner * branches * hidden),
        *(hidden * shift, hidden),
        *(joined * bias, joined * hidden, hidden * bias, queries * hidden),
        *(hidden * shift, hidden),
    ]


def _bucket_multiple(c: Configurations) -> Numbers:
    ranks = np.asarray(shard_ranks(c), dtype=np.int64)
    return np.where(shares_optimizer(c), np.lcm(ranks, 128), 1).astype(np.float64)


def _with_buckets(c: Configurations, stage: Stage, whole: Buffers, first: Numbers, apart: Flags) -> Buffers:
    """Cut the first virtual stage of the first rank, alone and only where its reduction overlaps, into buckets."""
    size = np.maximum(SMALLEST_BUCKET, 1e6 * c.spread.data)
    large = stage.first & c.spread.overlap_grad_reduce & (first > size)
    if not np.any(large):
        return whole
    chunk = Chunk(
        layers=stage.layers / c.spread.virtual,
        front=(
            stage.last * c.network.untied_embeddings * table_parameters(c),
            stage.last * c.network.norm_biases * c.network.hidden_size,
            stage.last * c.network.hidden_size,
        ),
        layer=tuple(layer_tensors(c)),
        back=position_parameters(c),
        table=table_parameters(c),
        apart=apart,
        alignment=np.where(shares_optimizer(c), 64.0, 1.0),
        multiple=_bucket_multiple(c),
        bucket=size,
    )
    numbers, buckets = cut(chunk, large)
    more = np.where(large, numbers - first, 0.0)
    return Buffers(numbers=whole.numbers + more, buckets=whole.buckets + np.where(large, buckets - 1 - apart, 0.0))
