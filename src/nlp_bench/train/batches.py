"""Micro-batches of tokens: the same samples in the same order for every parallel layout."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from megatron.core import parallel_state

from nlp_bench.errors import NlpBenchError
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings

NUM_MOCK_SAMPLES = 64
MAX_INDEXED_SAMPLES = 1_000_000  # an index of all 300 million samples of an old script would take gigabytes


class Samples(Protocol):
    """A list of samples of `seq_length + 1` tokens."""

    def __len__(self) -> int: ...
    def tokens(self, index: int) -> torch.Tensor:
        """Return sample `index`: int64 [seq_length + 1]."""
        ...


class MockSamples:
    """Random tokens, the same ones again after NUM_MOCK_SAMPLES samples."""

    def __init__(self, vocab_size: int, seq_length: int, seed: int) -> None:
        """Draw all samples at once: they are small."""
        generator = torch.Generator().manual_seed(seed)
        self._tokens = torch.randint(vocab_size, (NUM_MOCK_SAMPLES, seq_length + 1), generator=generator)

    def __len__(self) -> int:
        return NUM_MOCK_SAMPLES

    def tokens(self, index: int) -> torch.Tensor:
        """Return sample `index`: int64 [seq_length + 1]."""
        return self._tokens[index]


class IndexedSamples:
    """The training share of an indexed dataset, cut and shuffled by megatron-core's GPTDataset."""

    def __init__(self, settings: Settings, layout: Layout) -> None:
        """Read or build the sample index; rank 0 builds it while the others wait."""
        self._dataset = _in_turn(partial(_open, settings, layout))

    def __len__(self) -> int:
        return len(self._dataset)

    def tokens(self, index: int) -> torch.Tensor:
        """Return sample `index`: int64 [seq_length + 1]."""
        sample, _ = self._dataset._query_document_sample_shuffle_indices(index)  # noqa: SLF001  # builds no masks
        return torch.from_numpy(sample)


class _Vocabulary:
    """What GPTDataset asks of a tokenizer, and what tells one version of the data from another in its cache."""

    def __init__(self, vocab_size: int, prefix: str) -> None:
        self.vocab_size, self.eod = vocab_size, vocab_size - 1
        state = Path(prefix + ".idx").stat()
        self.unique_identifiers = {"vocab_size": vocab_size, "bytes": state.st_size, "changed_ns": state.st_mtime_ns}


def _open(settings: Settings, layout: Layout) -> Any:
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: PLC0415  # not for mock data
    from megatron.core.datasets.utils import Split  # noqa: PLC0415

    prefix = str(settings.data_path)
    cache = Path(settings.data_cache_path or Path(prefix).parent / "cache")
    config = GPTDatasetConfig(
        random_seed=settings.seed,
        sequence_length=settings.seq_length,
        blend=([prefix], None),
        split=settings.split,
        path_to_cache=str(cache),
        tokenizer=_Vocabulary(layout.vocab_size, prefix),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    documents = GPTDataset.build_low_level_dataset(prefix, config)
    weights = [float(word) for word in settings.split.split(",")]
    training = np.arange(round(len(documents) * weights[0] / sum(weights)), dtype=np.int32)
    if not training.size:
        share = f"{settings.split} leaves none of {len(documents)} documents for training"
        raise NlpBenchError(f"split: {share}; use --split 1,0,0 or more data")
    wanted = min(layout.train_iters * layout.global_batch_size, MAX_INDEXED_SAMPLES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about tokenizers, which tokenised data does not need
            return GPTDataset(documents, prefix, training, wanted, Split.train, config)
    except OSError as error:
        raise NlpBenchError(f"data_cache_path: cannot write {cache}: {error.strerror}; name another folder") from error


def _in_turn(build: Callable[[], Any]) -> Any:
    if torch.distributed.get_rank() == 0:
        result = build()
        torch.distributed.barrier()
        return result
    torch.distributed.barrier()
    return build()


def microbatches(samples: Samples, settings: Settings, layout: Layout, device: torch.device) -> Iterator[torch.Tensor]:
    """Yield this replica's micro-batches for ever: int64 [micro_batch_size, seq_length + 1] on `device`.

    Micro-batch m of an iteration holds, over all replicas, consecutive samples; so which samples form a global batch
    does not depend on how many replicas there are.
    """
    size = settings.micro_batch_size
    offset = parallel_state.get_data_parallel_rank() * size
    first = offset
    while True:
        batch = torch.stack([samples.tokens((first + i) % len(samples)) for i in range(size)])
        if int(batch.max()) >= layout.vocab_size:
            raise NlpBenchError(
                f"data_path: token {int(batch.max())} in {settings.data_path} is not less than the vocabulary size "
                f"{layout.vocab_size}; give the vocab.json that made the data"
            )
        yield batch.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else batch
        first += size * layout.data_parallel_size
