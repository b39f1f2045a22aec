"""Peak memory of the fullest rank, whichever framework trains."""

import numpy as np

from nlp_bench.plan.configurations import Configurations
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.answer import Memory, chosen
from nlp_bench.plan.memory.overhead import overhead_bytes
from nlp_bench.plan.memory.published.peak import published_memory
from nlp_bench.plan.memory.trainer.rank import blocks_of, rank_memory
from nlp_bench.plan.work.stages import telling_stages

__all__ = ["Memory", "peak_memory"]


def peak_memory(c: Configurations, constants: Constants) -> Memory:
    """Predict the memory of the fullest rank: this package's trainer tensor by tensor, other frameworks by what is published of them."""
    own = np.asarray(c.framework == constants.frameworks.index("nlp-bench"))
    if own.all():
        return trainer_memory(c, constants)
    others = published_memory(c, constants)
    return others if not own.any() else chosen(own, trainer_memory(c, constants), others)


def trainer_memory(c: Configurations, constants: Constants) -> Memory:
    """Predict the memory of the fullest rank of this package's trainer: of the first, the second or the last pipeline stage."""
    blocks = blocks_of(c, constants)
    ranks = [rank_memory(c, stage, constants, blocks) for stage in telling_stages(c)]
    parts = {name: np.stack(np.broadcast_arrays(*(rank.parts[name] for rank in ranks))) for name in ranks[0].parts}
    fullest = np.argmax(np.asarray(sum(parts.values())), axis=0)[None]
    found = {name: np.take_along_axis(part, fullest, axis=0)[0] for name, part in parts.items()}
    dynamic = found["activations"] + found["temporary"]
    found["overhead"] = overhead_bytes(c, constants, dynamic)
    return Memory(
        total=np.asarray(sum(found.values())),
        parts=found,
        capacity=c.machines.memory_bytes,
        fits_below=constants.memory.fits_below,
        fails_above=constants.memory.fails_above,
    )
