"""A log's bytes in blocks of whole lines with bounded memory: plain, gzip, xz, zstd or bzip2; a file or standard input."""

import ctypes
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from nlp_bench.errors import UsageError
from nlp_bench.files import open_for_reading
from nlp_bench.logs.snapshot import Snapshot

MAX_LINE_BYTES = 1 << 20  # the longest line met in 107 real logs has 4461 bytes
LOOKAHEAD_BYTES = 1 << 16
HEAD_BYTES = 6  # tell how a file is compressed
_ROOM_BYTES = MAX_LINE_BYTES + 1 + LOOKAHEAD_BYTES  # the longest line, its end, and what may follow it
_FRESH_BYTES = 1 << 22
_FIRST_BYTES = 1 << 18
_PAGE_BYTES = 1 << 12
_XZ_MEMORY_BYTES = 1 << 28  # four times what `xz -9` needs
_UNPACKED_BYTES = 1 << 16
_PACKED_BYTES = 1 << 14  # small steps: what a step gives is lost where it ends in a corrupt byte


@dataclass(slots=True)
class Block:
    """Whole lines in a buffer that is used again: valid only until the next block is asked for."""

    data: bytearray
    """The whole buffer."""
    begin: int
    """Where the first line of the block starts in `data`."""
    end: int
    """Lines that start in data[begin:end] belong to the block; a last one without its line end was cut here."""
    lookahead_end: int
    """data[end:lookahead_end] is what follows, LOOKAHEAD_BYTES or more except at the end of the file."""
    offset: int
    """Byte offset (after decompression) of data[begin] in the log."""
    number: int
    """Line number, from 1, of the line at data[begin]; only a line feed ends a line."""
    is_last: bool
    """Whether nothing follows; the last block of a log that ends within an overlong line does not know it."""
    num_line_ends: int | None = None
    """Line feeds in data[begin:end], told by who has counted them on the way; None: nobody has."""


@contextmanager
def open_log(path: str) -> Iterator["Source"]:
    """Open the log at `path`, or standard input for `-`; gzip, xz, zstd and bzip2 are known by their first bytes.

    Raises UsageError that names the path when it cannot be opened.
    """
    if path == "-" and sys.stdin is None:
        raise UsageError("PATH -: standard input is closed")
    try:
        stream = sys.stdin.buffer if path == "-" else open_for_reading(Path(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {path}: {reason}; give an existing log file, a run folder or -") from error
    try:
        yield Source(cast("BinaryIO", stream))
    finally:
        if path != "-":
            stream.close()


class Source:
    """One log that is read once from front to back. Bytes that cannot be read or unpacked never raise."""

    def __init__(self, stream: BinaryIO) -> None:
        self.damage: str | None = None
        """Why reading stopped early (a compressed stream that is cut or corrupt, a disk error), else None."""
        self.num_bytes = 0
        """Bytes of the log so far, after decompression."""
        self._snapshot = Snapshot(stream)
        self.size_bytes = self._snapshot.size_bytes
        """Size of the file on disk when it was opened, None for a pipe."""
        self._packed = _Packed(self._snapshot)
        self._reader = _Reader(self._read)

    @property
    def position_bytes(self) -> int:
        """How far reading has come in the file on disk."""
        return self._snapshot.num_bytes

    def blocks(self) -> Iterator[Block]:
        """Yield the log in blocks of whole lines, about 1 MiB each.

        Of a line longer than MAX_LINE_BYTES only its beginning is seen, as a block of its own without a line end. Of a file that
        is written meanwhile what it held when it was opened is read; where that is lost, `damage` says so behind the last block.
        """
        yield from _Blocks(self._reader).blocks()
        self.damage = self._snapshot.change() or self.damage

    def _read(self, target: memoryview) -> int:
        """Fill `target` from its front; fewer bytes mean that the log ends there."""
        filled = 0
        try:
            while filled < len(target):
                count = self._packed.readinto(target[filled:])
                if not count:
                    break
                filled += count
        except _unpacking_errors() as error:
            self.damage = f"reading stopped early: {error}"
            self._packed.is_ended = True
        self.num_bytes += filled
        return filled


class _Buffer:
    """Memory to fill, behind room for what is left over of another buffer."""

    def __init__(self, room_bytes: int, fresh_bytes: int) -> None:
        self.room_bytes = room_bytes
        self.data = bytearray(room_bytes + fresh_bytes + _PAGE_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.data))
        # The kernel copies up to four times faster to where a page begins.
        self.fresh = room_bytes + -(address + room_bytes) % _PAGE_BYTES
        self.target = memoryview(self.data)[self.fresh : self.fresh + fresh_bytes]


class _Reader:
    """Fills a small buffer, which is all that a short log needs, and then a large one again and again."""

    def __init__(self, read: Callable[[memoryview], int]) -> None:
        self.read = read
        self.buffer: _Buffer | None = None

    def next(self) -> tuple[_Buffer, int]:
        """Return a buffer and how many fresh bytes it has; it is full unless the stream ends."""
        if self.buffer is None:
            self.buffer = _Buffer(0, _FIRST_BYTES)
        elif not self.buffer.room_bytes:
            self.buffer = _Buffer(_ROOM_BYTES, _FRESH_BYTES)
        return self.buffer, self.read(self.buffer.target)


class _Blocks:
    """Cuts a stream into blocks behind line ends; what is left over moves in front of the next buffer's fresh bytes."""

    def __init__(self, reader: _Reader) -> None:
        self.reader = reader
        self.data = bytearray()
        self.begin = self.fill = 0
        self.is_ended = False
        self.offset, self.number = 0, 1

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of the whole stream."""
        while True:
            end = self._end()
            if end:
                yield from self._block(end)
            elif self.fill - self.begin >= _ROOM_BYTES or (self.is_ended and self.fill - self.begin > MAX_LINE_BYTES):
                end = self.begin + MAX_LINE_BYTES
                # A bar may be drawn for days on one line: each carriage return begins it anew.
                again = self.data.rfind(b"\r", self.begin, end) + 1
                if again:
                    yield from self._block(again)
                    continue
                yield Block(self.data, self.begin, end, end, self.offset, self.number, is_last=False)
                self._skip_line()
            elif self.is_ended:
                if self.fill > self.begin:
                    yield from self._block(self.fill)
                return
            else:
                self._read_on()

    def _block(self, end: int) -> Iterator[Block]:
        is_last = self.is_ended and end == self.fill
        block = Block(self.data, self.begin, end, self.fill, self.offset, self.number, is_last)
        yield block
        counted = block.num_line_ends
        self.number += self.data.count(b"\n", self.begin, end) if counted is None else counted
        self._drop(end)

    def _end(self) -> int:
        """Return where the last line of the block ends, 0 where none does; every line of it is short enough."""
        known = self.fill - (0 if self.is_ended else LOOKAHEAD_BYTES)
        return self.data.rfind(b"\n", self.begin, max(min(known, self.begin + MAX_LINE_BYTES + 1), 0)) + 1

    def _drop(self, end: int) -> None:
        """Forget what lies before `end`."""
        self.offset += end - self.begin
        self.begin = end

    def _read_on(self) -> None:
        """Go on to the next buffer with what is left over."""
        left = bytes(memoryview(self.data)[self.begin : self.fill])  # this buffer may be filled again at once
        buffer, count = self.reader.next()
        self.data, self.begin, self.fill = buffer.data, buffer.fresh - len(left), buffer.fresh + count
        self.data[self.begin : buffer.fresh] = left
        self.is_ended = count < len(buffer.target)

    def _skip_line(self) -> None:
        """Pass over the rest of a line that is too long, with its line end."""
        while not (end := self.data.find(b"\n", self.begin, self.fill) + 1):
            self._drop(self.fill)
            if self.is_ended:
                return
            self._read_on()
        self._drop(end)
        self.number += 1


class _Decompressor(Protocol):
    """What lzma and zstd have in common, and gzip is given below."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """One gzip member with the interface of lzma's decompressor."""

    def __init__(self) -> None:
        import zlib  # noqa: PLC0415  # only compressed logs pay for it

        self._inner = zlib.decompressobj(wbits=31)
        self._needs_input = True

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        text = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        # Output may be held back although all input is taken, but only while there is no room.
        self._needs_input = not self._inner.unconsumed_tail and len(text) != max_length
        return text

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return self._needs_input

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


def _xz() -> _Decompressor:
    import lzma  # noqa: PLC0415  # only compressed logs pay for it

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)


def _bzip2() -> _Decompressor:
    import bz2  # noqa: PLC0415  # only compressed logs pay for it

    return bz2.BZ2Decompressor()


def _zstd() -> _Decompressor:
    from backports import zstd  # noqa: PLC0415  # only compressed logs pay for it

    return cast("_Decompressor", zstd.ZstdDecompressor())


def _unpacking_errors() -> tuple[type[Exception], ...]:
    """Return what reading may raise; a library that was not needed cannot raise."""
    names = (("zlib", "error"), ("lzma", "LZMAError"), ("backports.zstd", "ZstdError"))
    loaded = (getattr(sys.modules[module], name) for module, name in names if module in sys.modules)
    return (OSError, EOFError, *loaded)


_NOT_READ = {
    b"\x04\x22\x4d\x18": "lz4 is not read; unpack it: lz4 -dc FILE | nlp-bench report -",
    b"PK\x03\x04": "zip is not read; unpack it: unzip -p FILE | nlp-bench report -",
    b"7z\xbc\xaf": "7z is not read; unpack it: 7z x -so FILE | nlp-bench report -",
}
"""First bytes, and what to do about them."""
_UTF16 = re.compile(rb"\xff\xfe[^\x00]\x00|\xfe\xff\x00[^\x00]")


def is_packed(head: bytes) -> bool:
    """Say whether a file whose first HEAD_BYTES are `head` is compressed in a way that logs are read in."""
    return _method(head) is not None


def _method(head: bytes) -> Callable[[], Any] | None:
    """Return the decompressor for a stream that begins with `head`, None for plain text."""
    if head.startswith(b"\x1f\x8b"):
        return _Gzip
    if head.startswith(b"\xfd7zXZ\x00"):
        return _xz
    if head.startswith(b"BZh"):
        return _bzip2
    # A frame to be skipped stands in front where zstd ran in parallel (pzstd).
    is_skippable = head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5
    return _zstd if is_skippable or head.startswith(b"\x28\xb5\x2f\xfd") else None


class _Packed:
    """The bytes of a stream, unpacked where its first bytes say so; members may follow one another."""

    def __init__(self, stream: Snapshot) -> None:
        self.is_ended = False
        self._stream = stream
        self._head: bytes | None = None
        self._new: Callable[[], _Decompressor] | None = None
        self._member: _Decompressor | None = None

    def readinto(self, target: memoryview) -> int:
        """Put the next bytes at the front of `target` and return how many, 0 at the end."""
        if self.is_ended:
            return 0
        if self._head is None:
            self._head = self._read_head()
            self._new = _method(self._head)
            for magic, what in _NOT_READ.items():
                if self._head.startswith(magic):
                    raise OSError(what)
            if _UTF16.match(self._head):
                raise OSError("UTF-16 is not read; convert it: iconv -f UTF-16 -t UTF-8 FILE | nlp-bench report -")
        if self._new:
            text = self._unpack(len(target))
        elif self._head:
            text, self._head = self._head[: len(target)], self._head[len(target) :]
        else:
            return self._stream.readinto(target)
        target[: len(text)] = text
        return len(text)

    def _read_head(self) -> bytes:
        head = bytearray(HEAD_BYTES)
        filled = 0
        while filled < len(head) and (count := self._stream.readinto(memoryview(head)[filled:])):
            filled += count
        return bytes(head[:filled])

    def _read_packed(self) -> bytes:
        """Return what was left over, else the next bytes of the stream, b"" at its end."""
        if self._head:
            head, self._head = self._head, b""
            return head
        buffer = bytearray(_PACKED_BYTES)
        return bytes(buffer[: self._stream.readinto(memoryview(buffer))])

    def _unpack(self, limit: int) -> bytes:
        """Return up to `limit` bytes of text, b"" at the end. Raises EOFError and the libraries' errors."""
        while True:
            if self._member is None and not self._begin_member():
                return b""
            member = cast("_Decompressor", self._member)
            data = self._read_packed() if member.needs_input else b""
            if member.needs_input and not data:
                raise EOFError("the compressed stream is cut")
            text = member.decompress(data, min(limit, _UNPACKED_BYTES))
            if member.eof:
                self._head, self._member = member.unused_data, None
            if text:
                return text

    def _begin_member(self) -> bool:
        """Begin the next member; False at the end of the stream. Raises OSError for what is none."""
        rest, self._head = (self._head or b"").lstrip(b"\x00"), b""  # xz and tape blocks are padded with zeros
        while len(rest) < HEAD_BYTES and (more := self._read_packed()):
            rest = (rest + more).lstrip(b"\x00")
        self._head = rest
        if not rest:
            self.is_ended = True
            return False
        is_alike = _method(rest) == self._new
        if self._new is None or not is_alike:
            raise OSError(f"{len(rest)} or more bytes after the compressed stream are not compressed")
        self._member = self._new()
        return True
