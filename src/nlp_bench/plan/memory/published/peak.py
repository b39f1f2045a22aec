"""Peak memory under other frameworks, from what papers and documents say of them."""

import numpy as np

from nlp_bench.plan.configurations import Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.answer import Memory
from nlp_bench.plan.memory.overhead import overhead_bytes
from nlp_bench.plan.memory.published.activations import activation_bytes
from nlp_bench.plan.memory.published.buffers import buffer_bytes
from nlp_bench.plan.memory.published.families import COUNTS, FAMILIES, families
from nlp_bench.plan.memory.published.stages import published_stages
from nlp_bench.plan.memory.published.state import state_parts
from nlp_bench.plan.work.stages import Stage


def published_memory(c: Configurations, constants: Constants) -> Memory:
    """Predict the fullest rank of N configurations of any framework but this package's trainer; arrays of shape [N].

    The fullest is the first, the second or the last stage of the pipeline. `Memory.reported` is what the family's publications
    count (see `families.COUNTS`).
    """
    stages = [_stage_parts(c, constants, stage) for stage in published_stages(c)]
    parts = _fullest(stages, len(c))
    total = np.asarray(sum(parts.values()))
    return Memory(
        total=total,
        parts=parts,
        capacity=c.machines.memory_bytes,
        fits_below=constants.memory.published_fits_below,
        fails_above=constants.memory.fails_above,
        reported=total - _not_counted(c, constants, parts),
    )


def _stage_parts(c: Configurations, constants: Constants, stage: Stage) -> dict[str, Numbers]:
    activations, buffers = activation_bytes(c, constants, stage), buffer_bytes(c, constants, stage)
    return {
        **state_parts(c, constants, stage),
        "activations": activations,
        "buffers": buffers,
        "overhead": overhead_bytes(c, constants, activations + buffers),
    }


def _fullest(stages: list[dict[str, Numbers]], length: int) -> dict[str, Numbers]:
    stacked = {name: np.stack([np.broadcast_to(stage[name], (length,)) for stage in stages]) for name in stages[0]}
    chosen = np.argmax(np.asarray(sum(stacked.values())), axis=0)[None]
    return {name: np.take_along_axis(values, chosen, axis=0)[0] for name, values in stacked.items()}


def _not_counted(c: Configurations, constants: Constants, parts: dict[str, Numbers]) -> Numbers:
    """Return what a published figure leaves out: all overhead where tensors are counted, all but the allocator's where it reserves."""
    rounding = constants.memory.allocator_share * (parts["activations"] + parts["buffers"])
    left_out = {"allocated": parts["overhead"], "reserved": parts["overhead"] - rounding, "device": np.zeros(())}
    family = families(c, constants)
    return np.select(
        [family == FAMILIES.index(name) for name in FAMILIES], [left_out[COUNTS[name]] for name in FAMILIES]
    )
