"""Rows of consecutive tokens, from which every family makes its samples: random ones, or those of indexed datasets."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from nlp_bench.data.blend import Blend, parse_blend
from nlp_bench.errors import NlpBenchError
from nlp_bench.train.layout import Layout
from nlp_bench.train.samples.index_cache import guard
from nlp_bench.train.settings import Settings
from nlp_bench.train.world import wait_for_all

NUM_MOCK_ROWS = 64
MAX_INDEXED_ROWS = 1_000_000  # an index of all 300 million samples of an old script would take gigabytes
SURPLUS = 1.005
"""Rows of a blended dataset over its share, as in megatron-core's builder: the blend's rounding may ask for some more."""

Tokens = NDArray[np.int64]


class Rows(Protocol):
    """A list of rows of equal length."""

    def __len__(self) -> int: ...
    def row(self, index: int) -> Tokens:
        """Return row `index`: token numbers [length]."""
        ...


def open_rows(settings: Settings, layout: Layout, length: int, vocab_size: int) -> Rows:
    """Return rows of `length` tokens less than `vocab_size`; every rank calls it at the same time."""
    if settings.mock_data:
        return MockRows(length, vocab_size, settings.seed)
    return IndexedRows(settings, layout, length)


class MockRows:
    """Random tokens, the same ones again after NUM_MOCK_ROWS rows.

    They are as unequally frequent as words (Zipf: token n is drawn in proportion to 1/(n + 1)), so that there is something
    to learn and the embedding is read as it is by text.
    """

    def __init__(self, length: int, vocab_size: int, seed: int) -> None:
        """Draw all rows at once: they are small."""
        shares = np.cumsum(1 / np.arange(1, vocab_size + 1))
        drawn = np.random.default_rng(seed).random((NUM_MOCK_ROWS, length)) * shares[-1]
        self._tokens: Tokens = np.searchsorted(shares, drawn, side="right").clip(max=vocab_size - 1)

    def __len__(self) -> int:
        return NUM_MOCK_ROWS

    def row(self, index: int) -> Tokens:
        """Return row `index`: token numbers [length]."""
        row: Tokens = self._tokens[index]
        return row


class IndexedRows:
    """The training share of indexed datasets, cut and shuffled by megatron-core's GPTDataset, blended by its BlendedDataset."""

    def __init__(self, settings: Settings, layout: Layout, length: int) -> None:
        """Read or build the index; rank 0 builds it while the others wait."""
        self._length = length
        self._parts, self._blended = _in_turn(partial(_open, settings, layout, length))

    def __len__(self) -> int:
        return len(self._parts[0] if self._blended is None else self._blended)

    def row(self, index: int) -> Tokens:
        """Return row `index`: token numbers [length]."""
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


def _open(settings: Settings, layout: Layout, length: int) -> tuple[list[Any], Any]:
    from megatron.core.datasets.blended_dataset import BlendedDataset  # noqa: PLC0415  # not for mock data

    guard()
    blend = parse_blend(settings.data_path)
    wanted = min(layout.train_iters * layout.global_batch_size, MAX_INDEXED_ROWS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about tokenizers, which tokenised data does not need
            parts = [
                _open_one(settings, layout, length, prefix, share)
                for prefix, share in zip(blend.prefixes, _shares(blend, wanted), strict=True)
            ]
            if len(parts) == 1:
                return parts, None
            sized = blend.weights is not None
            weights = list(blend.weights) if blend.weights else [len(part) for part in parts]
            return parts, BlendedDataset(parts, weights, wanted if sized else None, parts[0].config)
    except OSError as error:
        cache = _cache(settings, blend.prefixes[0])
        raise NlpBenchError(f"data_cache_path: cannot write {cache}: {error.strerror}; name another folder") from error


def _shares(blend: Blend, wanted: int) -> list[int | None]:
    """Return how many rows of each dataset are needed; None for one pass through it."""
    if len(blend.prefixes) == 1:
        return [wanted]
    if blend.weights is None:
        return [None] * len(blend.prefixes)
    return [int(np.ceil(wanted * weight / sum(blend.weights) * SURPLUS)) + 1 for weight in blend.weights]


def _cache(settings: Settings, prefix: str) -> Path:
    return Path(settings.data_cache_path or Path(prefix).parent / "cache")


def _open_one(settings: Settings, layout: Layout, length: int, prefix: str, wanted: int | None) -> Any:
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: PLC0415  # not for mock data
    from megatron.core.datasets.utils import Split  # noqa: PLC0415

    config = GPTDatasetConfig(
        random_seed=settings.seed,
        sequence_length=length - 1,  # it adds the token that is guessed last
        blend=([prefix], None),
        split=settings.split,
        path_to_cache=str(_cache(settings, prefix)),
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


def _in_turn(build: Callable[[], Any]) -> Any:
    if torch.distributed.get_rank() == 0:
        result = build()
        wait_for_all()
        return result
    wait_for_all()
    return build()
