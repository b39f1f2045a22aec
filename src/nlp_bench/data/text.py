"""Reads a shard of JSON lines: decompressed, in blocks of whole lines, and the text in each line.

The end of a block depends only on its start, so that work can be resumed after any block. Errors name file and line.
"""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from nlp_bench.errors import UsageError
from nlp_bench.files import parse_json
from nlp_bench.immutable import immutable

BLOCK_BYTES = 2**20
MAX_LINE_BYTES = 2**29
_SKIP_BYTES = 2**22
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_READ = {
    b"PK\x03\x04": "a zip archive; unpack it",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
    b"\x04\x22\x4d\x18": "lz4; unpack it",
    b"PAR1": "Parquet; write it as JSON lines (pandas: read_parquet, to_json(orient='records', lines=True))",
    b"ARROW1": "Arrow; write it as JSON lines",
}
"""First bytes to the format and remedy."""
_ZSTD_WINDOW_LOG = 31  # the largest window, as `zstd -d --long=31` allows; memory is used only for a file with one


@immutable
class Block:
    """Whole lines of a shard."""

    data: bytes  # the lines with their line feeds; a file's last line may have none
    end: int  # byte offset after the block in the decompressed shard
    number: int  # line number, from 1, of its first line
    position: int  # bytes of the file on disk that are read, for the progress

    @property
    def next_line(self) -> int:
        """Number of the line after the block."""
        return self.number + self.data.count(b"\n")


def blocks(path: Path, begin: int = 0, number: int = 1) -> Iterator[Block]:
    """Yield the blocks from byte offset `begin` of the decompressed file on, where line `number` starts.

    A block has at most BLOCK_BYTES, or one longer line. Raises UsageError for a stream that is cut, corrupt or shorter than
    `begin`, and for a line longer than MAX_LINE_BYTES.
    """
    from backports import zstd  # noqa: PLC0415  # only where text is read

    try:
        with path.open("rb") as raw:
            stream = _unpacked(path, raw)
            _skip(stream, begin, is_plain=stream is raw)
            buffer = bytearray()
            while size := _fill_block(buffer, stream, f"input: {path}, line {number}"):
                if not begin and buffer[257:262] == b"ustar":
                    raise UsageError(f"input: {path} is a tar archive; unpack it")
                begin += size
                block = Block(data=bytes(memoryview(buffer)[:size]), end=begin, number=number, position=raw.tell())
                del buffer[:size]
                number = block.next_line
                yield block
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"input: {path} cannot be read to its end: {why}; copy or download it again") from error


def _unpacked(path: Path, raw: BinaryIO) -> BinaryIO:
    """Return the stream of a file, plain, gzip, xz, zstd or bzip2, detected by its first bytes, not its name."""
    head = raw.read(8)
    raw.seek(0)
    for magic, what in _NOT_READ.items():
        if head.startswith(magic):
            raise UsageError(f"input: {path} is {what}")
    if head.startswith(b"\x1f\x8b"):
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
    if head.startswith(b"\xfd7zXZ\x00"):
        return cast("BinaryIO", lzma.LZMAFile(raw))
    if head.startswith(b"BZh"):
        return cast("BinaryIO", bz2.BZ2File(raw))
    # pzstd, which compresses in parallel, writes a skippable frame first.
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5):
        from backports import zstd  # noqa: PLC0415  # only where text is read

        option = zstd.DecompressionParameter.window_log_max
        return cast("BinaryIO", zstd.ZstdFile(raw, options={option: _ZSTD_WINDOW_LOG}))
    return raw


def _skip(stream: BinaryIO, begin: int, *, is_plain: bool) -> None:
    if is_plain:
        stream.seek(begin)
        return
    while begin:
        data = stream.read(min(begin, _SKIP_BYTES))
        if not data:
            raise EOFError("it is shorter than it was")
        begin -= len(data)


def _fill_block(buffer: bytearray, stream: BinaryIO, place: str) -> int:
    """Fill the buffer until it holds a block; return the block's length in bytes, 0 at the end of the stream."""
    wanted = BLOCK_BYTES
    while True:
        while len(buffer) < wanted:
            data = stream.read(wanted - len(buffer))
            if not data:
                return len(buffer)
            buffer += data
        if size := buffer.rfind(b"\n", 0, wanted) + 1:
            return size
        if wanted >= MAX_LINE_BYTES:
            raise UsageError(f"{place}: longer than {MAX_LINE_BYTES} bytes; is this JSON lines, one object per line?")
        wanted *= 2


def numbered_lines(data: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each line of a block from line `number` on, without empty ones and the file's byte order mark."""
    data = data.removeprefix(_BYTE_ORDER_MARK) if number == 1 else data
    yield from ((place, line) for place, line in enumerate(data.split(b"\n"), number) if line.strip())


def texts_of(line: bytes, key: str, place: str) -> str | list[str]:
    """Return the value of `key`, a text or a list of texts.

    `place` names file and line. Raises UsageError for a line that is not UTF-8, not JSON, or has no text under the key.
    """
    array = "; `jq -c '.[]' FILE` makes lines of an array" if line.lstrip().startswith(b"[") else ""
    try:
        record = parse_json(line.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"{place}: not UTF-8: {error}; convert the file with iconv") from error
    except ValueError as error:
        raise UsageError(f"{place}: not JSON: {error}{array}") from error
    if not isinstance(record, dict) or key not in record:
        keys = f"its keys are {', '.join(list(record)[:20])}" if isinstance(record, dict) else "it is no object"
        raise UsageError(f"{place}: no {key!r}: {keys}{array or '; name the right one with --json-key'}")
    found = record[key]
    texts = found if isinstance(found, list) else [found]
    if not all(isinstance(one, str) for one in texts):
        raise UsageError(f"{place}: {key!r} is {'null' if found is None else type(found).__name__}, not text")
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise UsageError(f"{place}: {key!r} has half of a surrogate pair, {half}, which no tokenizer takes") from error
    return cast("str | list[str]", found)
