"""Writes and reads checkpoints by megatron-core's dist_checkpointing, format torch_dist: weights, optimizer, schedule, random states."""

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.dist_checkpointing.serialization import get_default_save_sharded_strategy
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper
from megatron.core.dist_checkpointing.validation import StrictHandling
from megatron.core.optimizer import DistributedOptimizer
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from torch.distributed.checkpoint.api import CheckpointException

from nlp_bench.errors import NlpBenchError
from nlp_bench.orphans import die_with_parent
from nlp_bench.train.checkpoint.folder import checkpoint_path, clear, describe, publish, write_record
from nlp_bench.train.checkpoint.integrity import check_index, damaged, only_weights, own_sums, refuse_damaged, with_sums
from nlp_bench.train.trainer import Trainer
from nlp_bench.train.world import wait_for_all

Value = TypeVar("Value")


class Store:
    """The folder that one training writes its checkpoints to."""

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        self._trainer, self._folder = trainer, folder
        self._manager: SyncManager | None = None
        self._writing = AsyncCallsQueue()
        strategy = get_default_save_sharded_strategy()
        replicas = parallel_state.get_data_parallel_group(with_context_parallel=True)
        self._strategy = FullyParallelSaveStrategyWrapper(strategy, replicas) if replicas.size() > 1 else strategy
        self._is_checked = False

    def save(self, iteration: int, consumed_samples: int) -> Path:
        """Write a checkpoint and return its path; with --async-save `finish` completes it. Every rank calls it. Raises NlpBenchError where writing fails."""
        self.finish(wait=True)
        trainer, path = self._trainer, checkpoint_path(self._folder, iteration)
        if dist.get_rank() == 0:
            try:
                clear(self._folder, iteration)
            except OSError as error:
                why = f"{error.strerror}; name a writable folder with room"
                raise NlpBenchError(f"save: cannot write {self._folder}: {why}") from error
        wait_for_all()
        record = describe(trainer.settings, trainer.layout, iteration, consumed_samples)
        self._start_manager()
        state = {
            **sharded_state(trainer, loading=False),
            "opt_param_scheduler": trainer.schedule.state_dict(),
            "iteration": iteration,
            "consumed_samples": consumed_samples,
        }
        try:
            request = dist_checkpointing.save(
                state,
                str(path),
                self._strategy,
                validate_access_integrity=not self._is_checked,  # the shards of the ranks do not change afterwards
                async_sharded_save=trainer.settings.async_save,
                content_metadata=dict(CONTENT),
            )
            self._is_checked = True
            if request is None:
                self._publish(iteration, record)
            else:
                request.add_finalize_fn(partial(self._publish, iteration, record))
                self._writing.schedule_async_request(request)
        except (OSError, RuntimeError, CheckpointException) as error:
            raise _unwritable(path, error) from error
        return path

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written during the training; the same on every rank."""
        return int(self._writing.get_num_unfinalized_calls()) > 0

    def finish(self, *, wait: bool) -> None:
        """Publish the checkpoint that is being written if all ranks are done; with `wait`, wait for them."""
        try:
            self._writing.maybe_finalize_async_calls(blocking=wait)
        except (OSError, RuntimeError, CheckpointException) as error:
            raise _unwritable(self._folder, error) from error

    def close(self) -> None:
        """Complete the checkpoint that is being written and stop the helper process."""
        self.finish(wait=True)
        if self._manager is not None:
            self._manager.shutdown()

    def _publish(self, iteration: int, record: dict[str, Any]) -> None:
        path = checkpoint_path(self._folder, iteration)
        sums = _gathered(own_sums(path, dist.get_rank(), dist.get_world_size()))
        if dist.get_rank() == 0:
            write_record(path, with_sums(record, {name: entry for part in sums for name, entry in part.items()}))
            publish(self._folder, iteration, self._trainer.settings.keep_checkpoints)
        wait_for_all()

    def _start_manager(self) -> None:
        """Start the process with the writers' result queue: megatron-core's own would outlive a killed rank."""
        if self._manager is None:
            # megatron-core forks writers
            warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
            os.register_at_fork(after_in_child=die_with_parent)  # its writers would outlive a killed rank, too
            self._manager = SyncManager(ctx=get_context("spawn"))
            self._manager.start(initializer=die_with_parent)
            filesystem_async._results_queue = self._manager.Queue()  # noqa: SLF001  # it creates one only if there is none
            filesystem_async._process_memory = lambda: 0  # noqa: SLF001  # only for a debug line; it hangs without psutil


def _gathered(own: Value) -> list[Value]:
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, own)
    return gathered


def _unwritable(path: Path, error: BaseException) -> NlpBenchError:
    try:  # torch's zip writer does not report that a disk is full
        free = f" ({shutil.disk_usage(path).free / 2**20:.0f} MiB are free)"
    except OSError:
        free = ""
    remedy = f"check that it is writable and has room{free}; older checkpoints are untouched"
    return NlpBenchError(f"save: cannot write {path}: {_first_cause(error)}; {remedy}")


def load(trainer: Trainer, path: Path, record: dict[str, Any]) -> None:
    """Continue from the checkpoint `path`, whose `record` was checked; every rank calls it. Raises NlpBenchError for a missing, damaged or unexpected file."""
    problems = _gathered(damaged(path, record, dist.get_rank(), dist.get_world_size()))
    refuse_damaged(path, [problem for part in problems for problem in part])
    if dist.get_rank() == 0:
        check_index(path)
    wait_for_all()  # no rank reads before the check
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    same = all(record["layout"].get(name) == getattr(trainer.settings, name) for name in names)
    wanted = sharded_state(trainer, loading=True, same_layout=same)
    try:
        with only_weights():
            state = dist_checkpointing.load(wanted, str(path), strict=StrictHandling.RAISE_UNEXPECTED)
    except (Exception, CheckpointException) as error:  # torch, megatron-core and zip readers may raise anything
        remedy = "take an older checkpoint: write its iteration into the file beside it"
        raise NlpBenchError(f"load: cannot read {path}: {_first_cause(error)}; {remedy}") from error
    restore(trainer, state)


def _first_cause(error: BaseException) -> str:
    """Return the error in short; torch's exception has the whole traceback of each rank."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


CONTENT = {
    "distrib_optim_sharding_type": "fully_reshardable",
    "singleton_local_shards": False,
    "chained_optim_avoid_prefix": True,
}
"""How the state is sharded, stored in the checkpoint for Megatron-LM's `load_checkpoint`: the distributed optimizer's as one tensor per
parameter, which fits other tensor-, pipeline- and data-parallel sizes."""


def sharded_state(trainer: Trainer, *, loading: bool, same_layout: bool = True) -> dict[str, Any]:
    """Return the state that this rank writes, or reads, as every rank at once; random states, which depend on the layout, only with `same_layout`."""
    if trainer.settings.overlap_param_gather and not loading:
        for part in trainer.model:  # else the replicas get the last update only in the next forward pass
            part.start_param_sync(force_sync=True)
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    metadata = {**CONTENT, "dp_cp_group": group}
    models = {name: part.module.sharded_state_dict(metadata=metadata) for name, part in _parts(trainer).items()}
    if loading:
        for part in _with_torch_adam(trainer):
            if not part.optimizer.state:  # megatron-core reads its step count before it loads one
                part._init_optimizer_states_with_dummy_values()  # noqa: SLF001  # overwritten by loading
    with _packed_positions(trainer):
        optimizer = trainer.optimizer.sharded_state_dict(models, is_loading=loading, metadata=metadata)
    if not same_layout:
        return {**models, "optimizer": optimizer}
    states = {
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(),
        "tracker": get_cuda_rng_tracker().get_states(),
    }
    settings = trainer.settings
    sizes = settings.pipeline_model_parallel_size, settings.tensor_model_parallel_size
    place = parallel_state.get_pipeline_model_parallel_rank(), parallel_state.get_tensor_model_parallel_rank()
    replica = parallel_state.get_data_parallel_rank(with_context_parallel=True)
    random = ShardedObject("rng_state", states, sizes, place, replica_id=replica)
    return {**models, "optimizer": optimizer, "rng_state": random}


def restore(trainer: Trainer, state: dict[str, Any]) -> None:
    """Load a state that was read for `sharded_state` into model, optimizer, schedule and random generators."""
    for name, part in _parts(trainer).items():
        part.module.load_state_dict(state[name])
    with _packed_positions(trainer), _kept_steps(trainer):
        trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.schedule.load_state_dict(state["opt_param_scheduler"])
    if random := state.get("rng_state"):
        if torch.cuda.is_available():
            torch.cuda.set_rng_state(random["device"])
        torch.set_rng_state(random["torch"])
        get_cuda_rng_tracker().set_states(random["tracker"])


def _parts(trainer: Trainer) -> dict[str, Any]:
    alone = len(trainer.model) == 1
    return {"model" if alone else f"model{number}": part for number, part in enumerate(trainer.model)}


@contextmanager
def _kept_steps(trainer: Trainer) -> Iterator[None]:
    """Work around megatron-core 0.16.1's loading of the step counts of torch's Adam, which Apex's keeps elsewhere.

    It copies one per parameter from a checkpoint that has one for all (`_set_main_param_and_optimizer_states`), and shares one tensor
    among all parameters, which each of them would then increment.
    """

    def set_all_but_step(part: Any, parameter: torch.nn.Parameter, tensors: dict[str, torch.Tensor]) -> None:
        group, place = part.model_param_group_index_map[parameter]
        main = part.optimizer.param_groups[group]["params"][place]
        targets = {"param": main, **part.optimizer.state[main]}
        for name, tensor in tensors.items():
            targets[name].copy_(tensor)

    parts = _with_torch_adam(trainer)
    for part in parts:
        part._set_main_param_and_optimizer_states = partial(set_all_but_step, part)  # noqa: SLF001
    try:
        yield
    finally:
        for part in parts:
            del part._set_main_param_and_optimizer_states  # noqa: SLF001
            for state in part.optimizer.state.values():
                state["step"] = state["step"].clone()


def _with_torch_adam(trainer: Trainer) -> list[Any]:
    return [part for part in _distributed(trainer) if isinstance(part.optimizer, torch.optim.AdamW)]


def _distributed(trainer: Trainer) -> list[Any]:
    return [part for part in trainer.optimizer.chained_optimizers if isinstance(part, DistributedOptimizer)]


@contextmanager
def _packed_positions(trainer: Trainer) -> Iterator[None]:
    """Replace the positions of parameters in the distributed optimizer's buffers by those without padding between buckets.

    megatron-core 0.16.1 gathers buckets without their padding (`get_parameter_state_dp_zero`) but uses positions that include it
    (`sharded_param_state_fully_reshardable`), so that parameters after the first bucket would be saved shifted.
    """
    buffers = [buffer for part in _distributed(trainer) for buffer in part.buffers]
    padded = [buffer.param_index_map for buffer in buffers]
    try:
        for buffer in buffers:
            gaps, packed_start = [], 0
            for (start, _), bucket in zip(buffer.bucket_indices, buffer.buckets, strict=True):
                gaps.append(start - packed_start)
                packed_start += bucket.numel_unpadded
            buffer.param_index_map = {
                parameter: (start - gaps[bucket], end - gaps[bucket], bucket)
                for parameter, (start, end, bucket) in buffer.param_index_map.items()
            }
        yield
    finally:
        for buffer, positions in zip(buffers, padded, strict=True):
            buffer.param_index_map = positions
