"""Memory of one transformer layer of this package's trainer: what it keeps for the backward pass, and its peaks.

The order of allocations is that of megatron-core's TransformerLayer with this package's kernels (train/blocks.py, attention.py,
context.py), one step below for each tensor as large as the residual stream or larger.
"""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Numbers
from nlp_bench.plan.memory.trainer.attention import attention_backward, attention_forward
from nlp_bench.plan.memory.trainer.sizes import Sizes
from nlp_bench.plan.memory.trainer.tape import Tape


@dataclass(frozen=True, kw_only=True)
class LayerMemory:
    """Bytes of one layer and micro-batch; arrays of shape [N] or []."""

    kept: Numbers
    """What it keeps for its backward pass, its input included."""
    forward: Numbers
    """Peak of the forward pass above what lived before; the input lived."""
    backward: Numbers
    """Peak of the backward pass above what lived before; what is kept and the gradient of the output lived."""
    late: Numbers
    """The same from where the gradient of the output is needed no more."""


def layer_memory(z: Sizes) -> LayerMemory:
    """Follow one layer forward and backward."""
    first = Tape()
    _forward(first, z)
    kept = first.level  # its output takes the place of its input
    back = Tape()
    _feed_forward_backward(back, z)
    early, back.peak = back.peak, back.level
    _attention_backward(back, z)
    return LayerMemory(
        kept=kept,
        forward=first.peak,
        backward=np.maximum(early, back.peak),
        late=back.peak,
    )


def _forward(t: Tape, z: Sizes) -> None:
    t.take(z.statistics, z.share)
    attention_forward(t, z)
    _reduced(t, z)
    t.take(z.share, z.mask)
    t.give(z.share)
    t.take(z.statistics, z.share)
    t.take(z.joined)
    t.take(z.inner)
    _reduced(t, z)
    t.take(z.share, z.mask)
    t.give(z.share)


def _reduced(t: Tape, z: Sizes) -> None:
    """Take the output of a product by rows, of which a sequence-parallel rank gets its share."""
    t.take(z.stream)
    t.take(np.where(z.split, z.share, 0.0))
    t.give(np.where(z.split, z.stream, 0.0))


def _feed_forward_backward(t: Tape, z: Sizes) -> None:
    _, _, first, second = z.weights
    _into_rows(t, z)
    t.take(z.inner)
    t.take(second)
    t.give(_gathered(z), z.inner, second)
    t.take(z.joined)
    t.give(z.inner, z.joined)
    _out_of_columns(t, z, first, z.joined)
    _norm(t, z)


def _attention_backward(t: Tape, z: Sizes) -> None:
    qkv, projection, _, _ = z.weights
    _into_rows(t, z)
    t.take(z.queries)
    t.take(projection)
    t.give(_gathered(z), projection)
    attention_backward(t, z)
    _out_of_columns(t, z, qkv, z.queries + 2 * z.keys)
    _norm(t, z)


def _gathered(z: Sizes) -> Numbers:
    """Bytes of the gradient that a product by rows reads, where it is a tensor of its own."""
    return np.where(z.split, z.stream, z.share * (z.mask > 0))


def _into_rows(t: Tape, z: Sizes) -> None:
    """Undo the dropout, and gather the gradient of all sequence-parallel ranks."""
    dropped = z.share * (z.mask > 0)
    t.take(dropped)
    t.give(z.mask)
    t.take(np.where(z.split, z.stream, 0.0))
    t.give(np.where(z.split, dropped, 0.0))


def _out_of_columns(t: Tape, z: Sizes, weight: Numbers, output: Numbers) -> None:
    """Go back through a product by columns to the output of the normalisation before it."""
    t.take(z.stream)
    t.take(np.where(z.split, z.share, 0.0))
    t.take(weight)
    t.give(np.where(z.split, z.stream, 0.0), output, z.share, weight)


def _norm(t: Tape, z: Sizes) -> None:
    """Go back through a normalisation and add the gradient that passed beside it."""
    t.take(z.share)
    t.give(z.share, z.share, z.statistics)
    t.take(z.share)
    t.give(z.share, z.share)
