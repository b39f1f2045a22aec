"""Checkpoints written and read by megatron-core's dist_checkpointing, in its format torch_dist."""

import os
import shutil
import warnings
from functools import partial
from multiprocessing import get_context
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.serialization import get_default_save_sharded_strategy
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper
from megatron.core.dist_checkpointing.validation import StrictHandling
from torch.distributed.checkpoint.api import CheckpointException

from nlp_bench.errors import NlpBenchError
from nlp_bench.orphans import die_with_parent
from nlp_bench.train.checkpoint.folder import checkpoint_path, clear, describe, publish, write_record
from nlp_bench.train.checkpoint.integrity import check_index, damaged, only_weights, own_sums, refuse_damaged, with_sums
from nlp_bench.train.checkpoint.state import restore, sharded_state
from nlp_bench.train.trainer import Trainer
from nlp_bench.train.world import wait_for_all

Value = TypeVar("Value")


class Store:
    """The folder that one training writes its checkpoints to."""

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        """Every rank makes one; nothing is written yet."""
        self._trainer, self._folder = trainer, folder
        self._manager: SyncManager | None = None
        self._writing = AsyncCallsQueue()
        strategy = get_default_save_sharded_strategy()
        replicas = parallel_state.get_data_parallel_group(with_context_parallel=True)
        self._strategy = FullyParallelSaveStrategyWrapper(strategy, replicas) if replicas.size() > 1 else strategy
        self._is_checked = False

    def save(self, iteration: int, consumed_samples: int) -> Path:
        """Write a checkpoint and return its path; every rank must call it.

        With --async-save the ranks go on while forked processes write, and `finish` or the next `save` ends it. Raises NlpBenchError
        where the disk refuses.
        """
        self.finish(wait=True)
        trainer, path = self._trainer, checkpoint_path(self._folder, iteration)
        if dist.get_rank() == 0:
            _make_room(self._folder, iteration)
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
                validate_access_integrity=not self._is_checked,  # the parts of the ranks do not change afterwards
                async_sharded_save=trainer.settings.async_save,
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
        """Whether a checkpoint is being written beside the training; the same on every rank."""
        return int(self._writing.get_num_unfinalized_calls()) > 0

    def finish(self, *, wait: bool) -> None:
        """Publish the checkpoint that is being written if all ranks are done with it; with `wait`, once they are."""
        try:
            self._writing.maybe_finalize_async_calls(blocking=wait)
        except (OSError, RuntimeError, CheckpointException) as error:
            raise _unwritable(self._folder, error) from error

    def close(self) -> None:
        """Wait for what is being written and stop the helper process."""
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
        """Start the process that carries the writers' answers ourselves: megatron-core's own would outlive a killed rank."""
        if self._manager is None:
            warnings.filterwarnings(
                "ignore", message=".*use of fork.*", category=DeprecationWarning
            )  # megatron-core forks writers
            os.register_at_fork(after_in_child=die_with_parent)  # its writers would outlive a killed rank, too
            self._manager = SyncManager(ctx=get_context("spawn"))
            self._manager.start(initializer=die_with_parent)
            filesystem_async._results_queue = self._manager.Queue()  # noqa: SLF001  # it makes one only where there is none
            filesystem_async._process_memory = lambda: 0  # noqa: SLF001  # for a debug line; without psutil it hangs every save


def _gathered(own: Value) -> list[Value]:
    """Return what each rank has to say, on every rank."""
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, own)
    return said


def _make_room(folder: Path, iteration: int) -> None:
    try:
        clear(folder, iteration)
    except OSError as error:
        raise NlpBenchError(
            f"save: cannot write {folder}: {error.strerror}; name a writable folder with room"
        ) from error


def _unwritable(path: Path, error: BaseException) -> NlpBenchError:
    said = _first_cause(error)
    return NlpBenchError(
        f"save: cannot write {path}: {said}; check that it is writable and has room{_room(path)}; older checkpoints are untouched"
    )


def _room(path: Path) -> str:
    """Return how much is free there, as torch's zip writer does not say that a disk is full; nothing where that is unknown."""
    try:
        return f" ({shutil.disk_usage(path).free / 2**20:.0f} MiB are free)"
    except OSError:
        return ""


def load(trainer: Trainer, path: Path, record: dict[str, Any]) -> None:
    """Continue from the checkpoint `path`, whose `record` has been checked; every rank must call it.

    Raises NlpBenchError where a file is missing, damaged, or holds what no checkpoint holds.
    """
    problems = _gathered(damaged(path, record, dist.get_rank(), dist.get_world_size()))
    refuse_damaged(path, [problem for part in problems for problem in part])
    if dist.get_rank() == 0:
        check_index(path)
    wait_for_all()  # no rank reads what has not been looked at
    same = all(record["layout"].get(name) == value for name, value in _layout(trainer).items())
    wanted = sharded_state(trainer, loading=True, same_layout=same)
    try:
        with only_weights():
            state = dist_checkpointing.load(wanted, str(path), strict=StrictHandling.RAISE_UNEXPECTED)
    except (
        Exception,
        CheckpointException,
    ) as error:  # torch, megatron-core and zip readers raise anything over a damaged file
        said = _first_cause(error)
        raise NlpBenchError(
            f"load: cannot read {path}: {said}; take an older checkpoint: write its iteration into the file beside it"
        ) from error
    restore(trainer, state)


def _layout(trainer: Trainer) -> dict[str, int]:
    settings = trainer.settings
    return {
        "tensor_model_parallel_size": settings.tensor_model_parallel_size,
        "pipeline_model_parallel_size": settings.pipeline_model_parallel_size,
    }


def _first_cause(error: BaseException) -> str:
    """Return what went wrong in a few words; torch's exception carries the whole traceback of each rank."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
