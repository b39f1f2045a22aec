"""What a checkpoint holds, as megatron-core's sharded state: weights, optimizer, schedule, random states."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.optimizer import DistributedOptimizer
from megatron.core.tensor_parallel import get_cuda_rng_tracker

from nlp_bench.train.trainer import Trainer

FORMAT = "fully_reshardable"
"""Form of the distributed optimizer's state that fits other tensor-, pipeline- and data-parallel sizes: one tensor per parameter."""


def sharded_state(trainer: Trainer, *, loading: bool, same_layout: bool = True) -> dict[str, Any]:
    """Return what this rank writes, or wants to read; every rank must call it.

    Random states belong to one layout, so they are left out where the checkpoint has another one (`same_layout` False).
    """
    if not loading:
        _gather_parameters(trainer)
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    metadata = {"distrib_optim_sharding_type": FORMAT, "chained_optim_avoid_prefix": True, "dp_cp_group": group}
    if len(trainer.model) == 1:
        models = {"model": trainer.model[0].module.sharded_state_dict(metadata=metadata)}
    else:
        models = {
            f"model{n}": part.module.sharded_state_dict(metadata=metadata) for n, part in enumerate(trainer.model)
        }
    if loading:
        _make_optimizer_state(trainer)
    with _packed_positions(trainer):
        optimizer = trainer.optimizer.sharded_state_dict(models, is_loading=loading, metadata=metadata)
    random = {"rng_state": _random_object()} if same_layout else {}
    return {**models, "optimizer": optimizer, **random}


def restore(trainer: Trainer, state: dict[str, Any]) -> None:
    """Put what was loaded by the guidance of `sharded_state` into model, optimizer, schedule and random states."""
    if len(trainer.model) == 1:
        trainer.model[0].module.load_state_dict(state["model"])
    else:
        for number, part in enumerate(trainer.model):
            part.module.load_state_dict(state[f"model{number}"])
    with _packed_positions(trainer), _kept_steps(trainer):
        trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.schedule.load_state_dict(state["opt_param_scheduler"])
    if "rng_state" in state:
        _set_random(state["rng_state"])


def _gather_parameters(trainer: Trainer) -> None:
    """Bring the last update to every replica: with --overlap-param-gather it would come in the next forward pass only."""
    if trainer.settings.overlap_param_gather:
        for part in trainer.model:
            part.start_param_sync(force_sync=True)


def _make_optimizer_state(trainer: Trainer) -> None:
    """Let torch's Adam make its state by a step with gradients of 0: megatron-core asks for its step count before it loads one."""
    for part in _with_torch_adam(trainer):
        if not part.optimizer.state:
            part._init_optimizer_states_with_dummy_values()  # noqa: SLF001  # all of it, and the weights, are loaded afterwards


@contextmanager
def _kept_steps(trainer: Trainer) -> Iterator[None]:
    """Mend what megatron-core 0.16.1 does with the step counts of torch's Adam, which Apex's keeps elsewhere.

    It wants to copy one for each parameter out of a checkpoint that has one for all (`_set_main_param_and_optimizer_states`), and
    gives all parameters the same tensor, which each of them would then count up.
    """
    parts = _with_torch_adam(trainer)
    for part in parts:
        part._set_main_param_and_optimizer_states = partial(_set_all_but_step, part)  # noqa: SLF001
    try:
        yield
    finally:
        for part in parts:
            del part._set_main_param_and_optimizer_states  # noqa: SLF001
            for state in part.optimizer.state.values():
                state["step"] = state["step"].clone()


def _set_all_but_step(part: Any, parameter: torch.nn.Parameter, tensors: dict[str, torch.Tensor]) -> None:
    group, place = part.model_param_group_index_map[parameter]
    main = part.optimizer.param_groups[group]["params"][place]
    targets = {"param": main, **part.optimizer.state[main]}
    for name, tensor in tensors.items():
        targets[name].copy_(tensor)


def _with_torch_adam(trainer: Trainer) -> list[Any]:
    return [part for part in _distributed(trainer) if isinstance(part.optimizer, torch.optim.AdamW)]


def _distributed(trainer: Trainer) -> list[Any]:
    return [part for part in trainer.optimizer.chained_optimizers if isinstance(part, DistributedOptimizer)]


@contextmanager
def _packed_positions(trainer: Trainer) -> Iterator[None]:
    """Let the distributed optimizer find its parameters in its gathered buffers, which have no padding between buckets.

    megatron-core 0.16.1 gathers buckets without their padding (`get_parameter_state_dp_zero`) but looks parameters up by positions
    that count it (`sharded_param_state_fully_reshardable`), so that those behind the first bucket would be saved shifted.
    """
    buffers = [buffer for part in _distributed(trainer) for buffer in part.buffers]
    padded = [buffer.param_index_map for buffer in buffers]
    try:
        for buffer in buffers:
            buffer.param_index_map = _packed(buffer)
        yield
    finally:
        for buffer, positions in zip(buffers, padded, strict=True):
            buffer.param_index_map = positions


def _packed(buffer: Any) -> dict[torch.nn.Parameter, tuple[int, int, int]]:
    gaps, packed_start = [], 0
    for (start, _), bucket in zip(buffer.bucket_indices, buffer.buckets, strict=True):
        gaps.append(start - packed_start)
        packed_start += bucket.numel_unpadded
    positions = buffer.param_index_map.items()
    return {
        parameter: (start - gaps[bucket], end - gaps[bucket], bucket) for parameter, (start, end, bucket) in positions
    }


def _random_object() -> ShardedObject:
    states = {
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(),
        "tracker": get_cuda_rng_tracker().get_states(),
    }
    sizes = (
        parallel_state.get_pipeline_model_parallel_world_size(),
        parallel_state.get_tensor_model_parallel_world_size(),
    )
    place = parallel_state.get_pipeline_model_parallel_rank(), parallel_state.get_tensor_model_parallel_rank()
    replica = parallel_state.get_data_parallel_rank(with_context_parallel=True)
    return ShardedObject("rng_state", states, sizes, place, replica_id=replica)


def _set_random(states: dict[str, Any]) -> None:
    if torch.cuda.is_available():
        torch.cuda.set_rng_state(states["device"])
    torch.set_rng_state(states["torch"])
    get_cuda_rng_tracker().set_states(states["tracker"])
