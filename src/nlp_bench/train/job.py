"""What every part of the trainer has to know of this rank's job."""

from dataclasses import dataclass

import torch

from nlp_bench.train.kernels import Kernels
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Job:
    """One rank's work."""

    settings: Settings
    """What was asked for."""
    layout: Layout
    """What follows from it and the number of ranks."""
    kernels: Kernels
    """Which kernels compute."""
    device: torch.device
    """The GPU of this rank, or the CPU."""
