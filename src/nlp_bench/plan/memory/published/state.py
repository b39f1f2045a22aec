"""Weights, gradients and optimizer state of other frameworks, mixed precision with Adam."""

import numpy as np

from nlp_bench.plan.configurations import SHARDING, Configurations, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.memory.published.families import FAMILIES, families
from nlp_bench.plan.work.numbers import is_float16
from nlp_bench.plan.work.parameters import layer_parameters, num_tables, table_parameters
from nlp_bench.plan.work.stages import Stage

_WEIGHT = 2.0  # bf16 or fp16
_ADAM = 12.0  # fp32 master weights and both moments


def state_parts(c: Configurations, constants: Constants, stage: Stage) -> dict[str, Numbers]:
    """Return bytes of the weights, gradients and optimizer state that a rank of this stage holds; arrays of shape [N].

    Bytes per parameter, S ranks share (S = 1 where nothing is sharded):
    megatron 2 + 4 + 12 / S (Megatron-LM docs, distributed optimizer);
    deepspeed 2 + 2 + (12 + 4) / S in fp16 (ZeRO-1 keeps an fp32 copy of its share of the gradients, DeepSpeed
    runtime/zero/stage_1_and_2.py), 2 + g + 12 / S in bf16 (runtime/bf16_optimizer.py), the gradients / S too under ZeRO-2;
    fsdp (4 + 4 + 8) / S (fp32 shards, under SHARD_GRAD_OP too; PyTorch FSDP2, Liang et al. 2024, arXiv 2410.06511);
    internevo 2 + 2 + (x - 4) / S, or x / S where all is sharded.
    """
    parameters = rank_parameters(c, stage)
    weights, gradients, optimizer = _bytes_per_parameter(c, constants)
    return {"weights": weights * parameters, "gradients": gradients * parameters, "optimizer": optimizer * parameters}


def rank_parameters(c: Configurations, stage: Stage) -> Numbers:
    """Parameters of a rank of this stage, shared or not."""
    return stage.layers * layer_parameters(c) + num_tables(c, stage) * table_parameters(c)


def _bytes_per_parameter(c: Configurations, constants: Constants) -> tuple[Numbers, Numbers, Numbers]:
    family, memory = families(c, constants), constants.memory
    level = [c.spread.sharding >= SHARDING.index(name) for name in SHARDING]
    shares = [np.where(on, np.maximum(c.spread.shard_group, 1.0), 1.0) for on in level]
    _, optimizer, gradients, weights = shares
    half = is_float16(c, constants)
    of = [family == FAMILIES.index(name) for name in FAMILIES]
    deepspeed = np.where(half, 2.0, memory.deepspeed_bf16_gradient_bytes) / gradients
    return (
        np.select(of, [_WEIGHT / weights, _WEIGHT / weights, _WEIGHT / weights, 4.0 / gradients]),
        np.select(of, [4.0 / gradients, deepspeed, 2.0 / gradients, 4.0 / gradients]),
        np.select(
            of,
            [
                _ADAM / optimizer,
                (_ADAM + 4.0 * half) / optimizer,
                (memory.internevo_state_bytes - 4.0) / optimizer,
                8.0 / optimizer,
            ],
        ),
    )
