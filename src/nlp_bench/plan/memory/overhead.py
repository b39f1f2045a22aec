"""What a GPU needs beyond tensors: context, communicators, what the allocator rounds; and the rule for fits, tight, does not."""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.constants import Constants


def overhead_bytes(c: Configurations, constants: Constants, dynamic: Numbers | float = 0.0) -> Numbers:
    """Bytes beyond the tensors of one rank: CUDA context and workspaces, NCCL's buffers, and the allocator's rounding.

    `dynamic` are the bytes that come and go in an iteration (activations and buffers), which is where the allocator fragments.
    """
    memory = constants.memory
    connected = num_communicators(c) * memory.communicator_bytes
    return np.asarray(memory.context_bytes + connected + memory.allocator_share * dynamic)


def num_communicators(c: Configurations) -> Numbers:
    """NCCL communicators of one rank that carry data: all ranks, tensor, pipeline with its embedding group, context, data.

    Groups of one rank have none. Each communicator allocates its channels' buffers when it is first used, and beyond two nodes
    their size does not grow with the ranks (NCCL issues 864, 964 and 986).
    """
    s = c.spread
    groups = (s.num_gpus > 1, s.tensor > 1, s.pipeline > 1, s.pipeline > 1, s.context > 1, s.data * s.context > 1)
    return np.asarray(sum(group.astype(np.float64) for group in map(np.asarray, groups)))
