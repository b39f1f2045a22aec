"""A checkpoint of a stranger must not run code: what is pickled in it is looked at or read by torch's safe reader.

Transformer Engine's 8-bit state is the exception: that library unpickles it by itself (docs/checkpoints.md says so).
"""

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nlp_bench.errors import NlpBenchError

INDEX = ".metadata"
"""torch.distributed.checkpoint's index of tensors and files: a pickle that torch 2.13 reads without any check."""
COMMON = "common.pt"
"""What all ranks share, as megatron-core names it (`dist_checkpointing/strategies/common.py`, COMMON_STATE_FNAME)."""
FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""torch.load then never builds anything but tensors and plain values, also where its caller asks for more (torch/serialization.py)."""
ALLOWED = {
    "torch": {"Size", "float32", "float16", "bfloat16", "float64", "uint8", "int16", "int32", "int64", "bool"},
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "TensorProperties", "ChunkStorageMetadata", "MetadataIndex",
        "StorageMeta", "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.planner": {"SavePlan", "TensorWriteData", "WriteItem", "WriteItemType"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
}  # fmt: skip
"""Everything that an index needs."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in ALLOWED.get(module, set()):
            raise NlpBenchError(f"it asks for {module}.{name}, which no checkpoint needs")
        return super().find_class(module, name)


def check_index(path: Path) -> None:
    """Refuse the checkpoint `path` if its index asks for anything but the classes of an index. Raises NlpBenchError."""
    index = path / INDEX
    try:
        with index.open("rb") as stream:
            _Reader(stream).load()
    except OSError as error:
        raise NlpBenchError(f"load: cannot read {index}: {error.strerror}; take an older checkpoint") from error
    except Exception as error:  # a damaged pickle raises anything
        raise NlpBenchError(
            f"load: {index} is damaged or not what it seems: {error}; take an older checkpoint"
        ) from error
    if not (path / COMMON).is_file():
        raise NlpBenchError(f"load: {path / COMMON} is missing; take an older checkpoint")


@contextmanager
def only_weights() -> Iterator[None]:
    """Let torch.load build nothing but tensors and plain values inside this block."""
    before = os.environ.get(FORCE)
    os.environ[FORCE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FORCE]
        else:
            os.environ[FORCE] = before
