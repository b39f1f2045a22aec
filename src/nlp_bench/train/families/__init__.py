"""The kinds of networks that can be trained: one file each, which holds the network, its samples and its loss.

What must be known of them before torch is imported is a row of settings/families.py.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig

from nlp_bench.train.model import Job, Place
from nlp_bench.train.samples import Batch, Samples
from nlp_bench.train.settings import Settings
from nlp_bench.train.settings.families import FAMILIES

Loss = Callable[[Any], tuple[torch.Tensor, torch.Tensor]]
"""From the model's output to the loss that is differentiated and the one that is logged; both are means over a micro-batch."""


class Family(ABC):
    """A kind of network."""

    @abstractmethod
    def build(self, job: Job, config: TransformerConfig, place: Place) -> torch.nn.Module:
        """Return one part of the model, with megatron-core's `set_input_tensor`, `pre_process` and `post_process`."""

    @abstractmethod
    def open_samples(self, job: Job) -> Samples:
        """Return the training data; every rank calls it at the same time."""

    @abstractmethod
    def forward(self, job: Job, batch: Batch | None, model: Any) -> tuple[Any, Loss]:
        """Run one micro-batch through one part of the model, wrapped as it is; `batch` is None where `reads` says no."""

    def facts(self, _job: Job) -> dict[str, str]:
        """Return what the log says of tokens and FLOPs."""
        return {"model FLOPs": "3 x forward, causal attention counted as half"}

    def reads(self, job: Job, place: Place) -> bool:
        """Whether this part of the model needs the micro-batch; all parts do where they must know what of it is padding."""
        padded = FAMILIES[job.settings.model_family].hides_tokens and not job.settings.mock_data
        return place.first or place.last or padded


def family_of(settings: Settings) -> Family:
    """Return the family that the settings name; only that one is imported."""
    family: Family = importlib.import_module(f"{__name__}.{settings.model_family}").FAMILY
    return family


def loss_of(mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what a Loss returns; the schedule scales the first of the two in place."""
    return mean, mean.detach().clone()
