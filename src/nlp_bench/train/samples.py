"""Training samples and the micro-batches made of them: the same ones in the same order for every parallel layout."""

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from megatron.core import parallel_state
from numpy.typing import NDArray

from nlp_bench.data.blend import parse_blend
from nlp_bench.errors import NlpBenchError
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings
from nlp_bench.train.world import wait_for_all

T = TypeVar("T")
Batch = dict[str, torch.Tensor]  # tensors [micro_batch_size, ...] by name


Tokens = NDArray[np.int64]


class Rows(Protocol):
    """A list of rows of equal length, each the numbers of its tokens."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Tokens: ...


@dataclass(frozen=True)
class Samples:
    """What a family makes of rows: a sample of each."""

    rows: Rows
    sample: Callable[[int], Batch]  # from the number of a row to tensors by name, without the dimension of the batch


def microbatches(
    samples: Samples, settings: Settings, layout: Layout, device: torch.device, first_sample: int = 0
) -> Iterator[Batch]:
    """Yield this replica's micro-batches for ever, on `device`, from `first_sample` on.

    Micro-batch m of an iteration holds, over all replicas, consecutive samples; so which samples form a global batch
    does not depend on how many replicas there are. Raises NlpBenchError for tokens outside the vocabulary.
    For a GPU they are read one ahead by a thread, so that no step waits for the disk; a CPU has no core to spare.
    """
    found = _read(samples, settings, layout, device, first_sample)
    if device.type != "cuda":
        return found
    return ahead(found, lambda: torch.cuda.set_device(device))  # each thread has its own, which pinning memory asks for


def ahead(items: Iterator[T], begin: Callable[[], None] | None = None) -> Iterator[T]:
    """Yield endless `items`, the next one made by a thread while one is used; what making it raises is raised here."""
    with ThreadPoolExecutor(1, "batches", begin) as reader:
        coming = reader.submit(next, items)
        while True:
            item = coming.result()
            coming = reader.submit(next, items)
            yield item


def _read(
    samples: Samples, settings: Settings, layout: Layout, device: torch.device, first_sample: int
) -> Iterator[Batch]:
    size = settings.micro_batch_size
    first = first_sample + parallel_state.get_data_parallel_rank() * size
    while True:
        rows = [samples.sample((first + i) % len(samples.rows)) for i in range(size)]
        batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        tokens = [tensor for name, tensor in batch.items() if name.endswith("tokens")]
        least, greatest = min(int(one.min()) for one in tokens), max(int(one.max()) for one in tokens)
        source = " ".join(settings.data_path)
        if least < 0:
            raise NlpBenchError(
                f"data_path: token {least} in {source} is negative; make the data anew with nlp-bench data"
            )
        if greatest >= layout.vocab_size:
            remedy = f"{layout.vocab_size}; give the vocab.json that made the data"
            raise NlpBenchError(
                f"data_path: token {greatest} in {source} is not less than the vocabulary size {remedy}"
            )
        for name in {"mask", "encoder_mask"} & set(batch):
            if batch[name].all():  # no padding: attention without a mask takes a faster kernel, and here it is known
                del batch[name]
        if device.type == "cuda":
            batch = {name: tensor.pin_memory().to(device, non_blocking=True) for name, tensor in batch.items()}
        yield batch
        first += size * layout.data_parallel_size


def padded(tokens: NDArray[np.int64], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens filled up with 0 to `length`, int64, and a mask that is True at the real ones."""
    filled = torch.zeros(length, dtype=torch.int64)
    filled[: len(tokens)] = torch.from_numpy(tokens)
    return filled, torch.arange(length) < len(tokens)


NUM_MOCK_ROWS = 64
MAX_INDEXED_ROWS = 1_000_000  # an index of all 300 million samples of an old script would take gigabytes
SURPLUS = 1.005  # rows of a blended dataset over its share: the blend's rounding may ask for some, as in megatron-core


def open_rows(settings: Settings, layout: Layout, length: int, vocab_size: int) -> Rows:
    """Return rows of `length` tokens less than `vocab_size`; every rank calls it at the same time."""
    if settings.mock_data:
        return mock_rows(length, vocab_size, settings.seed)
    return IndexedRows(settings, layout, length)


def mock_rows(length: int, vocab_size: int, seed: int) -> Tokens:
    """Return random tokens [NUM_MOCK_ROWS, length].

    They are as unequally frequent as words (Zipf: token n is drawn in proportion to 1/(n + 1)), so that there is something
    to learn and the embedding is read as it is by text.
    """
    shares = np.cumsum(1 / np.arange(1, vocab_size + 1))
    drawn = np.random.default_rng(seed).random((NUM_MOCK_ROWS, length)) * shares[-1]
    tokens: Tokens = np.searchsorted(shares, drawn, side="right").clip(max=vocab_size - 1)
    return tokens


class IndexedRows:
    """The training share of indexed datasets, cut and shuffled by megatron-core's GPTDataset, blended by its BlendedDataset."""

    def __init__(self, settings: Settings, layout: Layout, length: int) -> None:
        """Read or build the index; rank 0 builds it while the others wait."""
        from megatron.core.datasets.blended_dataset import BlendedDataset  # noqa: PLC0415  # not for mock data

        guard()
        if torch.distributed.get_rank():
            wait_for_all()
        blend = parse_blend(settings.data_path)
        self._blended: Any = None
        cache = Path(settings.data_cache_path or Path(blend.prefixes[0]).parent / "cache")
        wanted = min(layout.train_iters * layout.global_batch_size, MAX_INDEXED_ROWS)
        shares: list[int | None] = [None] * len(blend.prefixes)  # one pass through each
        if len(shares) == 1:
            shares = [wanted]
        elif blend.weights:
            shares = [int(np.ceil(wanted * weight / sum(blend.weights) * SURPLUS)) + 1 for weight in blend.weights]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about tokenizers, which tokenised data does not need
                pairs = zip(blend.prefixes, shares, strict=True)
                self._parts = [_open(settings, layout, length, prefix, share) for prefix, share in pairs]
                if len(shares) > 1:
                    weights = blend.weights or [len(part) for part in self._parts]
                    size = wanted if blend.weights else None
                    self._blended = BlendedDataset(self._parts, list(weights), size, self._parts[0].config)
        except OSError as error:
            said = f"cannot write {cache}: {error.strerror}; name another folder"
            raise NlpBenchError(f"data_cache_path: {said}") from error
        if not torch.distributed.get_rank():
            wait_for_all()

    def __len__(self) -> int:
        return len(self._parts[0] if self._blended is None else self._blended)

    def __getitem__(self, index: int) -> Tokens:
        part = self._parts[0]
        if self._blended is not None:
            part, index = self._parts[self._blended.dataset_index[index]], self._blended.dataset_sample_index[index]
        try:
            row, _ = part._query_document_sample_shuffle_indices(index)  # noqa: SLF001  # builds no masks
        except (ValueError, IndexError) as error:  # a length or place in the index that the data do not have
            prefix = part.dataset.path_prefix
            raise NlpBenchError(
                f"data_path: {prefix}.idx is damaged ({error}); make the data anew with nlp-bench data"
            ) from error
        return row.astype(np.int64)  # type: ignore[no-any-return]


class _Vocabulary:
    """What GPTDataset asks of a tokenizer, and what tells one version of the data from another in its cache."""

    def __init__(self, vocab_size: int, prefix: str) -> None:
        self.vocab_size, self.eod = vocab_size, vocab_size - 1
        state = Path(prefix + ".idx").stat()
        self.unique_identifiers = {"vocab_size": vocab_size, "bytes": state.st_size, "changed_ns": state.st_mtime_ns}


def _open(settings: Settings, layout: Layout, length: int, prefix: str, wanted: int | None) -> Any:
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: PLC0415  # not for mock data
    from megatron.core.datasets.utils import Split  # noqa: PLC0415  # as above

    config = GPTDatasetConfig(
        random_seed=settings.seed,
        sequence_length=length - 1,  # it adds the token that is guessed last
        blend=([prefix], None),
        split=settings.split,
        path_to_cache=settings.data_cache_path or str(Path(prefix).parent / "cache"),
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
        share = f"{settings.split} leaves none of {len(documents)} documents of {prefix} for training"
        raise NlpBenchError(f"split: {share}; use --split 1,0,0 or more data")
    return GPTDataset(documents, prefix, training, wanted, Split.train, config)


class _Numpy(ModuleType):
    """numpy as megatron-core's datasets see it: all of it, but `load` builds arrays only.

    megatron-core 0.16.1 reads its cache of sample indices with `numpy.load(path, allow_pickle=True, mmap_mode="r")` (gpt_dataset.py,
    blended_dataset.py), which unpickles any file that does not begin as an array does: a file of a shared folder must not run
    code, and the indices need no pickle.
    """

    def __init__(self) -> None:
        super().__init__("numpy")

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def load(path: str, *_: Any, mmap_mode: Any = None, **__: Any) -> Any:
        """Return the array of one file of the cache. Raises NlpBenchError for a file that is none."""
        try:
            return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise NlpBenchError(
                f"data_cache_path: {Path(os.fsdecode(path))} is cut short or no index of megatron-core ({error}); remove the "
                "folder, the cache is then made anew"
            ) from error


def guard() -> None:
    """Let megatron-core's datasets read their cache without pickle; calling it again changes nothing."""
    from megatron.core.datasets import blended_dataset, gpt_dataset  # noqa: PLC0415  # not for mock data

    for module in (gpt_dataset, blended_dataset):
        if not isinstance(module.numpy, _Numpy):
            module.numpy = _Numpy()
