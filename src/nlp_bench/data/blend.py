"""Which data a training reads, and how much of each: the words of `--data-path`, read as Megatron-LM reads them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nlp_bench.errors import UsageError

EXAMPLE = "--data-path 0.7 A 0.3 B, or --data-path A B without weights"
MAX_DATASETS = 32766
"""BlendedDataset of megatron-core 0.16.1 numbers its datasets in 16 bits (`len(datasets) < 32767`)."""


@dataclass(frozen=True, kw_only=True)
class Blend:
    """One or several datasets, as megatron-core's `BlendedMegatronDatasetConfig.blend` takes them."""

    prefixes: tuple[str, ...]
    """PREFIX of each PREFIX.bin and PREFIX.idx, in the order of the words."""
    weights: tuple[float, ...] | None = None
    """Share of each in the samples, greater than 0, not normalised; None: as large as the datasets are."""


def parse_blend(words: Sequence[str]) -> Blend:
    """Return the blend that the words of `--data-path` describe.

    The rule is that of `get_blend_from_list` in megatron-core's `datasets/utils.py`: an even number of words of which every
    first one of a pair is a number are weights and prefixes; everything else is prefixes. What that rule would take for the
    name of a file although it is meant as a weight is refused here. Raises UsageError that begins with `data_path`.
    """
    words = tuple(word.strip() for word in words)
    if not words:
        raise UsageError(f"data_path: empty; give {EXAMPLE}")
    numbers = [_number(word) for word in words]
    if not any(number is not None for number in numbers):
        return _checked(Blend(prefixes=words))
    if len(words) == 1:
        raise UsageError(f"data_path: {words[0]} is a weight without a dataset; give {EXAMPLE}")
    return _checked(_weighted(words, numbers))


def _weighted(words: tuple[str, ...], numbers: list[float | None]) -> Blend:
    """Return a blend of pairs; `numbers` has the value of each word that is a number."""
    for place in range(0, len(words) - len(words) % 2, 2):
        if numbers[place] is None:
            rule = "weights and prefixes take turns, and either all datasets have a weight or none"
            raise UsageError(
                f"data_path: {words[place]!r} (word {place + 1}) stands where a weight must be: {rule}: {EXAMPLE}"
            )
    if len(words) % 2:
        last = "a weight without a dataset" if numbers[-1] is not None else "a dataset without a weight"
        raise UsageError(f"data_path: the last word, {words[-1]!r}, is {last}; give {EXAMPLE}")
    for place in range(1, len(words), 2):
        if numbers[place] is not None:
            raise UsageError(
                f"data_path: {words[place]!r} (word {place + 1}) is a number where a prefix must be; "
                f"write ./{words[place]} if a dataset has this name"
            )
    weights = tuple(float(number) for number in numbers[::2] if number is not None)
    return Blend(prefixes=words[1::2], weights=weights)


def _checked(blend: Blend) -> Blend:
    for prefix, weight in zip(blend.prefixes, blend.weights or (1.0,) * len(blend.prefixes), strict=True):
        if not 0 < weight < math.inf:  # false for NaN as well
            raise UsageError(
                f"data_path: weight {weight:g} of {prefix} is not above 0 and finite; leave the dataset out"
            )
        if not prefix:
            raise UsageError(f"data_path: an empty prefix; give {EXAMPLE}")
        if prefix.endswith((".bin", ".idx")):
            raise UsageError(
                f"data_path: {prefix} names one file of a pair; give the prefix without .bin and .idx: {prefix[:-4]}"
            )
    if len(blend.prefixes) > MAX_DATASETS:
        raise UsageError(f"data_path: {len(blend.prefixes)} datasets, but megatron-core blends at most {MAX_DATASETS}")
    return blend


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
