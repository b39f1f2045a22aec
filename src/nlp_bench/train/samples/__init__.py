"""Training samples, and the micro-batches made of them: the same ones in the same order for every parallel layout."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from megatron.core import parallel_state
from numpy.typing import NDArray

from nlp_bench.errors import NlpBenchError
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings

Batch = dict[str, torch.Tensor]
"""Tensors [micro_batch_size, ...] by name."""


class Samples(Protocol):
    """A list of samples."""

    def __len__(self) -> int: ...
    def sample(self, index: int) -> Batch:
        """Return the tensors of sample `index` by name, without the dimension of the batch."""
        ...


def microbatches(
    samples: Samples, settings: Settings, layout: Layout, device: torch.device, first_sample: int = 0
) -> Iterator[Batch]:
    """Yield this replica's micro-batches for ever, on `device`, from `first_sample` on.

    Micro-batch m of an iteration holds, over all replicas, consecutive samples; so which samples form a global batch
    does not depend on how many replicas there are. Raises NlpBenchError for tokens outside the vocabulary.
    """
    size = settings.micro_batch_size
    first = first_sample + parallel_state.get_data_parallel_rank() * size
    while True:
        rows = [samples.sample((first + i) % len(samples)) for i in range(size)]
        batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        _check_tokens(batch, settings, layout)
        yield {name: _moved(tensor, device) for name, tensor in batch.items() if not _masks_nothing(name, tensor)}
        first += size * layout.data_parallel_size


def padded(tokens: NDArray[np.int64], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens filled up with 0 to `length`, int64, and a mask that is True at the real ones."""
    filled = torch.zeros(length, dtype=torch.int64)
    filled[: len(tokens)] = torch.from_numpy(tokens)
    return filled, torch.arange(length) < len(tokens)


def _masks_nothing(name: str, tensor: torch.Tensor) -> bool:
    """Whether it is a mask of padding without padding: attention without a mask takes a faster kernel, and here it is known."""
    return name in {"mask", "encoder_mask"} and bool(tensor.all())


def _check_tokens(batch: Batch, settings: Settings, layout: Layout) -> None:
    ends = [(int(tensor.min()), int(tensor.max())) for name, tensor in batch.items() if name.endswith("tokens")]
    least, greatest = min(least for least, _ in ends), max(greatest for _, greatest in ends)
    if least < 0:
        raise NlpBenchError(
            f"data_path: token {least} in {' '.join(settings.data_path)} is negative; make the data anew with nlp-bench data"
        )
    if greatest >= layout.vocab_size:
        raise NlpBenchError(
            f"data_path: token {greatest} in {' '.join(settings.data_path)} is not less than the vocabulary size "
            f"{layout.vocab_size}; give the vocab.json that made the data"
        )


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
