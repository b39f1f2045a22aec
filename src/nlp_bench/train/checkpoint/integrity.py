"""Integrity and safety of checkpoints: a CRC-32 of each file, and a check of pickles that runs no code.

torch's format has no check sum that torch compares. CRC-32 (zlib, ISO 3309) is enough against bits that flip on disk or in transfer; it is no
protection against a forger. It detects every error burst of up to 32 bits, any other with probability 1 - 2^-32, and is the fastest in Python's
standard library: 6.7 GB/s on a core of an AMD EPYC, where SHA-256 has 2.0 with the processor's own instructions, BLAKE2b 1.3.
An untrusted checkpoint must not run code: its pickles are checked here or read by torch's safe unpickler. Transformer Engine's 8-bit state is the
exception: that library unpickles it itself (docs/checkpoints.md).
"""

import json
import os
import pickle
import re
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from nlp_bench.errors import NlpBenchError
from nlp_bench.escape import some
from nlp_bench.train.checkpoint.folder import RECORD, TRACKER, iteration_of, whole

OF_A_RANK = re.compile(r"__(\d+)_\d+\.distcp")  # a shard, named by the rank that wrote it
BLOCK_BYTES = 8 << 20
Sums = dict[str, dict[str, int | str]]


def own_sums(path: Path, rank: int, world_size: int) -> Sums:
    """Return size in bytes and CRC-32 of the files that this rank wrote, on rank 0 also of those of no rank. Raises OSError."""
    sums: Sums = {}
    for file in sorted(path.iterdir()):
        found = OF_A_RANK.fullmatch(file.name)
        writer = int(found[1]) if found and int(found[1]) < world_size else 0
        if writer == rank and file.is_file() and file.name != RECORD:
            sums[file.name] = sum_of(file)
    return sums


def sum_of(file: Path) -> dict[str, int | str]:
    """Return the size of a file in bytes and its CRC-32 in hexadecimal. Raises OSError."""
    crc, size, block = 0, 0, memoryview(bytearray(BLOCK_BYTES))
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(block):
            crc, size = zlib.crc32(block[:count], crc), size + count
    return {"bytes": size, "crc32": f"{crc:08x}"}


def with_sums(record: dict[str, Any], sums: Sums) -> dict[str, Any]:
    """Return the checkpoint's record with the sums of its files and of itself."""
    record = {**record, "files": dict(sorted(sums.items()))}
    return {**record, "crc32": _of_record(record)}


def _of_record(record: dict[str, Any]) -> str:
    plain = {name: value for name, value in record.items() if name != "crc32"}
    return f"{zlib.crc32(json.dumps(plain, sort_keys=True).encode()):08x}"


def damaged(path: Path, record: dict[str, Any], rank: int, world_size: int) -> list[str]:
    """Return what is damaged of this rank's share of the record's files, and on rank 0 of the record, in sentences; files without sums count as sound."""
    stated = record.get("files")
    if not isinstance(stated, dict):
        return []
    found = []
    own = _of_record(record)
    if rank == 0 and record.get("crc32") != own:
        found.append(f"{RECORD}: it is not what was written (CRC-32 {own}, it says {record.get('crc32')})")
    for name in sorted(stated)[rank::world_size]:
        try:
            is_now = sum_of(path / name)
        except OSError as error:
            found.append(f"{name}: {error.strerror}")
            continue
        if is_now != stated[name]:
            entries = (one if isinstance(one, dict) else {} for one in (is_now, stated[name]))
            now, then = (f"{one.get('bytes')} bytes, CRC-32 {one.get('crc32')}" for one in entries)
            found.append(f"{name}: it is not what was saved ({now}, {RECORD} says {then})")
    return found


def refuse_damaged(path: Path, problems: list[str]) -> None:
    """Raise NlpBenchError with the damaged files and the command that selects the next older checkpoint, if there are problems."""
    if not problems:
        return
    older = [number for number in map(iteration_of, whole(path.parent)) if number < iteration_of(path)]
    remedy = (
        f"take the next older one and repeat: echo {older[-1]} > {shlex.quote(str(path.parent / TRACKER))}"
        if older
        else "no older one is there: bring the file back from a copy, or begin anew without --load"
    )
    raise NlpBenchError(f"load: {path} is damaged: {some(problems, 3, '; ')}; {remedy}")


INDEX = ".metadata"  # torch.distributed.checkpoint's index: a pickle that torch 2.13 reads without any check
COMMON = "common.pt"  # state common to all ranks (megatron-core, `dist_checkpointing/strategies/common.py`)
FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""Makes torch.load build only tensors and plain values, even where its caller allows more (torch/serialization.py)."""
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
"""Module to the classes that an index needs."""


def _member(kind: Any, name: str) -> Any:
    """Stand in for getattr, by which Python before 3.11.4 pickles a member of an enum: nothing else of a class is given out."""
    if not (isinstance(kind, type) and issubclass(kind, Enum) and name in kind.__members__):
        raise NlpBenchError(f"it asks for {name!r} of {kind!r}, which no checkpoint needs")
    return kind[name]


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member
        if name not in ALLOWED.get(module, set()):
            raise NlpBenchError(f"it asks for {module}.{name}, which no checkpoint needs")
        return super().find_class(module, name)


def check_index(path: Path) -> None:
    """Raise NlpBenchError if the index of the checkpoint `path` refers to anything but ALLOWED, or cannot be read."""
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
    """Make torch.load build only tensors and plain values inside this block."""
    before = {name: word for name, word in os.environ.items() if name == FORCE}
    os.environ[FORCE] = "1"
    try:
        yield
    finally:
        os.environ.pop(FORCE)
        os.environ.update(before)
