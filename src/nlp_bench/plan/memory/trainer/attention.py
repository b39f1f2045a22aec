"""Memory of self-attention in this package's trainer, from the product behind the normalisation to the one before the projection.

Sources: train/attention.py, train/context.py; megatron-core, transformer/attention.py; for what the kernels keep,
nlp_bench.rehearse.gpu_attention.
"""

import numpy as np

from nlp_bench.plan.configurations import Numbers
from nlp_bench.plan.memory.trainer.sizes import Sizes
from nlp_bench.plan.memory.trainer.tape import Tape


def attention_kept(z: Sizes) -> Numbers:
    """Bytes that attention keeps for its backward pass: what goes in, what comes out, and the kernel's logarithms."""
    joined = z.queries + 2 * z.keys
    rotated = np.where(z.rotary, z.queries + z.keys, z.copied)
    alone = joined + rotated + z.queries
    # of context-parallel ranks: the queries, all ranks' keys and values, both chunks' answers and their copy in one
    own = np.where(z.rotary, z.queries, np.where(z.copied > 0, z.copied, joined))
    shared = own + 2 * z.keys * z.parts + 2 * z.queries
    kept = np.where(z.parts > 1, shared, alone) + z.logarithms
    return np.where(z.scores > 0, 2 * z.queries + 2 * _expanded(z) + z.scores_kept * z.scores, kept)


def _expanded(z: Sizes) -> Numbers:
    """Bytes of the keys for every query head, which only separate products need; of the values as many."""
    return np.where(z.parts > 1, z.queries * (2 * z.parts + 1) / 2, z.queries)


def _late(z: Sizes) -> Numbers:
    """Share of the first context-parallel rank's late chunk in the scores of both its chunks."""
    return np.where(z.parts > 1, 2 * z.parts / (2 * z.parts + 1), 1.0)


def attention_forward(t: Tape, z: Sizes) -> None:
    """Allocate what the forward pass does, and leave what the backward pass needs."""
    joined, before, shared = z.queries + 2 * z.keys, t.level, z.parts > 1
    everybody = np.where(shared, 2 * z.keys * z.parts, 0.0)
    t.take(joined)
    t.briefly(joined * z.added)
    t.take(z.copied)
    t.take(np.where(z.rotary, z.queries + z.keys, 0.0))
    t.briefly(np.where(shared, 2 * z.keys, 0.0), everybody)
    t.take(everybody, everybody, everybody)  # gathered, cut in two halves, joined in order
    t.give(everybody)
    t.briefly(np.where(z.scores > 0, _separate(z), 0.0))
    t.take(z.queries, z.logarithms)
    t.take(np.where(z.scores > 0, z.queries + 2 * _expanded(z) + z.scores_kept * z.scores, 0.0))
    t.briefly(np.where(shared, z.queries, 0.0))
    t.give(everybody)
    t.take(np.where(shared, z.queries, 0.0))
    t.briefly(np.where(shared, z.queries, 0.0))
    t.briefly(z.stream)  # the projection's output, before the caller's variables go
    t.level = before + attention_kept(z)


def _separate(z: Sizes) -> Numbers:
    """Bytes that live at most while separate products and operators compute attention."""
    late = _late(z)
    matrices = z.scores_kept + np.where(z.scores_kept > 1, 0.0, late)
    return 2 * z.queries + (2 + late) * _expanded(z) + late * z.bias + matrices * z.scores


def attention_backward(t: Tape, z: Sizes) -> None:
    """Go from the gradient of the output to that of queries, keys and values together.

    A context-parallel rank goes through its late chunk, then its early one, and brings the gradients of all keys and values into
    the order of the ranks: four more tensors like theirs.
    """
    joined, shared, fused = z.queries + 2 * z.keys, z.parts > 1, z.scores == 0
    before, everybody, kept, late = t.level, 2 * z.keys * z.parts, attention_kept(z), _late(z)
    t.give(np.where(shared | ~fused, z.queries, 0.0))  # a copy of the output, which only the projection has read
    gone = np.where(shared, 0.0, z.queries)  # the output's gradient, which both chunks share
    # the values' gradient beside that of the scores, then (the values are gone) the softmax's beside it
    matrices = np.maximum(_expanded(z) + z.scores, np.where(z.scores_kept > 1, 0.0, 2 * z.scores - gone))
    t.briefly(np.where(fused, 0.0, late * matrices))
    half = (z.queries + z.logarithms) / 2
    t.take(np.where(shared, z.queries / 2 + everybody, joined) * fused)
    t.briefly(z.workspace, z.expanded)
    t.give(np.where(shared, half, 0.0) * fused)
    t.take(np.where(shared, z.queries / 2 + everybody / (2 * z.parts), 0.0) * fused)
    t.briefly(np.where(shared, z.workspace + z.expanded / (2 * z.parts), 0.0))
    t.level = before - z.queries - kept + np.where(shared, z.queries + everybody, joined)
    t.briefly(np.where(shared, 2 * everybody, 0.0))  # into the order of the ranks
    t.level = t.level + np.where(shared, 2 * z.keys - everybody, 0.0)
    t.briefly(np.where(z.rotary, z.queries, 0.0))
    t.take(joined)
    t.give(joined)
