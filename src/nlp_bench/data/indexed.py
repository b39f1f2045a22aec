"""Megatron's indexed data, PREFIX.bin and PREFIX.idx: is it whole? Reads the index only, without numpy or torch."""

import struct
from pathlib import Path

from nlp_bench.data.present import require_file
from nlp_bench.errors import UsageError

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")  # magic, version, token type, sequences, documents
TOKEN_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}
REMEDY = "make the data anew with nlp-bench data"


def check_indexed(prefix: str) -> None:
    """Raise UsageError when PREFIX.bin or PREFIX.idx is missing, a git-lfs pointer, truncated or something else.

    The format is that of megatron-core's `datasets/indexed_dataset.py`: a header, then the length (int32) and the first
    byte (int64) of each sequence, then the first sequence of each document (int64).
    """
    paths = [Path(prefix + ".bin"), Path(prefix + ".idx")]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"data_path: {path} does not exist; make it with nlp-bench data, or use --mock-data")
        require_file("data_path", path)
    found, expected = paths[0].stat().st_size, _expected_bytes(paths[1])
    if found != expected:
        raise UsageError(f"data_path: {paths[0]} has {found} bytes but its index says {expected}; {REMEDY}")


def _expected_bytes(index: Path) -> int:
    size = index.stat().st_size
    with index.open("rb") as stream:
        header = stream.read(HEADER.size)
        if len(header) < HEADER.size or not header.startswith(MAGIC):
            raise UsageError(f"data_path: {index} is not a Megatron index (wrong first bytes); {REMEDY}")
        _, version, kind, sequences, documents = HEADER.unpack(header)
        if version != 1 or kind not in TOKEN_BYTES:
            raise UsageError(f"data_path: {index} has version {version}, token type {kind}; only version 1 is known")
        whole = HEADER.size + 12 * sequences + 8 * documents
        if size != whole:
            raise UsageError(f"data_path: {index} has {size} bytes but its header says {whole}; {REMEDY}")
        if not sequences:
            raise UsageError(f"data_path: {index} holds no sequences; {REMEDY}")
        stream.seek(HEADER.size + 4 * (sequences - 1))
        (length,) = struct.unpack("<i", stream.read(4))
        stream.seek(HEADER.size + 12 * sequences - 8)
        (first_byte,) = struct.unpack("<q", stream.read(8))
    return int(first_byte + length * TOKEN_BYTES[kind])
