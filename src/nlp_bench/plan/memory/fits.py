"""Results of the memory models: bytes with their parts, what a GPU needs beyond tensors, and whether it fits."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from nlp_bench.immutable import immutable
from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants


@immutable
class Memory:
    """Peak bytes of the fullest rank of N configurations; arrays of shape [N]."""

    total: Numbers  # what the GPU's memory must hold, everything included
    parts: dict[str, Numbers]
    """weights, gradients, optimizer, activations, temporary, buffers, overhead (context, communicators, fragmentation); they add up."""
    capacity: Numbers  # memory of the GPU
    fits_below: Numbers | float  # share of the capacity up to which it surely fits; between the two shares it is tight
    fails_above: Numbers | float  # share of the capacity above which it surely does not fit
    reported: Numbers | None = None
    """What the framework's own publications count as peak memory, where that is not the total; None: the total."""

    @property
    def fits(self) -> Flags:
        """Whether it surely fits."""
        return np.asarray(self.total <= self.capacity * self.fits_below)

    @property
    def tight(self) -> Flags:
        """Whether it may fit."""
        return np.asarray((self.total <= self.capacity * self.fails_above) & ~self.fits)

    @property
    def words(self) -> npt.NDArray[np.str_]:
        """The same in a word each: yes, tight or no; shape [N] or []."""
        return np.where(self.fits, "yes", np.where(self.tight, "tight", "no"))

    @property
    def published(self) -> Numbers:
        """Bytes to compare with a published peak: allocated, reserved or of the device, as that framework counts."""
        return self.total if self.reported is None else self.reported


def fullest(ranks: Sequence[Mapping[str, Numbers]]) -> dict[str, Numbers]:
    """Return the parts of the rank that holds most, of several ranks of each of N configurations."""
    parts = {name: np.stack(np.broadcast_arrays(*(rank[name] for rank in ranks))) for name in ranks[0]}
    place = np.argmax(np.asarray(sum(parts.values())), axis=0)[None]
    return {name: np.take_along_axis(part, place, axis=0)[0] for name, part in parts.items()}


def overhead_bytes(constants: Constants, communicators: Numbers | int, dynamic: Numbers | float) -> Numbers:
    """Bytes beyond the tensors of one rank: CUDA context and workspaces, NCCL's buffers, and the allocator's rounding.

    `dynamic` are the bytes that come and go in an iteration (activations and buffers), which is where the allocator fragments.
    """
    memory = constants.memory
    connected = communicators * memory.communicator_bytes
    return np.asarray(memory.context_bytes + connected + memory.allocator_share * dynamic)


def num_communicators(c: Configurations) -> Numbers:
    """NCCL communicators of one rank that carry data: all ranks, tensor, pipeline with its embedding group, context, data.

    Groups of one rank have none. Each communicator allocates its channels' buffers when it is first used, and beyond two nodes
    their size does not grow with the ranks (NCCL issues 864, 964 and 986).
    """
    s = c.spread
    groups = (s.num_gpus > 1, s.tensor > 1, s.pipeline > 1, s.pipeline > 1, s.context > 1, s.data * s.context > 1)
    return np.asarray(sum(group.astype(np.float64) for group in map(np.asarray, groups)))
