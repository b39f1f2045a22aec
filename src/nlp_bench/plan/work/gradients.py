"""The buffers that gradients are summed in, and how megatron-core cuts them into buckets that are reduced while the backward pass runs.

Source: megatron-core, distributed/param_and_grad_buffer.py, `_ParamAndGradBuffer`, and distributed_data_parallel.py. Every virtual
stage has one buffer. Under the distributed optimizer every tensor begins at a multiple of 64 numbers, every bucket ends at a
multiple of 128 and of its ranks, and a tied embedding has a bucket of its own.
"""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.work.stages import (
    Stage,
    num_tables,
    position_parameters,
    round_up,
    shard_ranks,
    shares_optimizer,
    table_parameters,
)

SMALLEST_BUCKET = 40e6
"""Numbers of a bucket, at least; 10^6 for each data-parallel rank where that is more. Source: DistributedDataParallel."""


def gradient_buffers(c: Configurations, stage: Stage, *, bucketed: bool = True) -> tuple[Numbers, Numbers]:
    """Return the numbers in all buffers of a rank of this stage, padding included, and their buckets (one collective call each).

    Without `bucketed` as if none was cut where its reduction overlaps: cutting adds some padding, at most a few kilobytes, which
    only matters where bytes are to be exact.
    """
    shared = shares_optimizer(c)
    aligned, ranks = np.where(shared, 64.0, 1.0), np.asarray(shard_ranks(c), dtype=np.int64)
    multiple = np.where(shared, np.lcm(ranks, 128), 1).astype(np.float64)
    layer = sum(round_up(size, aligned) for size in _layer_tensors(c)) * stage.layers / c.spread.virtual
    norm = round_up(c.network.hidden_size, aligned) * (1.0 + c.network.norm_biases)
    table, positions = table_parameters(c), round_up(position_parameters(c), aligned)
    ends = stage.first.astype(float) + stage.last - (stage.first & stage.last)
    apart = shared & ~c.network.untied_embeddings & (c.spread.pipeline > 1)
    rest = layer + stage.last * norm + stage.first * positions
    own = num_tables(c, stage) * round_up(table, aligned)
    special = np.where(apart, round_up(table, multiple) + round_up(rest, multiple), round_up(rest + own, multiple))
    numbers = np.asarray((c.spread.virtual - ends) * round_up(layer, multiple) + ends * special)
    buckets = np.asarray(c.spread.virtual + ends * apart)
    # the first virtual stage of the first rank, alone and only where its reduction overlaps, is cut
    size = np.maximum(SMALLEST_BUCKET, 1e6 * c.spread.data)
    large = stage.first & c.spread.overlap_grad_reduce & (special > size)
    if not bucketed or not np.any(large):
        return numbers, buckets
    cut, closed = _cut(c, stage, large, {"alignment": aligned, "multiple": multiple, "bucket": size, "apart": apart})
    more = np.where(large, cut - special, 0.0)
    return numbers + more, buckets + np.where(large, closed - 1 - apart, 0.0)


def _layer_tensors(c: Configurations) -> list[Numbers]:
    """Sizes of a layer's tensors on one rank in the order of the backward pass; 0 where there is none."""
    n, tensor = c.network, c.spread.tensor
    inner, queries = n.ffn_hidden_size / tensor, n.query_width / tensor
    joined, branches = queries + 2 * n.key_value_width / tensor, 1.0 + n.gated
    hidden, bias, shift = n.hidden_size, n.linear_biases, n.norm_biases
    return [
        *(hidden * bias, inner * hidden, inner * branches * bias, inner * branches * hidden),
        *(hidden * shift, hidden),
        *(joined * bias, joined * hidden, hidden * bias, queries * hidden),
        *(hidden * shift, hidden),
    ]


def _cut(c: Configurations, stage: Stage, chosen: Flags, rules: dict[str, Numbers | Flags]) -> tuple[Numbers, Numbers]:
    """Return the numbers of the buffer and its buckets where `chosen` [N] is true; 0 elsewhere.

    Equal chunks are cut once: of a hundred thousand configurations a few hundred differ.
    """
    n = c.network
    front = (
        stage.last * n.untied_embeddings * table_parameters(c),
        stage.last * n.norm_biases * n.hidden_size,
        stage.last * n.hidden_size,
    )
    back = (position_parameters(c), table_parameters(c))
    parts = (*rules.values(), stage.layers / c.spread.virtual, *front, *back, *_layer_tensors(c))
    rows = np.stack([np.broadcast_to(np.asarray(part, dtype=np.float64), chosen.shape) for part in parts])[:, chosen]
    weights = np.random.default_rng(0).random(len(rows))
    _, place, inverse = np.unique(weights @ rows, return_index=True, return_inverse=True)
    answers = np.zeros((2, *chosen.shape))
    answers[:, chosen] = np.stack(_filled(rows[:, place]))[:, inverse.reshape(-1)]
    return answers[0], answers[1]


def _filled(rows: Numbers) -> tuple[Numbers, Numbers]:
    """Follow the loop over the tensors of distinct chunks; return where the last one ends, and the buckets that were closed."""
    alignment, multiple, bucket, apart, layers = rows[:5]
    front, (positions, table), layer = rows[5:8], rows[8:10], rows[10:]
    end, begin, closed = (np.zeros(rows.shape[1]) for _ in range(3))

    def close(now: Flags) -> None:
        nonlocal end, begin, closed
        end = np.where(now, round_up(end, multiple), end)
        begin = np.where(now, end, begin)
        closed = closed + now

    def add(size: Numbers, there: Flags) -> None:
        nonlocal end
        end = np.where(there, round_up(end, alignment) + size, end)
        close(there & (end - begin >= bucket))

    for size in front:
        add(size, size > 0)
    for number in range(int(layers.max(initial=0))):
        for size in layer:
            add(size, (size > 0) & (number < layers))
    add(positions, positions > 0)
    close((apart > 0) & (end > begin))
    add(table, table > 0)
    close(end > begin)
    return end, closed
