"""What the log says of the training before its first iteration, asked of the objects that will run."""

import time

import torch

from nlp_bench.train import dump, world
from nlp_bench.train.kernels.recompute import recompute_text
from nlp_bench.train.trainer import Trainer


def facts_of(trainer: Trainer) -> dict[str, str]:
    """Return the facts in the order in which they are printed; every rank must call it."""
    settings, on_gpu = trainer.settings, trainer.device.type == "cuda"
    return {
        "versions": dump.versions(torch.version.cuda),
        "device": torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads per rank",
        "backend": torch.distributed.get_backend(),
        **trainer.job.kernels.describe(),
        "optimizer": trainer.optimizer_name,
        "recompute": recompute_text(settings),
        "initial weights": "same for every layout" if settings.use_cpu_initialization or not on_gpu else "by layout",
        "data": dump.data_text(settings),
        **trainer.family.facts(trainer.job),
        "number of parameters": f"{trainer.num_parameters()}",
        "clocks of the ranks": f"within {_clock_spread_s(trainer.device):.6f} s after a barrier",
    }


def _clock_spread_s(device: torch.device) -> float:
    """Return how far the clocks of the ranks are apart, at most: they are read as all leave a reduction. All ranks call it."""
    world.greatest(0, device)
    now_us = time.time_ns() // 1000
    return (world.greatest(now_us, device) + world.greatest(-now_us, device)) / 1e6
