"""One rank's rehearsal, inside the process that is that rank."""

import dataclasses
import warnings
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from nlp_bench.rehearse.iteration import first_iteration, next_iteration
from nlp_bench.rehearse.like_gpu import like_gpu
from nlp_bench.rehearse.pretended import pretended_world
from nlp_bench.rehearse.report import RankReport
from nlp_bench.rehearse.without_data import TrackerOfShapes, TrackerWithoutData
from nlp_bench.train.kernels import choose_kernels
from nlp_bench.train.layout import Layout
from nlp_bench.train.model import Job
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
    with warnings.catch_warnings(record=True) as caught, pretended_world(settings, layout, rank):
        warnings.simplefilter("always")
        with like, tracker.watching():
            kernels = choose_kernels(settings, device)
            trainer = Trainer(Job(settings=settings, layout=layout, kernels=kernels, device=device))
            report = next_iteration(trainer, tracker, first_iteration(trainer, tracker, shorten=True))
    said = tuple(dict.fromkeys(str(one.message) for one in caught))
    return dataclasses.replace(report, warnings=said)
