"""How megatron-core cuts a buffer of gradients into buckets that are reduced while the backward pass runs."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nlp_bench.plan.configurations import Flags, Numbers
from nlp_bench.plan.work.numbers import round_up


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
