"""The datasets of a training and their weights: the values of `--data-path`, parsed as Megatron-LM does."""

import math
from collections.abc import Sequence

from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable

EXAMPLE = "--data-path 0.7 A 0.3 B, or --data-path A B without weights"
MAX_DATASETS = 32766  # BlendedDataset of megatron-core 0.16.1 numbers its datasets in 16 bits (`len(datasets) < 32767`)


@immutable
class Blend:
    """One or several datasets, as megatron-core's `BlendedMegatronDatasetConfig.blend` takes them."""

    prefixes: tuple[str, ...]  # PREFIX of each PREFIX.bin and PREFIX.idx, in the given order
    weights: tuple[float, ...] | None = None  # relative number of samples of each, above 0; None: by their sizes

    def __post_init__(self) -> None:
        for prefix, weight in zip(self.prefixes, self.weights or (1.0,) * len(self.prefixes), strict=True):
            if not 0 < weight < math.inf:  # false for NaN as well
                raise UsageError(
                    f"data_path: weight {weight:g} of {prefix} is not above 0 and finite; leave the dataset out"
                )
            if not prefix:
                raise UsageError(f"data_path: an empty prefix; give {EXAMPLE}")
            if prefix.endswith((".bin", ".idx")):
                remedy = f"give the prefix without .bin and .idx: {prefix[:-4]}"
                raise UsageError(f"data_path: {prefix} names one file of a pair; {remedy}")
        if len(self.prefixes) > MAX_DATASETS:
            count = f"{len(self.prefixes)} datasets"
            raise UsageError(f"data_path: {count}, but megatron-core blends at most {MAX_DATASETS}")


def parse_blend(words: Sequence[str]) -> Blend:
    """Return the blend for the values of `--data-path`.

    The rule is that of `get_blend_from_list` in megatron-core's `datasets/utils.py`: pairs of which the first one is a number are
    weights and prefixes; everything else is prefixes. A weight that this rule would take for a prefix is refused here. Raises
    UsageError, which starts with `data_path`.
    """
    words = tuple(word.strip() for word in words)
    if not words:
        raise UsageError(f"data_path: empty; give {EXAMPLE}")
    numbers = [_number(word) for word in words]
    if not any(number is not None for number in numbers):
        return Blend(prefixes=words)
    for place, (word, number) in enumerate(zip(words, numbers, strict=True), 1):
        if (number is None) == (place % 2 == 1):
            wanted = "a weight" if number is None else f"a prefix (write ./{word} if a dataset has this name)"
            rule = "weights and prefixes take turns, and either all datasets have a weight or none"
            raise UsageError(f"data_path: {word!r} (word {place}) stands where {wanted} must be: {rule}: {EXAMPLE}")
    if len(words) % 2:
        raise UsageError(f"data_path: the last word, {words[-1]!r}, is a weight without a dataset; give {EXAMPLE}")
    return Blend(prefixes=words[1::2], weights=tuple(number for number in numbers[::2] if number is not None))


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
