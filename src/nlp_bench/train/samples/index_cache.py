"""megatron-core's cache of sample indices, read as arrays of numbers: a file of a shared folder must not run code.

megatron-core 0.16.1 reads them with `numpy.load(path, allow_pickle=True, mmap_mode="r")` (gpt_dataset.py,
blended_dataset.py), which unpickles any file that does not begin as an array does; the indices need no pickle.
"""

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nlp_bench.errors import NlpBenchError


class _Numpy(ModuleType):
    """numpy as these modules see it: all of it, but `load` builds arrays only."""

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
