"""One iteration of a trainer, watched: of a real one and of a rehearsed one alike."""

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
from nlp_bench.rehearse.report import SPLIT, STATIC, Place, RankReport
from nlp_bench.rehearse.storages import Label
from nlp_bench.rehearse.tracker import Tracker, TrackerOfShapes, TrackerWithoutData
from nlp_bench.rehearse.world import fake_world
from nlp_bench.train.kernels import choose_kernels
from nlp_bench.train.layout import Layout
from nlp_bench.train.model import Job
from nlp_bench.train.samples import Batch
from nlp_bench.train.settings import Settings
from nlp_bench.train.trainer import Trainer


def rehearse_here(settings: Settings, layout: Layout, rank: int, accelerator: str) -> RankReport:
    """Run the step of this rank; the process can do nothing else afterwards (megatron-core's state is global)."""
    device = torch.device("cuda", 0) if accelerator == "cuda" else torch.device("cpu")
    tracker: TrackerWithoutData
    if accelerator == "cuda":
        tracker = TrackerOfShapes()
        like: Any = like_gpu(tracker)
    else:
        tracker, like = TrackerWithoutData(), FakeTensorMode(allow_non_fake_inputs=True)
    with warnings.catch_warnings(record=True) as caught, fake_world(settings, layout, rank):
        warnings.simplefilter("always")
        with like, tracker.watching():
            kernels = choose_kernels(settings, device)
            trainer = Trainer(Job(settings=settings, layout=layout, kernels=kernels, device=device))
            report = next_iteration(trainer, tracker, first_iteration(trainer, tracker, shorten=True))
    return dataclasses.replace(report, warnings=tuple(dict.fromkeys(str(one.message) for one in caught)))


def first_iteration(trainer: Trainer, tracker: Tracker, *, shorten: bool) -> dict[str, int]:
    """Train once, so that all that lives for the whole training is there; return its bytes by what they are for.

    The tracker must have been entered before the trainer was built. With `shorten` the iteration has as few micro-batches as its
    schedule allows, which saves time: it only makes the optimizer's state and the tables that are kept.
    """
    tracker.name_modules(trainer.model)
    trainer.watch_data(lambda batches: _outside(batches, tracker))
    layout = trainer.layout
    if shorten:
        trainer.layout = dataclasses.replace(layout, num_microbatches=_fewest(trainer))
    trainer.step(lambda: _votes(trainer))
    trainer.layout = layout
    gc.collect()
    return _classify(trainer, tracker)


def next_iteration(trainer: Trainer, tracker: Tracker, static: dict[str, int]) -> RankReport:
    """Train once more and report it; `static` is what `first_iteration` has returned."""
    gc.collect()
    gc.disable()  # when it runs is chance
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
        place=Place(
            tensor=parallel_state.get_tensor_model_parallel_rank(),
            pipeline=parallel_state.get_pipeline_model_parallel_rank(),
            data=parallel_state.get_data_parallel_rank(),
            context=parallel_state.get_context_parallel_rank(),
        ),
        parameters=sum(p.numel() for part in trainer.model for p in part.parameters()),
        static_bytes=static,
        peak_bytes=tracker.storages.peak,
        peak_split={kind: split[kind] for kind in SPLIT},
        activations=dict(sorted(modules.items(), key=lambda item: -item[1])),
        flops=dict(sorted(tracker.flops.items())),
        collectives=tracker.collectives.found(),
    )


def _votes(trainer: Trainer) -> tuple[bool, ...]:
    """Return as many votes as the training loop casts (train/checkpoint/keeper.py, `asks`)."""
    settings = trainer.settings
    asks = settings.exit_duration_in_mins is not None or settings.exit_signal_handler
    return (False, False) if asks else ()


def _fewest(trainer: Trainer) -> int:
    if trainer.layout.virtual_stages == 1:
        return 1
    settings = trainer.settings
    group = settings.microbatch_group_size_per_virtual_pipeline_stage or settings.pipeline_model_parallel_size
    return min(trainer.layout.num_microbatches, group)


def _outside(batches: Iterator[Batch], tracker: Tracker) -> Iterator[Batch]:
    """Count the micro-batch on the device, and nothing of what the host does to make it."""
    while True:
        with tracker.paused():
            batch = next(batches)
        for tensor in batch.values():
            tracker.storages.add(tensor, tracker.label)
        yield batch
        del batch


def _classify(trainer: Trainer, tracker: Tracker) -> dict[str, int]:
    """Say what each living storage is for; return their bytes."""
    storages = tracker.storages
    storages.relabel(lambda _: ("buffers", ""))
    for tensor in _optimizer_tensors(trainer):
        storages.label(tensor, ("optimizer", ""))
    for tensor in _gradients(trainer):
        storages.label(tensor, ("gradients", ""))
    for part in trainer.model:
        for parameter in part.parameters():
            storages.label(parameter.data, ("weights", ""))
    held = _summed(storages.now())
    return {kind: held[kind] for kind in STATIC}


def _gradients(trainer: Trainer) -> Iterator[torch.Tensor]:
    for part in trainer.model:
        for buffer in (*part.buffers, *part.expert_parallel_buffers):
            yield buffer.grad_data
        for parameter in part.parameters():
            for tensor in (getattr(parameter, "main_grad", None), parameter.grad):
                if tensor is not None:
                    yield tensor


def _optimizer_tensors(trainer: Trainer) -> Iterator[torch.Tensor]:
    for one in trainer.optimizer.chained_optimizers:
        inner = one.optimizer
        if inner is None:  # a rank whose share is empty
            continue
        for group in inner.param_groups:
            yield from group["params"]
        for state in inner.state.values():
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _summed(labelled: dict[Label, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (kind, _), count in labelled.items():
        found[kind] += count
    return found
