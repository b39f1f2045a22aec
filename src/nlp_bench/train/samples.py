"""Training samples and micro-batches: the same ones in the same order for every parallel layout."""

import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from megatron.core import parallel_state
from numpy.typing import NDArray

from nlp_bench.data.blend import parse_blend
from nlp_bench.errors import NlpBenchError, explained
from nlp_bench.files import SEEN_WITHIN_S, await_file
from nlp_bench.immutable import immutable
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings
from nlp_bench.train.world import wait_for_all

T = TypeVar("T")
Batch = dict[str, torch.Tensor]  # tensors [micro_batch_size, ...] by name


Tokens = NDArray[np.int64]


class Rows(Protocol):
    """A list of rows of token ids, all of one length."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Tokens: ...


@immutable(kw_only=False)
class Samples:
    """The samples that a family makes of rows, one of each."""

    rows: Rows
    sample: Callable[[int], Batch]  # from the index of a row to tensors by name, without the batch dimension


def microbatches(
    samples: Samples, settings: Settings, layout: Layout, device: torch.device, first_sample: int = 0
) -> Iterator[Batch]:
    """Yield this replica's micro-batches endlessly, on `device`, from `first_sample` on.

    Micro-batch m of an iteration holds, over all replicas, consecutive samples; so the samples of a global batch do not depend on the
    number of replicas. Raises NlpBenchError for tokens outside the vocabulary.
    For a GPU a thread reads one ahead, so that no step waits for the disk; on a CPU it would take a core from the training.
    """
    found = _read(samples, settings, layout, device, first_sample)
    if device.type != "cuda":
        return found
    return ahead(found, lambda: torch.cuda.set_device(device))  # per thread; pinning memory needs it


def ahead(items: Iterator[T], begin: Callable[[], None] | None = None) -> Iterator[T]:
    """Yield endless `items`; a thread prepares the next one while one is used, and its errors are raised here."""
    with ThreadPoolExecutor(1, "batches", begin) as reader:
        coming = reader.submit(next, items)
        while True:
            item = coming.result()
            coming = reader.submit(next, items)
            yield item


def _read(samples: Samples, settings: Settings, layout: Layout, device: torch.device, start: int) -> Iterator[Batch]:
    size = settings.micro_batch_size
    first = start + parallel_state.get_data_parallel_rank() * size
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
            if batch[name].all():  # no padding: attention without a mask has a faster kernel
                del batch[name]
        if device.type == "cuda":
            batch = {name: tensor.pin_memory().to(device, non_blocking=True) for name, tensor in batch.items()}
        yield batch
        first += size * layout.data_parallel_size


def padded(tokens: NDArray[np.int64], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens padded with 0 to `length`, int64, and a mask that is True at the real ones."""
    filled = torch.zeros(length, dtype=torch.int64)
    filled[: len(tokens)] = torch.from_numpy(tokens)
    return filled, torch.arange(length) < len(tokens)


NUM_MOCK_ROWS = 64
MAX_INDEXED_ROWS = 1_000_000  # an index of the 300 million samples of an old script would take gigabytes
SURPLUS = 1.005  # factor on the rows of a blended dataset, some more because the blend rounds, as in megatron-core


def open_rows(settings: Settings, layout: Layout, length: int, vocab_size: int) -> Rows:
    """Return rows of `length` token ids below `vocab_size`; every rank calls it at the same time."""
    if settings.mock_data:
        return mock_rows(length, vocab_size, settings.seed)
    return IndexedRows(settings, layout, length)


def mock_rows(length: int, vocab_size: int, seed: int) -> Tokens:
    """Return random tokens [NUM_MOCK_ROWS, length] by Zipf's law, token n as 1/(n + 1), like words: so there is something to learn, and embeddings to look up."""
    shares = np.cumsum(1 / np.arange(1, vocab_size + 1))
    drawn = np.random.default_rng(seed).random((NUM_MOCK_ROWS, length)) * shares[-1]
    tokens: Tokens = np.searchsorted(shares, drawn, side="right").clip(max=vocab_size - 1)
    return tokens


class IndexedRows:
    """The training share of indexed datasets, split and shuffled by megatron-core's GPTDataset, blended by its BlendedDataset."""

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
            if error.filename and not Path(error.filename).is_relative_to(cache):
                raise NlpBenchError(f"data_path: cannot read {error.filename}: {explained(error)}") from error
            why = f"cannot write {cache}: {error.strerror}; name another folder; nlp-bench submit takes cache/ beside the data, so give it data that lie "
            why += "where the nodes may write (nlp-bench data --output FOLDER, then --data-path FOLDER/corpus_text_document)"
            raise NlpBenchError(f"data_cache_path: {why}") from error
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
        except (ValueError, IndexError) as error:  # a length or offset in the index beyond the data
            prefix = part.dataset.path_prefix
            raise NlpBenchError(
                f"data_path: {prefix}.idx is damaged ({error}); make the data anew with nlp-bench data"
            ) from error
        return row.astype(np.int64)  # type: ignore[no-any-return]


class _Vocabulary:
    """The part of a tokenizer that GPTDataset needs; its identifiers distinguish versions of the data in the cache."""

    def __init__(self, vocab_size: int, prefix: str) -> None:
        self.vocab_size, self.eod = vocab_size, vocab_size - 1
        state = Path(prefix + ".idx").stat()
        self.unique_identifiers = {"vocab_size": vocab_size, "bytes": state.st_size, "changed_ns": state.st_mtime_ns}


def _open(settings: Settings, layout: Layout, length: int, prefix: str, wanted: int | None) -> Any:
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: PLC0415  # not for mock data
    from megatron.core.datasets.utils import Split  # noqa: PLC0415  # as above

    config = GPTDatasetConfig(
        random_seed=settings.seed,
        sequence_length=length - 1,  # it adds the last token to predict
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
    """numpy for megatron-core's datasets: all of it, but `load` does not unpickle, and `save` leaves no half file to another job.

    megatron-core 0.16.1 reads its cache of sample indices with `numpy.load(path, allow_pickle=True, mmap_mode="r")` (gpt_dataset.py,
    blended_dataset.py), which unpickles any file without the magic bytes of an array: a file in a shared folder must not run code, and
    the indices need no pickle.
    """

    def __init__(self) -> None:
        super().__init__("numpy")

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def save(path: str, array: Any, **_: Any) -> None:
        """Write the file whole or not at all: jobs that begin at once with new data all build its index, and read it while others write."""
        part = f"{path}.{uuid.uuid4().hex[:8]}.part"
        with open(part, "wb") as file:  # noqa: PTH123  # given the name alone, numpy would append its own ending
            np.save(file, array, allow_pickle=False)
        os.replace(part, path)  # noqa: PTH105  # the names are megatron-core's, words

    @staticmethod
    def load(path: str, *_: Any, mmap_mode: Any = None, **__: Any) -> Any:
        """Return the array in a file of the cache, which rank 0 has written and another node may see later. Raises NlpBenchError for any other file."""
        file = Path(os.fsdecode(path))
        await_file(file)
        try:
            return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        except FileNotFoundError as error:
            why = f"{file}, which rank 0 has written, is not seen here after {SEEN_WITHIN_S:.0f} s"
            raise NlpBenchError(
                f"data_cache_path: {why}: the file system shows it late; start the training again"
            ) from error
        except (ValueError, EOFError) as error:
            raise NlpBenchError(
                f"data_cache_path: {file} is cut short or no index of megatron-core ({error}); remove the "
                "folder, the cache is then made anew"
            ) from error


def guard() -> None:
    """Make megatron-core's datasets read their cache without pickle; idempotent."""
    from megatron.core.datasets import blended_dataset, gpt_dataset  # noqa: PLC0415  # not for mock data

    for module in (gpt_dataset, blended_dataset):
        if not isinstance(module.numpy, _Numpy):
            module.numpy = _Numpy()
