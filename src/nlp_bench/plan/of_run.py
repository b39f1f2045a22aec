"""A resolved run as one configuration of the planner."""

from typing import Any

import numpy as np

from nlp_bench.config.run import Run
from nlp_bench.errors import UsageError
from nlp_bench.plan.configurations import RECOMPUTE, SHARDING, Configurations, Spread
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.machines import machine_of
from nlp_bench.plan.network import network_of

UPSTREAM = "Megatron-LM"
"""Framework of a run whose trainer is Megatron-LM's own."""


def configuration_of(run: Run, constants: Constants) -> Configurations:
    """Return a run as N = 1 configurations, shape [1] in its spread.

    Raises UsageError for a family, a machine or a number format that the planner does not know.
    """
    return Configurations(
        network=network_of(run.model.family, run.model.architecture, run.training),
        spread=_spread(run),
        machines=machine_of(run.system, constants, run.training.precision),
        framework=np.asarray(_place(constants.frameworks, _framework(run), "tuning.trainer")),
        precision=np.asarray(_place(constants.precisions, run.training.precision, "training.precision")),
    )


def _framework(run: Run) -> str:
    return UPSTREAM if run.tuning.trainer == "megatron-lm" else "nlp-bench"


def _place(known: tuple[str, ...], word: str, field: str) -> int:
    if word not in known:
        raise UsageError(f"{field}: {word!r} is not planned (known: {', '.join(known)})")
    return known.index(word)


def _spread(run: Run) -> Spread:
    parallel, batch, tuning = run.parallel, run.batch, run.tuning
    numbers = {
        "num_gpus": parallel.num_gpus,
        "tensor": parallel.tensor,
        "pipeline": parallel.pipeline,
        "virtual": virtual_stages(run),
        "context": parallel.context,
        "data": parallel.data,
        "micro_batch_size": batch.micro_batch_size,
        "global_batch_size": batch.global_batch_size,
        "first_layers": tuning.decoder_first_pipeline_num_layers or 0,
        "last_layers": tuning.decoder_last_pipeline_num_layers or 0,
        "shard_group": parallel.data * parallel.context if tuning.use_distributed_optimizer else 1,
    }
    flags = {
        "sequence_parallel": tuning.sequence_parallel and parallel.tensor > 1,
        "overlap_grad_reduce": tuning.overlap_grad_reduce,
        "overlap_param_gather": tuning.overlap_param_gather,
    }
    codes = {
        "recompute": RECOMPUTE.index(run.training.recompute),
        "sharding": SHARDING.index("optimizer" if tuning.use_distributed_optimizer else "none"),
    }
    arrays: dict[str, Any] = {name: np.asarray([value], dtype=np.float64) for name, value in numbers.items()}
    arrays |= {name: np.asarray([value], dtype=np.bool_) for name, value in flags.items()}
    arrays |= {name: np.asarray([value], dtype=np.int64) for name, value in codes.items()}
    return Spread(**arrays)


def virtual_stages(run: Run) -> int:
    """Return the virtual stages of each pipeline rank, 1 without interleaving, as `nlp_bench.train.settings` counts them."""
    if run.tuning.num_virtual_stages_per_pipeline_rank:
        return run.tuning.num_virtual_stages_per_pipeline_rank
    layers = run.tuning.num_layers_per_virtual_pipeline_stage
    return run.model.architecture.num_layers // (run.parallel.pipeline * layers) if layers else 1
