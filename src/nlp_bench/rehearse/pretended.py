"""A world of all ranks in one process: process groups that do not communicate, and samples without data."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

from nlp_bench.train import samples, trainer, world
from nlp_bench.train.layout import Layout
from nlp_bench.train.samples import Batch, Samples
from nlp_bench.train.settings import Settings


@contextlib.contextmanager
def pretended_world(settings: Settings, layout: Layout, rank: int) -> Iterator[None]:
    """Be rank `rank` of all ranks of the job; parallel_state is global, so a process can be one rank only."""
    dist.init_process_group("cpu:fake,meta:fake", store=FakeStore(), rank=rank, world_size=layout.world_size)
    with (
        patch.object(dist, "all_gather_object", _everybody_has_mine),
        patch.object(trainer, "microbatches", microbatches),
        patch.object(trainer, "_on_its_way", _at_once),
        patch.object(torch.nn.Module, "_apply", _converted),
        patch.object(
            torch.UntypedStorage, "copy_", lambda storage, *_: storage
        ),  # no data; torch's keeps both storages for ever
    ):
        with patch.object(parallel_state, "create_group", functools.partial(_own_group, parallel_state.create_group)):
            world.divide(settings, layout)
        yield


def _own_group(create: Any, ranks: list[int], *arguments: Any, **options: Any) -> Any:
    """Make only the groups that this rank is in: a job of 16 384 ranks has tens of thousands of others."""
    return create(ranks, *arguments, **options) if dist.get_rank() in ranks else None


def _everybody_has_mine(answers: list[Any], mine: Any, group: Any = None) -> None:
    """Stand for `all_gather_object`, which pickles into tensors; megatron-core compares the optimizer's groups of parameters."""
    del group
    answers[:] = [mine] * len(answers)


def _at_once(numbers: torch.Tensor) -> Any:
    """Stand for the copy of the loss to the host."""
    return lambda: [0.0] * numbers.numel()


def _converted(module: torch.nn.Module, change: Any, recurse: bool = True) -> torch.nn.Module:
    """Stand for torch's conversion of a module, which refuses tensors without data that something else refers to."""
    for child in module.children() if recurse else ():
        child._apply(change)  # type: ignore[no-untyped-call]  # noqa: SLF001  # this function
    with torch.no_grad():
        for parameter in module._parameters.values():  # noqa: SLF001  # as torch's own
            if parameter is not None:
                parameter.data = change(parameter.data)
        for name, buffer in module._buffers.items():  # noqa: SLF001  # as torch's own
            if buffer is not None:
                module._buffers[name] = change(buffer)  # noqa: SLF001
    return module


def microbatches(
    rows: Samples, settings: Settings, layout: Layout, device: torch.device, first_sample: int = 0
) -> Iterator[Batch]:
    """Yield micro-batches of the true shapes and types for ever; the first real one tells them."""
    with _disable_current_modes():
        real = next(samples.microbatches(rows, settings, layout, torch.device("cpu"), first_sample))
    while True:
        yield {name: torch.empty(tensor.shape, dtype=tensor.dtype, device=device) for name, tensor in real.items()}
