"""Writing PREFIX.idx, from memory or by joining the indexes of pieces, with memory for one piece at a time.

The format is that of `_IndexWriter` in megatron-core's `datasets/indexed_dataset.py`, version 1, little endian:
9 bytes "MMIDIDX" and two zeros, uint64 version, uint8 token type, uint64 sequences S, uint64 document entries D + 1,
int32[S] tokens of each sequence, int64[S] first byte of each sequence, int64[D + 1] first sequence of each document and S.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np

from nlp_bench.data.indexed import HEADER, MAGIC, TOKEN_BYTES, VERSION

if TYPE_CHECKING:
    from array import array

    from numpy.typing import NDArray


class Part(Protocol):
    """Documents that follow one another in the data."""

    def size(self) -> tuple[int, int]:
        """Return the number of sequences and of documents."""

    def lengths(self) -> "NDArray[np.int32]":
        """Return the tokens of each sequence."""

    def ends(self) -> "NDArray[np.int64]":
        """Return for each document the sequence behind its last one, counted from the beginning of the part."""


@dataclass(frozen=True)
class MemoryPart:
    """Documents that are known here."""

    tokens_per_sequence: "array[int]"
    """int32, shape (sequences,)."""
    sequences_per_document: "array[int]"
    """int32, shape (documents,)."""

    def size(self) -> tuple[int, int]:
        """Return the number of sequences and of documents."""
        return len(self.tokens_per_sequence), len(self.sequences_per_document)

    def lengths(self) -> "NDArray[np.int32]":
        """Return the tokens of each sequence."""
        return np.array(self.tokens_per_sequence, dtype=np.int32)

    def ends(self) -> "NDArray[np.int64]":
        """Return the running sum of the documents' sequences."""
        return np.cumsum(np.array(self.sequences_per_document, dtype=np.int64))


@dataclass(frozen=True)
class FilePart:
    """Documents of another .idx file."""

    path: Path
    """The file."""

    def size(self) -> tuple[int, int]:
        """Return the number of sequences and of documents."""
        with self.path.open("rb") as stream:
            _, _, _, sequences, entries = HEADER.unpack(stream.read(HEADER.size))
        return sequences, entries - 1

    def lengths(self) -> "NDArray[np.int32]":
        """Read the tokens of each sequence."""
        return np.fromfile(self.path, dtype=np.int32, count=self.size()[0], offset=HEADER.size)

    def ends(self) -> "NDArray[np.int64]":
        """Read the documents' entries; the first one is always 0 and is left out."""
        sequences, documents = self.size()
        return np.fromfile(self.path, dtype=np.int64, count=documents, offset=HEADER.size + 12 * sequences + 8)


def write_index(stream: BinaryIO, token_code: int, parts: Sequence[Part]) -> None:
    """Write the index of all parts in their order; `token_code` is a key of TOKEN_BYTES."""
    sizes = [part.size() for part in parts]
    num_sequences, num_documents = sum(size[0] for size in sizes), sum(size[1] for size in sizes)
    stream.write(HEADER.pack(MAGIC, VERSION, token_code, num_sequences, num_documents + 1))
    stream.writelines(part.lengths().tobytes() for part in parts)
    begin = 0
    for part in parts:
        ends = begin + np.cumsum(part.lengths(), dtype=np.int64) * TOKEN_BYTES[token_code]
        stream.write(np.concatenate(([begin], ends))[:-1].astype(np.int64).tobytes())
        begin = int(ends[-1]) if len(ends) else begin
    stream.write(struct.pack("<q", 0))
    begin = 0
    for part, (count, _) in zip(parts, sizes, strict=True):
        stream.write((begin + part.ends()).tobytes())
        begin += count
