"""Megatron's indexed data, PREFIX.bin and PREFIX.idx: is it whole? Reads the index only, without numpy or torch."""

import struct
from pathlib import Path
from typing import BinaryIO

from nlp_bench.data.present import require_file
from nlp_bench.errors import UsageError

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")  # magic, version, token type, sequences, document entries
TOKEN_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2}
"""Code of a token's type and its bytes; 6 and 7 are float64 and float32, which no token has."""
TOKEN_CODES = {2: 8, 4: 4}
"""Bytes of a token and its code as we write it: uint16 or int32."""
UINT16_LIMIT = 65500
"""megatron-core's `DType.optimal_dtype`: a vocabulary below this is written in 2 bytes."""
REMEDY = "make the data anew with nlp-bench data"


def token_bytes_for(vocab_size: int) -> int:
    """Return the bytes of a token for a vocabulary, as megatron-core chooses them."""
    return 2 if vocab_size < UINT16_LIMIT else 4


def check_indexed(prefix: str) -> None:
    """Raise UsageError when PREFIX.bin or PREFIX.idx is missing, a git-lfs pointer, truncated or something else.

    The format is that of megatron-core's `datasets/indexed_dataset.py`: a header, then the length (int32) and the first
    byte (int64) of each sequence, then the first sequence of each document (int64) and the number of sequences. The ends of
    the three lists are looked at, not every entry: an index may have gigabytes.
    """
    paths = [Path(prefix + ".bin"), Path(prefix + ".idx")]
    for path in paths:
        _require(path)
    found, expected = paths[0].stat().st_size, _expected_bytes(paths[1])
    if found != expected:
        what = "truncated" if found < expected else "of other data than its index"
        raise UsageError(
            f"data_path: {paths[0]} has {found} bytes but its index says {expected}; it is {what}; {REMEDY}"
        )


def _require(path: Path) -> None:
    if path.is_symlink() and not path.exists():
        raise UsageError(
            f"data_path: {path} is a link to {path.readlink()}, which does not exist; fetch the data (git annex get)"
        )
    if not path.exists():
        given = path.with_suffix("")
        hint = (
            f"give the prefix {given.with_suffix('')}"
            if given.suffix in {".bin", ".idx"}
            else "make it with nlp-bench data"
        )
        raise UsageError(f"data_path: {path} does not exist; {hint}, or use --mock-data")
    if not path.is_file():
        raise UsageError(f"data_path: {path} is no file; {REMEDY}")
    require_file("data_path", path)


def _expected_bytes(index: Path) -> int:
    """Return the bytes that .bin must have; raises UsageError where the index contradicts itself."""
    size = index.stat().st_size
    with index.open("rb") as stream:
        header = stream.read(HEADER.size)
        if len(header) < HEADER.size or not header.startswith(MAGIC):
            raise UsageError(f"data_path: {index} is not a Megatron index (wrong first bytes); {REMEDY}")
        _, version, kind, sequences, entries = HEADER.unpack(header)
        if version != VERSION or kind not in TOKEN_BYTES:
            raise UsageError(f"data_path: {index} has version {version}, token type {kind}; only version 1 is known")
        whole = HEADER.size + 12 * sequences + 8 * entries
        if size != whole:
            raise UsageError(f"data_path: {index} has {size} bytes but its header says {whole}; {REMEDY}")
        if not sequences or entries < 2:
            raise UsageError(f"data_path: {index} holds no sequences; {REMEDY}")
        length = _number(stream, "<i", HEADER.size + 4 * (sequences - 1))
        pointers, documents = HEADER.size + 4 * sequences, HEADER.size + 12 * sequences
        ends = {
            "the first sequence begins at byte": (_number(stream, "<q", pointers), 0),
            "the first document begins with sequence": (_number(stream, "<q", documents), 0),
            "the last document ends with sequence": (_number(stream, "<q", whole - 8), sequences),
        }
        for what, (found, expected) in ends.items():
            if found != expected:
                raise UsageError(f"data_path: {index} is damaged: {what} {found}, not {expected}; {REMEDY}")
        return _number(stream, "<q", documents - 8) + length * TOKEN_BYTES[kind]


def _number(stream: BinaryIO, form: str, place: int) -> int:
    stream.seek(place)
    (found,) = struct.unpack(form, stream.read(struct.calcsize(form)))
    return int(found)
