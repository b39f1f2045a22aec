"""The buffers that gradients are summed in, and their buckets.

Source: megatron-core, distributed/param_and_grad_buffer.py, `_ParamAndGradBuffer`, and distributed_data_parallel.py. Every virtual
stage has one buffer. Under the distributed optimizer every tensor begins at a multiple of 64 numbers, every bucket ends at a
multiple of 128 and of its ranks, and a tied embedding has a bucket of its own.
"""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.work.buckets import Chunk, cut
from nlp_bench.plan.work.numbers import round_up, shard_ranks, shares_optimizer
from nlp_bench.plan.work.parameters import num_tables, position_parameters, table_parameters
from nlp_bench.plan.work.products import key_width, query_width
from nlp_bench.plan.work.stages import Stage

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
