"""What one rank computes and sends in one iteration, by formulas: an independent count beside that of a rehearsal.

Bytes are those of the whole message, as `nlp_bench.rehearse.report.Collective` counts them. Groups of one rank have none.
Sources: megatron-core, tensor_parallel/layers.py and mappings.py, pipeline_parallel/schedules.py, optimizer/, distributed/; this
package, train/attention.py, train/kernels, train/trainer.py.
"""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.work import (
    SINGLE,
    Stage,
    element_bytes,
    gradient_buffers,
    head_products,
    is_float16,
    keeps_scores,
    layer_core,
    layer_products,
    recomputed_layers,
    recomputes,
    shard_ranks,
    shares_optimizer,
    table_parameters,
    tokens,
    visible_share,
)


def operations(c: Configurations, stage: Stage) -> Numbers:
    """Return the FLOPs of products with weights and of attention that a rank of this stage executes in one iteration.

    The gradients of a product take two products. Of attention the backward pass makes the scores again: five products in place
    of two (Dao et al. 2022, https://arxiv.org/abs/2205.14135, algorithm 4), four where no fused kernel applies. Selective recompute
    of attention adds nothing: the fused kernel keeps no scores whatever is asked for. The whole rectangle of scores is counted, as a
    rehearsal counts it, although a causal kernel skips about half.
    """
    again, inner = _again(c, stage)
    layers, micro = stage.layers, c.spread.num_microbatches
    block = (
        2 * tokens(c) * c.network.hidden_size * c.network.ffn_hidden_size * (2.0 + c.network.gated) / c.spread.tensor
    )
    products = (3 * layers + again) * layer_products(c) + inner * block + stage.last * 3 * head_products(c)
    times = layers * np.where(keeps_scores(c), 3.0, 3.5) + again
    return np.asarray(micro * products + micro * times * layer_core(c) * visible_share(c))


def _again(c: Configurations, stage: Stage) -> tuple[Numbers, Numbers]:
    """Return how many of a rank's layers run forward again, and of how many the feed-forward block alone does."""
    virtual = c.spread.virtual
    whole = np.asarray(virtual * recomputed_layers(c, stage.layers / virtual))
    return whole, np.asarray(stage.layers * recomputes(c, "mlp"))


Traffic = dict[tuple[str, str], tuple[Numbers, Numbers]]
"""By kind and group, in the words of `nlp_bench.rehearse.report.Collective`: bytes of all messages together, and how many; shape [N]."""


def traffic(c: Configurations, stage: Stage) -> Traffic:
    """Return what a rank of this stage sends and receives."""
    found: Traffic = {}
    for part in (_layers, _ends, _context, _pipeline, _gradients, _small):
        for kind, group, size, calls in part(c, stage):
            number = np.where(_ranks(c, group) > 1, calls, 0.0)
            num_bytes, num_calls = found.get((kind, group), (np.zeros(()), np.zeros(())))
            found[kind, group] = num_bytes + size * number, num_calls + number
    return found


Part = tuple[str, str, Numbers, Numbers]  # kind, group, bytes of one call, calls


def stream_bytes(c: Configurations) -> Numbers:
    """Bytes of the residual stream of one micro-batch, all tensor-parallel ranks' shares together."""
    return tokens(c) * c.network.hidden_size * element_bytes(c)


def _layers(c: Configurations, stage: Stage) -> list[Part]:
    """Two products by columns and two by rows in every layer, each forward and backward, and forward again where recomputed.

    Under sequence parallelism an all-reduce becomes an all-gather or a reduce-scatter, and the backward pass gathers the input
    of a product by columns once more: only its share was kept.
    """
    stream, split = stream_bytes(c), _split(c)
    whole, inner = _again(c, stage)
    again, layers, micro = 2 * whole + inner, stage.layers, c.spread.num_microbatches
    return [
        ("all_reduce", "tensor", stream, micro * np.where(split, 0, 4 * layers + again)),
        ("all_gather", "tensor", stream, micro * np.where(split, 6 * layers + again, 0)),
        ("reduce_scatter", "tensor", stream, micro * np.where(split, 4 * layers + again, 0)),
    ]


def _ends(c: Configurations, stage: Stage) -> list[Part]:
    """Return those of the embedding, the output layer and the loss (its maximum, then its sum beside the target's logit, in float32)."""
    stream, split, micro = stream_bytes(c), _split(c), c.spread.num_microbatches
    learned = c.network.num_learned_positions > 0
    first, last = stage.first * micro, stage.last * micro
    return [
        ("all_reduce", "tensor", stream, first * (~split | learned) + last * ~split),
        ("reduce_scatter", "tensor", stream, first * (split & ~learned) + last * split),
        ("all_gather", "tensor", stream, first * split + 2 * last * split),
        ("all_reduce", "tensor", 1.5 * SINGLE * tokens(c), 2 * last),
    ]


def _context(c: Configurations, stage: Stage) -> list[Part]:
    """Keys and values of the whole sequence in every layer (train/attention.py)."""
    both = 2 * c.spread.context * tokens(c) * c.network.key_value_width / c.spread.tensor * element_bytes(c)
    layers, micro, (again, _) = stage.layers, c.spread.num_microbatches, _again(c, stage)
    return [
        ("all_gather", "context", both, micro * (layers + again)),
        ("reduce_scatter", "context", both, micro * layers),
    ]


def _pipeline(c: Configurations, stage: Stage) -> list[Part]:
    """Every virtual stage but the model's first receives a stream and sends its gradient; likewise at its other end.

    Between two interleaved ranks one direction uses the group of all ranks: two neighbours would else share a communicator
    (pipeline_parallel/p2p_communication.py, `_p2p_ops`).
    """
    share = stream_bytes(c) / np.where(_split(c), c.spread.tensor, 1)
    inner = c.spread.num_microbatches * (2 * c.spread.virtual - stage.first - stage.last)
    two = (c.spread.pipeline == 2) & (c.spread.virtual > 1)
    aside = {"send": two & stage.last, "recv": two & stage.first}
    own = [(kind, "pipeline", share, inner * ~other) for kind, other in aside.items()]
    return [*own, *((kind, "world", share, inner * other) for kind, other in aside.items())]


def _gradients(c: Configurations, stage: Stage) -> list[Part]:
    """One call per buffer of a virtual stage and bucket of a tied embedding, of which there are two copies."""
    (plain, special, ends), shared = gradient_buffers(c, stage), shares_optimizer(c)
    tied = (stage.first | stage.last) & ~c.network.untied_embeddings
    calls = c.spread.virtual + ends * (shared & ~c.network.untied_embeddings & (c.spread.pipeline > 1))
    numbers = ((c.spread.virtual - ends) * plain + ends * special) / calls
    return [
        ("all_reduce", "data", SINGLE * numbers, calls * ~shared),
        ("reduce_scatter", "data", SINGLE * numbers, calls * shared),
        ("all_gather", "data", element_bytes(c) * numbers, calls * shared),
        ("all_reduce", "embedding", SINGLE * table_parameters(c), np.where(tied, 1.0, 0.0)),
    ]


def _small(c: Configurations, stage: Stage) -> list[Part]:
    """Gradients that sequence-parallel ranks have only a part of; the norm of all gradients, the overflow flag, the mean loss."""
    flat = c.network.norm_parameters * (2 * stage.layers + stage.last)
    flat = flat + 2 * c.network.hidden_size * c.network.linear_biases * stage.layers
    shared, calls = shares_optimizer(c), 1.0 + is_float16(c)
    one = np.asarray(float(SINGLE))
    return [
        ("all_reduce", "tensor", SINGLE * flat, np.where(_split(c), 1.0, 0.0)),
        ("all_reduce", "model", one, calls * ~shared),
        ("all_reduce", "optimizer", one, calls * shared),
        ("all_reduce", "world", one, np.asarray(1.0)),
    ]


def _split(c: Configurations) -> Flags:
    return np.asarray(c.spread.sequence_parallel & (c.spread.tensor > 1))


def _ranks(c: Configurations, group: str) -> Numbers:
    s = c.spread
    return {
        "tensor": s.tensor,
        "context": s.context,
        "pipeline": s.pipeline,
        "embedding": s.pipeline,
        "data": shard_ranks(c),
        "model": s.tensor * s.pipeline,
        "optimizer": s.num_gpus,
        "world": s.num_gpus,
    }[group]
