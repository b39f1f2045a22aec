"""What stays for the whole training on one rank of this package's trainer: weights, gradients, optimizer, buffers."""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.trainer.sizes import Sizes
from nlp_bench.plan.work.buffers import gradient_buffers
from nlp_bench.plan.work.numbers import SINGLE, element_bytes, shard_ranks, shares_optimizer
from nlp_bench.plan.work.parameters import rank_parameters
from nlp_bench.plan.work.stages import Stage


def state_bytes(c: Configurations, stage: Stage, constants: Constants, z: Sizes) -> dict[str, Numbers]:
    """Return the bytes of each kind.

    Gradients are float32 sums. Adam has two float32 moments, and for 16-bit parameters a float32 copy; the distributed optimizer
    keeps them for one share of the parameters, which then lie in a padded buffer (megatron-core, optimizer/distrib_optimizer.py).
    """
    numbers, held = gradient_buffers(c, stage, bucketed=False).numbers, rank_parameters(c, stage)
    element, shared = element_bytes(c, constants), shares_optimizer(c)
    copy = np.where(element < SINGLE, SINGLE, 0)
    return {
        "weights": element * np.where(shared, numbers, held),
        "gradients": SINGLE * numbers,
        "optimizer": (2 * SINGLE + copy) * held / np.where(shared, shard_ranks(c), 1),
        "buffers": _buffers(c, z),
    }


def _buffers(c: Configurations, z: Sizes) -> Numbers:
    """Cosine and sine of all positions, of context-parallel ranks once more for their own; the input that all have gathered."""
    n, s = c.network, c.spread
    table = n.sequence_length * n.head_width * z.element
    table = table + np.where(s.context > 1, table / s.context, 0.0)
    return np.where(z.rotary, table, 0.0) + np.where(z.split, z.stream, 0.0)
