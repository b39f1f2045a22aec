"""A shard's bytes in blocks of whole lines. Where a block ends depends only on where it begins, so work can go on anywhere."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nlp_bench.data.opening import open_shard, reading_errors
from nlp_bench.errors import UsageError

BLOCK_BYTES = 2**20
MAX_LINE_BYTES = 2**29
_SKIP_BYTES = 2**22
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class Block:
    """Whole lines of a shard."""

    data: bytes
    """The lines with their line feeds; a file's last line may have none."""
    end: int
    """Byte behind the block in the unpacked shard."""
    number: int
    """Line number, from 1, of its first line."""
    position: int
    """How many bytes of the file on disk are read, for showing progress."""


def blocks(path: Path, begin: int = 0, number: int = 1) -> Iterator[Block]:
    """Yield the blocks behind byte `begin` of the unpacked file, whose line there has `number`.

    A block has at most BLOCK_BYTES, or one longer line. Raises UsageError naming file and line for a stream that is cut,
    corrupt or shorter than `begin`, and for a line longer than MAX_LINE_BYTES.
    """
    try:
        with open_shard(path) as (stream, raw):
            _skip(stream, begin, is_plain=stream is raw)
            yield from _read(path, stream, raw, begin, number)
    except reading_errors() as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"input: {path} cannot be read to its end: {why}; copy or download it again") from error


def _skip(stream: BinaryIO, begin: int, *, is_plain: bool) -> None:
    if is_plain:
        stream.seek(begin)
        return
    while begin:
        data = stream.read(min(begin, _SKIP_BYTES))
        if not data:
            raise EOFError("it is shorter than it was")
        begin -= len(data)


def _read(path: Path, stream: BinaryIO, raw: BinaryIO, begin: int, number: int) -> Iterator[Block]:
    buffer = bytearray()
    while True:
        size = _whole_lines(buffer, stream, f"input: {path}, line {number}")
        if not size:
            return
        data = bytes(memoryview(buffer)[:size])
        del buffer[:size]
        begin += size
        block = Block(data=data, end=begin, number=number, position=raw.tell())
        number += data.count(b"\n")
        yield block


def _whole_lines(buffer: bytearray, stream: BinaryIO, place: str) -> int:
    """Fill the buffer until it holds a block; return the block's bytes, 0 at the end of the stream."""
    wanted = BLOCK_BYTES
    while True:
        is_ended = not _fill(buffer, stream, wanted)
        if is_ended:
            return len(buffer)
        if size := buffer.rfind(b"\n", 0, wanted) + 1:
            return size
        if wanted >= MAX_LINE_BYTES:
            raise UsageError(f"{place}: longer than {MAX_LINE_BYTES} bytes; is this JSON lines, one object per line?")
        wanted *= 2


def _fill(buffer: bytearray, stream: BinaryIO, wanted: int) -> bool:
    """Read until the buffer has `wanted` bytes; False where the stream ends before or there."""
    while len(buffer) < wanted:
        data = stream.read(wanted - len(buffer))
        if not data:
            return False
        buffer += data
    return True


def without_mark(data: bytes, number: int) -> bytes:
    """Return a block's bytes without the byte order mark that some programs put in front of a file."""
    return data.removeprefix(_BYTE_ORDER_MARK) if number == 1 else data
