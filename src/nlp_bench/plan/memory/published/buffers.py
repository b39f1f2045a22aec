"""Buffers of other frameworks: gathered parameters, gradients on their way, pipeline tensors."""

import numpy as np

from nlp_bench.plan.configurations import SHARDING, Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.published.activations import boundary_bytes
from nlp_bench.plan.memory.published.families import FAMILIES, families
from nlp_bench.plan.memory.published.stages import in_flight
from nlp_bench.plan.memory.published.state import rank_parameters
from nlp_bench.plan.work.parameters import layer_parameters, table_parameters
from nlp_bench.plan.work.stages import Stage


def buffer_bytes(c: Configurations, constants: Constants, stage: Stage) -> Numbers:
    """Bytes beside state and activations, by family.

    megatron: placeholders of the weight gradients that are summed in place, bf16, one per shape of weight: a layer and a table
    (Transformer Engine `get_dummy_wgrad`; megatron-core tensor_parallel/layers.py);
    deepspeed: outputs of the stage, one per micro-batch in flight (DeepSpeed runtime/pipe/engine.py), and under
    ZeRO a fitted constant;
    fsdp: see `_sharded`; internevo: the same where all is sharded.
    """
    memory = constants.memory
    gathered = np.where(c.spread.sharding == SHARDING.index("parameters"), _sharded(c, stage), 0.0)
    options = {
        "megatron": 2 * (layer_parameters(c) + table_parameters(c)),
        "deepspeed": boundary_bytes(c) * in_flight(c, stage) + memory.deepspeed_buffer_bytes * (c.spread.sharding > 0),
        "internevo": gathered,
        "fsdp": _sharded(c, stage),
    }
    family = families(c, constants)
    return np.select([family == FAMILIES.index(name) for name in options], list(options.values()))


def _sharded(c: Configurations, stage: Stage) -> Numbers:
    """Return what full sharding unfolds for a while.

    Without a pipeline two layers in bf16 (one computes, the next is fetched), a table in bf16, and one layer's gradients in bf16 and,
    on their way, in fp32 (FSDP2, arXiv 2410.06511). With a pipeline, or where the parameters stay, all of the stage's parameters in
    bf16; with a pipeline its gradients too, in fp32, because torchtitan neither reshards nor reduces between micro-batches
    (parallelize_llama.py: reshard_after_forward = False), a receive buffer for each micro-batch and direction, and the outputs of
    those in flight (torch.distributed.pipelining.stage).
    """
    layer, table, all_of_it = layer_parameters(c), table_parameters(c), rank_parameters(c, stage)
    piped = c.spread.pipeline > 1
    stays = piped | (c.spread.sharding < SHARDING.index("parameters"))
    alone = c.spread.shard_group <= 1
    passed = (2 * np.maximum(c.spread.num_microbatches, 1.0) + in_flight(c, stage)) * boundary_bytes(c)
    weights = np.where(stays, 2 * all_of_it, 4 * layer + 2 * table)
    gradients = np.where(piped & ~alone, 4 * all_of_it, 0.0) + 6 * layer
    return weights + gradients + np.where(piped, passed, 0.0)
