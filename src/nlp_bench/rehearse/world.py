"""All ranks of a job in one process: process groups that do not communicate, and samples without data."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch.utils._python_dispatch import _disable_current_modes

from nlp_bench.rehearse.tracker import substituted
from nlp_bench.train import samples, trainer, world
from nlp_bench.train.layout import Layout
from nlp_bench.train.samples import Batch, Samples
from nlp_bench.train.settings import Settings

BACKEND = "rehearsal"


class _FakeGroup(dist.ProcessGroup):
    """A group with only a rank and a size: the tracker completes every collective before it reaches the group."""

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        return BACKEND


def _fake_group(options: Any, _: Any) -> _FakeGroup:
    return _FakeGroup(options.group_rank, options.group_size)  # type: ignore[call-arg]  # torch declares another constructor


@contextlib.contextmanager
def fake_world(settings: Settings, layout: Layout, rank: int) -> Iterator[None]:
    """Make this process rank `rank` of the job; parallel_state is global, so it can be one rank only."""
    dist.Backend.register_backend(BACKEND, _fake_group, extended_api=True, devices=["cpu", "meta"])
    groups = f"cpu:{BACKEND},meta:{BACKEND}"
    store = dist.HashStore()  # type: ignore[attr-defined]  # public, but not in torch's types
    dist.init_process_group(groups, store=store, rank=rank, world_size=layout.world_size)
    create = parallel_state.create_group

    def own_group(ranks: list[int], *arguments: Any, **options: Any) -> Any:
        return create(ranks, *arguments, **options) if rank in ranks else None

    with substituted(
        # pickles into tensors without data; optimizers compare their groups
        (dist, "all_gather_object", _gather_own),
        (trainer, "microbatches", microbatches),
        (trainer, "_copy_to_host", lambda numbers: lambda: [0.0] * numbers.numel()),  # copies the loss to the host
        (torch.nn.Module, "_apply", _converted),  # torch's refuses tensors without data that have other references
        (torch.UntypedStorage, "copy_", lambda storage, *_: storage),  # no data; torch's never frees the storages
    ):
        # a job of 16 384 ranks has tens of thousands of groups that this rank is not in
        with substituted((parallel_state, "create_group", own_group)):
            world.divide(settings, layout)
        yield


def _gather_own(gathered: list[Any], own: Any, group: Any = None) -> None:
    del group
    gathered[:] = [own] * len(gathered)


def _converted(module: torch.nn.Module, change: Any, recurse: bool = True) -> torch.nn.Module:
    """Replace torch's conversion of a module."""
    for child in module.children() if recurse else ():
        child._apply(change)  # type: ignore[no-untyped-call]  # noqa: SLF001  # recurses into this function
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
    """Yield endless micro-batches without data, of the shapes and types of the first real one."""
    with _disable_current_modes():
        real = next(samples.microbatches(rows, settings, layout, torch.device("cpu"), first_sample))
    while True:
        yield {name: torch.empty(tensor.shape, dtype=tensor.dtype, device=device) for name, tensor in real.items()}
