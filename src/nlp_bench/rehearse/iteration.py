"""Measures memory, operations and communication of one iteration of a trainer, a real or a rehearsed one."""

import dataclasses
import gc
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from megatron.core import parallel_state
from torch._subclasses.fake_tensor import FakeTensorMode

from nlp_bench.rehearse.gpu import like_gpu
from nlp_bench.rehearse.report import SPLIT, STATIC, RankReport
from nlp_bench.rehearse.storages import Label
from nlp_bench.rehearse.tracker import Tracker, TrackerOfShapes, TrackerWithoutData
from nlp_bench.rehearse.world import fake_world
from nlp_bench.train.kernels.choice import choose_kernels
from nlp_bench.train.layout import Layout
from nlp_bench.train.model import Job
from nlp_bench.train.samples import Batch
from nlp_bench.train.settings import Settings
from nlp_bench.train.trainer import Trainer


def rehearse_here(settings: Settings, layout: Layout, rank: int, accelerator: str) -> RankReport:
    """Rehearse the step of one rank; the process is of no other use afterwards (megatron-core's state is global)."""
    is_gpu = accelerator == "cuda"
    device = torch.device("cuda", 0) if is_gpu else torch.device("cpu")
    tracker = TrackerOfShapes() if is_gpu else TrackerWithoutData()
    like: Any = like_gpu(tracker) if is_gpu else FakeTensorMode(allow_non_fake_inputs=True)
    with warnings.catch_warnings(record=True) as caught, fake_world(settings, layout, rank):
        warnings.simplefilter("always")
        with like, tracker.watching():
            kernels = choose_kernels(settings, device)
            trainer = Trainer(Job(settings=settings, layout=layout, kernels=kernels, device=device))
            report = next_iteration(trainer, tracker, first_iteration(trainer, tracker, shorten=True))
    return dataclasses.replace(report, warnings=tuple(dict.fromkeys(str(one.message) for one in caught)))


def first_iteration(trainer: Trainer, tracker: Tracker, *, shorten: bool) -> dict[str, int]:
    """Train once, which allocates everything that lives for the whole training; return its bytes by STATIC.

    The tracker must have been entered before the trainer was built. With `shorten` the iteration has the fewest micro-batches that
    the schedule allows, which saves time and allocates the same static memory.
    """
    tracker.name_modules(trainer.model)
    trainer.watch_data(lambda batches: _tracked(batches, tracker))
    layout = trainer.layout
    if shorten:
        settings, fewest = trainer.settings, 1
        if layout.virtual_stages > 1:
            group = settings.microbatch_group_size_per_virtual_pipeline_stage or settings.pipeline_model_parallel_size
            fewest = min(layout.num_microbatches, group)
        trainer.layout = dataclasses.replace(layout, num_microbatches=fewest)
    trainer.step(lambda: _votes(trainer))
    trainer.layout = layout
    gc.collect()
    return _classify(trainer, tracker)


def next_iteration(trainer: Trainer, tracker: Tracker, static: dict[str, int]) -> RankReport:
    """Train once more and report it; `static` is the result of `first_iteration`."""
    gc.collect()
    gc.disable()  # it would run at random moments
    tracker.begin()
    try:
        trainer.step(lambda: _votes(trainer))
    finally:
        gc.enable()
    at_peak = tracker.storages.at_peak()
    split = _summed(at_peak)
    modules = {module: count for (kind, module), count in at_peak.items() if kind == "activations"}
    return RankReport(
        rank=torch.distributed.get_rank(),
        place={
            "tensor": parallel_state.get_tensor_model_parallel_rank(),
            "pipeline": parallel_state.get_pipeline_model_parallel_rank(),
            "data": parallel_state.get_data_parallel_rank(),
            "context": parallel_state.get_context_parallel_rank(),
        },
        parameters=sum(p.numel() for part in trainer.model for p in part.parameters()),
        static_bytes=static,
        peak_bytes=tracker.storages.peak,
        peak_split={kind: split[kind] for kind in SPLIT},
        activations=dict(sorted(modules.items(), key=lambda item: -item[1])),
        flops=dict(sorted(tracker.flops.items())),
        collectives=tracker.collectives.found(),
    )


def _votes(trainer: Trainer) -> tuple[bool, ...]:
    """Return as many votes as the training loop casts (train/loop.py, `asks`)."""
    settings = trainer.settings
    asks = settings.exit_duration_in_mins is not None or settings.exit_signal_handler
    return (False, False) if asks else ()


def _tracked(batches: Iterator[Batch], tracker: Tracker) -> Iterator[Batch]:
    """Yield the micro-batches, whose tensors on the device are counted, but not the work of the host to make them."""
    while True:
        with tracker.paused():
            batch = next(batches)
        for tensor in batch.values():
            tracker.storages.add(tensor, tracker.label)
        yield batch
        del batch


def _classify(trainer: Trainer, tracker: Tracker) -> dict[str, int]:
    """Label each living storage by what it is for; return the bytes by STATIC."""
    parts, optimizers = trainer.model, [one.optimizer for one in trainer.optimizer.chained_optimizers]
    parameters = [parameter for part in parts for parameter in part.parameters()]
    kept: list[tuple[str, Any]] = []
    for inner in filter(None, optimizers):  # None on a rank whose share is empty
        kept += [("optimizer", one) for group in inner.param_groups for one in group["params"]]
        kept += [("optimizer", one) for state in inner.state.values() for one in state.values()]
    kept += [("gradients", one.grad_data) for part in parts for one in (*part.buffers, *part.expert_parallel_buffers)]
    kept += [("gradients", one) for p in parameters for one in (getattr(p, "main_grad", None), p.grad)]
    kept += [("weights", parameter.data) for parameter in parameters]
    storages = tracker.storages
    storages.relabel(("buffers", ""))
    for kind, tensor in kept:
        if isinstance(tensor, torch.Tensor):
            storages.label(tensor, (kind, ""))
    found = _summed(storages.now())
    return {kind: found[kind] for kind in STATIC}


def _summed(labelled: dict[Label, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (kind, _), count in labelled.items():
        found[kind] += count
    return found
