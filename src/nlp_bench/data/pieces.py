"""Finished pieces of a shard: PREFIX.shards/NAME.KEY.NUMBER.bin, .idx and .json. What is here need not be done again.

Each is a whole indexed dataset of its own. It is written under a temporary name, flushed, renamed, and its record comes last:
a piece without a record does not exist.
"""

import contextlib
import hashlib
import json
import os
from array import array
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from nlp_bench.data.index_file import MemoryPart, write_index
from nlp_bench.data.indexed import HEADER, TOKEN_CODES
from nlp_bench.data.worker import MAX_NAMED, Encoded
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import read_object, write_json

SCHEMA = "nlp-bench/data-piece/1"
_NAME_CHARACTERS = 120


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What a piece holds, as its record has it."""

    end: int = 0
    """Byte behind its last line in the unpacked shard."""
    next_line: int = 1
    """Line number behind its last line."""
    is_last: bool = False
    """Whether the shard ends here."""
    num_documents: int = 0
    """Documents with tokens."""
    num_sequences: int = 0
    """Sequences: as many as documents, or one per sentence."""
    num_tokens: int = 0
    """Tokens, those that end documents included."""
    num_empty: int = 0
    """Documents without tokens, left out."""
    num_broken: int = 0
    """Broken lines, left out."""
    broken: tuple[str, ...] = ()
    """What is wrong with the first of them."""


@dataclass(frozen=True, kw_only=True)
class ShardFolder:
    """Where the pieces of one shard lie."""

    folder: Path
    """PREFIX.shards."""
    name: str
    """Name of the shard's file."""
    key: str
    """Hash of the file's identity and of all parameters that decide its tokens."""
    token_bytes: int
    """2 or 4."""

    @classmethod
    def of(cls, folder: Path, shard: Path, identity: dict[str, Any], token_bytes: int) -> "ShardFolder":
        """Return the place for a shard's pieces; another `identity` (parameters, time of change) has another place."""
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        return cls(folder=folder, name=shard.name[:_NAME_CHARACTERS], key=digest[:16], token_bytes=token_bytes)

    def prefix(self, number: int) -> str:
        """Return the path of a piece without .bin, .idx or .json."""
        return str(self.folder / f"{self.name}.{self.key}.{number:05d}")

    def finished(self) -> list[Piece]:
        """Return the pieces that are whole, from the first on without a gap."""
        found: list[Piece] = []
        while (piece := self._read(len(found))) is not None:
            found.append(piece)
            if piece.is_last:
                break
        return found

    def _read(self, number: int) -> Piece | None:
        prefix = self.prefix(number)
        record = read_object(Path(prefix + ".json"))
        if record.pop("schema", None) != SCHEMA:
            return None
        try:
            piece = Piece(**record | {"broken": tuple(record["broken"])})
            index_bytes = HEADER.size + 12 * piece.num_sequences + 8 * (piece.num_documents + 1)
            found = [Path(prefix + suffix).stat().st_size for suffix in (".bin", ".idx")]
            return piece if found == [piece.num_tokens * self.token_bytes, index_bytes] else None
        except (TypeError, KeyError, OSError):
            return None


class PieceWriter:
    """Writes one piece; nothing of it counts before `finish`."""

    def __init__(self, shard: ShardFolder, number: int) -> None:
        self.shard, self.prefix = shard, shard.prefix(number)
        self.piece = Piece()
        self.lengths = array("i")
        self.sequences = array("i")
        self.stream: BinaryIO = Path(self._temporary(".bin")).open("wb")  # noqa: SIM115  # closed by close

    def _temporary(self, suffix: str) -> str:
        return f"{self.prefix}{suffix}.part"

    def add(self, found: Encoded) -> None:
        """Append the tokens of a block."""
        self.stream.write(found.tokens)
        self.lengths.extend(found.lengths)
        self.sequences.extend(found.sequences)
        self.piece = replace(
            self.piece,
            num_documents=self.piece.num_documents + len(found.sequences),
            num_sequences=self.piece.num_sequences + len(found.lengths),
            num_tokens=self.piece.num_tokens + len(found.tokens) // self.shard.token_bytes,
            num_empty=self.piece.num_empty + found.num_empty,
            num_broken=self.piece.num_broken + found.num_broken,
            broken=(*self.piece.broken, *found.broken)[:MAX_NAMED],
        )

    def finish(self, *, end: int, next_line: int, is_last: bool) -> Piece:
        """Make the piece count, and return what it holds."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        with Path(self._temporary(".idx")).open("wb") as stream:
            write_index(stream, TOKEN_CODES[self.shard.token_bytes], [MemoryPart(self.lengths, self.sequences)])
            stream.flush()
            os.fsync(stream.fileno())
        for suffix in (".bin", ".idx"):
            Path(self._temporary(suffix)).replace(self.prefix + suffix)
        self.piece = replace(self.piece, end=end, next_line=next_line, is_last=is_last)
        write_json(Path(self.prefix + ".json"), {"schema": SCHEMA, **asdict(self.piece)})
        return self.piece

    def close(self) -> None:
        """Forget what is not finished."""
        with contextlib.suppress(OSError):  # it writes what is still buffered: on a full disk that fails again
            self.stream.close()
        for suffix in (".bin", ".idx"):
            with contextlib.suppress(OSError):
                Path(self._temporary(suffix)).unlink()


def make_folder(folder: Path) -> None:
    """Make PREFIX.shards with its parents; raises NlpBenchError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NlpBenchError(
            f"output: cannot make {folder}: {error.strerror}; name another place with --output"
        ) from error
