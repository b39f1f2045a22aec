"""A log's bytes in blocks of whole lines, with bounded memory: plain, gzip, xz, zstd or bzip2; a file or standard input.

Of a file that is still being written, only the bytes that it had when it was opened are read.
"""

import importlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from nlp_bench.errors import UsageError
from nlp_bench.files import LFS_POINTER, open_for_reading

MAX_LINE_BYTES = 1 << 20  # the longest line met in 107 real logs has 4461 bytes
LOOKAHEAD_BYTES = 1 << 16
HEAD_BYTES = 32  # that identify compression and encoding
_CARRY_BYTES = MAX_LINE_BYTES + 1 + LOOKAHEAD_BYTES  # the longest line, its line feed, and the lookahead
_FRESH_BYTES = 1 << 22
_FIRST_BYTES = 1 << 18
_XZ_MEMORY_BYTES = 1 << 28  # four times what `xz -9` needs
_UNPACKED_BYTES = 1 << 16
_READ_BYTES = 1 << 18  # of a plain log at once
# Small, because the output of a step is lost if it hits a corrupt byte, and gzip expands up to 1032 times.
_PACKED_BYTES = 1 << 12
_SAMPLE_BYTES, _MAX_SAMPLES = 512, 256  # a line of a training is mostly shorter: two runs differ within it
CUT = "the file was cut while it was read: {read} of its {size} bytes are counted"
ANEW = "the file was written anew in place while it was read: what is counted may never have stood in it together"


_COPY_AGAIN = (
    "; the compressed file is cut or damaged, or asks for more memory than is given here: test it (gzip -t, xz -t, zstd -t --long=31, bzip2 -t), "
    "then copy it again or pack the log anew; a sound one is read so: zstd -dc --long=31 FILE | nlp-bench report -"
)


@dataclass(slots=True)
class Block:
    """Whole lines in a buffer that is reused: valid only until the next block is read."""

    data: bytearray  # the whole buffer
    begin: int  # start of the block's first line in `data`
    end: int  # lines that start in data[begin:end] belong to the block; a last one without its line feed was cut here
    lookahead_end: int  # data[end:lookahead_end] follows, LOOKAHEAD_BYTES or more except at the end of the file
    offset: int  # byte offset (after decompression) of data[begin] in the log
    number: int  # line number, from 1, of the line at data[begin]; only a line feed ends a line
    is_last: bool  # whether nothing follows; False also for the last block of a log that ends within an overlong line
    num_line_ends: int | None = None
    """Line feeds in data[begin:end], set by a consumer that has counted them; None: not counted."""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield each line with its number, without its line feed."""
        yield from enumerate(bytes(self.data[self.begin : self.end]).split(b"\n"), self.number)


@contextmanager
def open_log(path: str) -> Iterator["Source"]:
    """Open the log at `path`, or standard input for `-`; compression is detected by the first bytes.

    Raises UsageError, which names the path, when it cannot be opened.
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
    """One log that is read once from front to back. Errors of reading and decompressing do not raise but set `damage`."""

    def __init__(self, stream: BinaryIO) -> None:
        self.damage: str | None = None
        """Why not all was read (a compressed stream that is cut or corrupt, a disk error, an archive), else None."""
        self.change: str | None = None
        """After reading: that the file was cut or written anew meanwhile, else None; part of `damage` too."""
        self.member = b""  # of an archive, which is not read: how the name of its first file begins
        self.num_bytes = 0  # bytes of the log so far, after decompression
        self._snapshot = Snapshot(stream)
        self._pieces = self._texts()
        self._piece, self._beginning = memoryview(b""), b""
        self._is_packed = self._is_ended = False

    @property
    def position_bytes(self) -> int:
        """Bytes of the file on disk that were read."""
        return self._snapshot.num_bytes

    @property
    def form(self) -> str | None:
        """Why no training line may be found in the text, where its beginning shows its form; else None."""
        forms = (what for pattern, what in _FORMS.items() if re.match(pattern, self._beginning, re.MULTILINE))
        return next(forms, None)

    def blocks(self) -> Iterator[Block]:
        """Yield the log in blocks of whole lines, about 4 MiB each.

        Of a line longer than MAX_LINE_BYTES only the beginning is yielded, as a block of its own without a line feed. After the last
        block `damage` says whether bytes that the file had when it was opened were lost meanwhile.
        """
        for block in _Blocks(self._read).blocks():
            self._beginning = self._beginning or bytes(block.data[block.begin : block.begin + _UNPACKED_BYTES])
            yield block
        self.change = self._snapshot.change()
        self.damage = self.change or self.damage

    def _read(self, target: memoryview) -> int:
        """Fill `target` and return the number of bytes; fewer than its length mean that the log ends there."""
        filled = 0
        try:
            while filled < len(target) and not self._is_ended:
                self._piece = self._piece or memoryview(next(self._pieces, b""))
                count = min(len(target) - filled, len(self._piece))
                target[filled : filled + count] = self._piece[:count]
                self._piece = self._piece[count:]
                self._is_ended = not count
                filled += count
            if not self.num_bytes and bytes(target[257 : min(262, filled)]) == b"ustar":
                filled, self.member, self.damage, self._is_ended = 0, bytes(target[:100]), _TAR, True
        except (OSError, EOFError) as error:
            self.damage = f"reading stopped early: {error}{_COPY_AGAIN if self._is_packed else ''}"
            self._is_ended = True
        self.num_bytes += filled
        return filled

    def _texts(self) -> Iterator[bytes]:
        """Yield the text of the log in pieces."""
        head = self._snapshot.read(HEAD_BYTES)
        if head.startswith((b"[", b"{")):
            head += self._snapshot.read(_UNPACKED_BYTES)
        method = _method(head)
        self._is_packed = method is not None
        rest = iter(partial(self._snapshot.read, _READ_BYTES), b"")
        yield from _objects(_unpacked(self._snapshot, head, method) if method else chain((head,), rest))


class Snapshot:
    """A stream that ends where its file ended when it was opened; a pipe ends at its end.

    A file that is replaced by another one keeps its bytes for a process that has it open. One that is cut, or rewritten in place,
    does not: then `change` says so.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        try:
            status = os.fstat(stream.fileno())
            size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else 0
        except OSError:  # a stream in memory has no descriptor
            size_bytes = 0
        self._begin = stream.tell() if size_bytes else 0
        # A size of 0 means unknown: files of /proc and of some network file systems have it.
        self._left = size_bytes - self._begin if size_bytes else None
        self._samples: list[tuple[int, bytes]] = []
        self._num_read, self._stride = 0, 1
        self.num_bytes = 0
        self._is_cut = False

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer at the end. Raises OSError."""
        size = size if self._left is None else min(size, self._left - self.num_bytes)
        read = b""
        while len(read) < size and (more := self._stream.read(size - len(read))):
            read += more
        self.num_bytes += len(read)
        if self._left is not None:
            self._is_cut = len(read) < size
            self._remember(read[-_SAMPLE_BYTES:])
        return read

    def _remember(self, sample: bytes) -> None:
        """Keep samples of the bytes, evenly over the file, to compare at the end."""
        if self._num_read % self._stride == 0:
            self._samples.append((self._begin + self.num_bytes - len(sample), sample))
        self._num_read += 1
        if len(self._samples) >= _MAX_SAMPLES:
            self._samples, self._stride = self._samples[::2], 2 * self._stride

    def change(self) -> str | None:
        """Return, after reading, that the file was cut or rewritten meanwhile; None where it was not, or has only grown."""
        if self._left is None:
            return None
        if self._is_cut:
            return CUT.format(read=self.num_bytes, size=self._left)
        try:
            descriptor = self._stream.fileno()
            is_same = all(os.pread(descriptor, len(sample), at) == sample for at, sample in self._samples)
        except OSError:  # cannot be compared; what was read counts
            return None
        return None if is_same else ANEW


class _Blocks:
    """Splits a stream into blocks after line feeds; the rest is carried over to the front of the next buffer."""

    def __init__(self, read: Callable[[memoryview], int]) -> None:
        self.read = read
        self.data = bytearray()
        self.begin = self.fill = 0
        self.is_ended = False
        self.offset, self.number = 0, 1

    def blocks(self) -> Iterator[Block]:
        while True:
            if end := self._end_of_lines():
                yield from self._block(end)
            elif self.fill - self.begin >= _CARRY_BYTES or (self.is_ended and self.fill - self.begin > MAX_LINE_BYTES):
                end = self.begin + MAX_LINE_BYTES
                # A progress bar may be redrawn for days on one line, after a carriage return each time.
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
                self._read_more()

    def _end_of_lines(self) -> int:
        """Return where the last of the lines ends that are short enough and wholly there, 0 where the first is not."""
        known = self.fill - (0 if self.is_ended else LOOKAHEAD_BYTES)
        end, at = 0, self.begin
        while at < known and (at := self.data.rfind(b"\n", at, min(known, at + MAX_LINE_BYTES + 1)) + 1):
            end = at
        return end

    def _block(self, end: int) -> Iterator[Block]:
        is_last = self.is_ended and end == self.fill
        block = Block(self.data, self.begin, end, self.fill, self.offset, self.number, is_last)
        yield block
        counted = block.num_line_ends
        self.number += self.data.count(b"\n", self.begin, end) if counted is None else counted
        self._drop(end)

    def _drop(self, end: int) -> None:
        self.offset += end - self.begin
        self.begin = end

    def _read_more(self) -> None:
        left = bytes(memoryview(self.data)[self.begin : self.fill])  # this buffer may be filled again at once
        # A short log needs only a small buffer; after it large ones are used.
        fresh_bytes = _FRESH_BYTES if self.fill else _FIRST_BYTES
        carry_bytes = _CARRY_BYTES if self.fill else 0
        if len(self.data) != carry_bytes + fresh_bytes:
            self.data = bytearray(carry_bytes + fresh_bytes)
        count = self.read(memoryview(self.data)[carry_bytes:])
        self.begin, self.fill = carry_bytes - len(left), carry_bytes + count
        self.data[self.begin : carry_bytes] = left
        self.is_ended = count < fresh_bytes

    def _skip_line(self) -> None:
        while not (end := self.data.find(b"\n", self.begin, self.fill) + 1):
            self._drop(self.fill)
            if self.is_ended:
                return
            self._read_more()
        self._drop(end)
        self.number += 1


def _unpacked(stream: Snapshot, data: bytes, method: "_Method") -> Iterator[bytes]:
    """Yield the text of a compressed stream whose first bytes are `data`; it may have several members.

    Raises EOFError where it is cut, OSError for what is damaged and for other bytes after it.
    """
    module, factory, options = method
    make = getattr(importlib.import_module(module), factory)
    while True:
        data = data.lstrip(b"\x00")  # xz and tape blocks are padded with zeros
        while len(data) < HEAD_BYTES and (more := stream.read(_PACKED_BYTES)):
            data = (data + more).lstrip(b"\x00")
        if not data:
            return
        if _method(data) != method:
            raise OSError(f"{len(data)} or more bytes after the compressed stream are not compressed")
        member = make(**options)
        has_limit = hasattr(member, "needs_input")  # not zlib's: small steps bound its output
        while not member.eof:
            try:
                text = member.decompress(data, _UNPACKED_BYTES) if has_limit else member.decompress(data)
            except Exception as error:  # of the library
                raise OSError(str(error)) from error
            if text:
                yield text
            data = b""
            if not member.eof and (not has_limit or member.needs_input):
                data = stream.read(_PACKED_BYTES)
                if not data:
                    raise EOFError("the compressed stream is cut")
        data = member.unused_data


_LIST = re.compile(rb'(?:\{ ?"\w{1,16}": ?)?\[ ?(?=\{ ?")')
"""How a list of JSON objects begins that stands in one line, as Grafana and `jq -c` write it; its line would be too long to be read."""


def _is_list(head: bytes) -> bool:
    return bool(_LIST.match(head)) and b"\n" not in head.rstrip()


_INDENTED = re.compile(rb"[\[{]\s*\n[ \t]+[\"{]")
"""How JSON begins that is printed with an indent, as the Trainer's trainer_state.json is."""
_INNER = re.compile(rb"\n(?=[ \t]+\"|[ \t]*[}\]])")


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield such JSON with a line for each object in a list, which begins where it does in the log."""
    rest = b""
    for piece in pieces:
        text, mark, rest = (rest + piece).rpartition(b"\n")
        yield _INNER.sub(b" ", text)
        rest = mark + rest
    yield _INNER.sub(b" ", rest)


def _objects(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield such a list with a line for each object, which begins where it does in the log; any other text as it is."""
    text = next(pieces, b"")
    if not _is_list(text):
        all_pieces = chain((text,), pieces)
        yield from _joined(all_pieces) if _INDENTED.match(text) else all_pieces
        return
    end, text = b"", _LIST.sub(lambda found: b"\n".rjust(len(found[0])), text, count=1)
    for piece in chain((text,), pieces):
        text = (end + piece).replace(b'}, {"', b'},\n{"').replace(b'},{"', b'}\n{"')
        text, end = text[:-4], text[-4:]  # in which the next pair may begin
        if text:
            yield text
    yield end + b"\n" * end.endswith((b"]", b"}"))  # a whole one is not cut


_Method = tuple[str, str, Mapping[str, int]]
_METHODS: Mapping[bytes, _Method] = {
    rb"\x1f\x8b": ("zlib", "decompressobj", {"wbits": 31}),
    rb"\xfd7zXZ\x00": ("lzma", "LZMADecompressor", {"format": 1, "memlimit": _XZ_MEMORY_BYTES}),
    b"BZh": ("bz2", "BZ2Decompressor", {}),
    # pzstd, which compresses in parallel, writes a skippable frame first.
    rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18": ("backports.zstd", "ZstdDecompressor", {}),
}
"""Pattern of the first bytes to how the rest is decompressed: module (imported for such logs only), factory, its arguments (format 1 is xz's)."""


def _method(head: bytes) -> _Method | None:
    """Return how a stream is decompressed whose first bytes are `head`, None for plain text."""
    return next((method for magic, method in _METHODS.items() if re.match(magic, head)), None)


def is_packed(head: bytes) -> bool:
    """Say whether a file whose first HEAD_BYTES are `head` is compressed in a supported format."""
    return _method(head) is not None


_TAR = "tar is not read; unpack it: tar -xOf FILE MEMBER | nlp-bench report -; a bundle is for: nlp-bench verify FILE"
"""For a log with "ustar" at byte 257, compressed or not: it may hold several logs."""
_FORMS = {
    re.escape(LFS_POINTER): "a pointer of git-lfs, not the log; fetch that: git lfs pull",
    rb"SQLite format 3": "a database, as a history is: nlp-bench history list --file FILE",
    rb"%PDF-|(?s:.{,64})(?:[\x01-\x06\x0e-\x1a\x1c-\x1f]|[^\x00]\x00[^\x00]\x00)": (
        "the file is not text in UTF-8: unpack it, take its text out or convert it (iconv -f UTF-16 -t UTF-8 FILE), then "
        "... | nlp-bench report -"
    ),
    rb"(?s:.*?)^\[\d\d/\d\d/\d\d \d\d:\d\d:\d\d\] [A-Z]+ .*\n {21,}\S(?s:.)*\b(?i:iteration|step|loss)\b": (
        "its lines are wrapped as on a terminal, by Python's rich: let the training write with COLUMNS=400 set, so that each "
        "stays one line"
    ),
}
"""Pattern of a log's beginning to why no training line is found in it."""
