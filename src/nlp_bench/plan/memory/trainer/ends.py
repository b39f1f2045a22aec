"""Memory of the embedding and of the output layer with the loss, of this package's trainer."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.memory.trainer.sizes import INDEX, Sizes
from nlp_bench.plan.memory.trainer.tape import Tape
from nlp_bench.plan.work.numbers import SINGLE
from nlp_bench.plan.work.parameters import position_parameters, table_parameters
from nlp_bench.plan.work.products import padded_vocab_size


@dataclass(frozen=True, kw_only=True)
class EndMemory:
    """Bytes of one micro-batch; arrays of shape [N] or []."""

    embedding_kept: Numbers
    """What the embedding keeps beside its output: the dropout's mask, the tokens' numbers."""
    embedding_forward: Numbers
    """Peak of its forward pass: the looked-up words, learned positions and their sum, and all in the layers' order."""
    embedding_backward: Numbers
    """Peak of its backward pass, the gradient of its output included."""
    batch: Numbers
    """Tokens and positions of a micro-batch on the device, on the first and the last stage."""
    head: Numbers
    """Peak of their forward and backward passes above what lived before; their input lived."""
    held: Numbers
    """What lives from there until the embedding's backward pass: the table's empty gradient where one rank has both ends and
    shares it."""


def end_memory(c: Configurations, z: Sizes) -> EndMemory:
    """Follow both ends; sources: megatron-core, models/gpt, language_model_embedding.py; this package, train/kernels/loss.py."""
    n, s = c.network, c.spread
    table, learned = table_parameters(c) * z.element, position_parameters(c) * z.element
    held = table * (~n.untied_embeddings & (s.pipeline == 1))
    logits = z.tokens * padded_vocab_size(c) / s.tensor * z.element
    rows = s.micro_batch_size * INDEX
    return EndMemory(
        embedding_kept=z.mask + np.where(s.tensor > 1, (INDEX + 1) * z.tokens, 0.0),
        embedding_forward=z.stream * (1.0 + 2 * (learned > 0) + (s.micro_batch_size > 1)),
        embedding_backward=_embedding_backward(c, z, np.maximum(table, learned), held),
        batch=rows * (n.sequence_length + 1) + INDEX * n.sequence_length / s.context,
        head=_head(z, logits, table, held),
        held=held,
    )


def _embedding_backward(c: Configurations, z: Sizes, table: Numbers, held: Numbers) -> Numbers:
    """Return the peak: a stream and the next one made of it (without dropout, gathered, masked), then the table's gradient.

    Two gradients of one table are added into a third tensor.
    """
    steps = np.where((z.split | (c.spread.tensor > 1)), 2 * z.stream, z.share * np.where(z.mask > 0, 2, 1))
    summed = 3 * held
    return np.maximum(np.maximum(steps, z.stream + table) + held, summed)


def _head(z: Sizes, logits: Numbers, table: Numbers, held: Numbers) -> Numbers:
    t = Tape()
    t.take(z.statistics, z.share, logits)
    t.take((INDEX + SINGLE) * z.tokens)
    t.briefly(3 * SINGLE * z.tokens)
    t.take(z.stream, np.where(z.split, z.share, 0.0))
    t.take(table)
    t.give(table - held, logits, z.share, np.where(z.split, z.stream, 0.0), (INDEX + SINGLE) * z.tokens)
    t.take(z.share)
    return t.peak
