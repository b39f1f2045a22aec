"""Peak memory of one rank of this package's trainer, tensor by tensor, as `nlp-bench rehearse` counts it."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.trainer.ends import EndMemory, end_memory
from nlp_bench.plan.memory.trainer.flight import Flight, flight_of
from nlp_bench.plan.memory.trainer.layer import LayerMemory, layer_memory
from nlp_bench.plan.memory.trainer.sizes import Sizes, sizes_of
from nlp_bench.plan.memory.trainer.state import state_bytes
from nlp_bench.plan.work.operations import FULL
from nlp_bench.plan.work.stages import Stage


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Peak bytes of one rank of N configurations; arrays of shape [N]."""

    total: Numbers
    """Of all tensors; context, communicators and fragmentation come on top."""
    parts: dict[str, Numbers]
    """weights, gradients, optimizer, buffers, activations, temporary; they add up."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """What does not depend on the stage."""

    sizes: Sizes
    """Bytes of tensors."""
    layer: LayerMemory
    """One layer, recomputed or not."""
    ends: EndMemory
    """Embedding and output layer."""


def blocks_of(c: Configurations, constants: Constants) -> Blocks:
    """Return what all stages have in common."""
    sizes = sizes_of(c, constants)
    return Blocks(sizes=sizes, layer=_recomputed(c, sizes, layer_memory(sizes)), ends=end_memory(c, sizes))


def rank_memory(c: Configurations, stage: Stage, constants: Constants, blocks: Blocks | None = None) -> RankMemory:
    """Return the peak of a rank of this stage: the greatest of some moments, one of which it must be.

    The moments: a forward pass while all others are under way, the output layer, the backward pass of the last layer, that of
    the embedding. The optimizer's step needs nothing of its own: torch's fused Adam works in place.
    """
    b = blocks or blocks_of(c, constants)
    flight = flight_of(c, stage)
    kept = _kept(c, stage, b, flight)
    peak = _peak(c, stage, b, flight, kept)
    state = state_bytes(c, stage, constants, b.sizes)
    parts = {**state, "activations": kept, "temporary": peak - kept}
    return RankMemory(total=np.asarray(sum(parts.values())), parts=parts)


def _recomputed(c: Configurations, z: Sizes, layer: LayerMemory) -> LayerMemory:
    """Return the layer as it is, or under full recompute: it keeps its input alone, and its backward pass runs it again.

    Its first forward pass then keeps less than that second one, whose peak is the greater: the one stands for both.
    """
    full = c.spread.recompute == FULL
    again = layer.kept  # its own output lives on, its input lived before
    late = again + layer.late
    backward = np.maximum(layer.forward, again + layer.backward)
    return LayerMemory(
        kept=np.where(full, z.share, layer.kept),
        forward=layer.forward,
        backward=np.where(full, backward, layer.backward),
        late=np.where(full, late, layer.late),
    )


def _kept(c: Configurations, stage: Stage, b: Blocks, flight: Flight) -> Numbers:
    """Return what all passes under way keep, without the output layer."""
    layers = stage.layers / c.spread.virtual
    ends = b.ends.embedding_kept * stage.first
    return flight.passes * layers * b.layer.kept + flight.first_passes * ends


def _peak(c: Configurations, stage: Stage, b: Blocks, flight: Flight, kept: Numbers) -> Numbers:
    z, ends = b.sizes, b.ends
    layers = stage.layers / c.spread.virtual
    received = z.share * ~stage.last
    sent = z.share * (~stage.first & flight.steady)
    batch = ends.batch * (stage.first | stage.last)
    base = kept + batch + flight.streams * z.share
    at_head = kept + batch + np.minimum(flight.streams, 3) * z.share
    one = layers * b.layer.kept + ends.embedding_kept * stage.first
    held = ends.held * stage.last
    forward = base - b.layer.kept + z.share + b.layer.forward + np.where(flight.steady, received, 0.0) + sent
    head = stage.last * (at_head + z.share + ends.head + sent)
    full = c.spread.recompute == FULL  # a checkpoint holds the gradient of its output to its end
    grown = np.maximum(b.layer.backward, b.layer.late + z.share * (full | ~stage.last))
    backward = base + z.share + grown + sent + held
    embedding = stage.first * (flight.at_embedding * one - one + batch + received + ends.embedding_backward)
    looked_up = stage.first * (base - one + ends.embedding_forward)
    return np.asarray(np.max(np.broadcast_arrays(forward, head, backward, embedding, looked_up), axis=0))
