"""Bytes to lines with bounded memory: plain, gzip or xz, a file or standard input."""

import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from nlp_bench.errors import UsageError

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20  # the longest line met in 107 real logs has 4461 bytes
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class Line(NamedTuple):
    """One piece of text between line ends; a carriage return starts a new piece of the same line."""

    number: int
    """Line number, counted from 1."""
    text: bytes
    """The bytes without terminal colours and without the line end."""
    is_ended: bool
    """False for a last line that lacks its line end: it may be cut anywhere."""


@contextmanager
def open_log(path: str) -> Iterator[BinaryIO]:
    """Open the log at `path`, or standard input for `-`, decompressing gzip and xz by their first bytes.

    Raises UsageError that names the path when it cannot be opened or is compressed in another way.
    """
    if path == "-" and sys.stdin is None:
        raise UsageError("PATH -: standard input is closed")
    try:
        stream = sys.stdin.buffer if path == "-" else Path(path).open("rb")  # noqa: SIM115  # closed below
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}; give an existing log file, a run folder or -"
        ) from error
    try:
        yield _decompressed(stream, path)
    finally:
        if path != "-":
            stream.close()


def _decompressed(stream: BinaryIO, path: str) -> BinaryIO:
    magic = stream.peek(6)[:6] if hasattr(stream, "peek") else b""
    if magic.startswith(b"\x1f\x8b"):
        import gzip  # noqa: PLC0415  # only compressed logs pay for it

        return cast("BinaryIO", gzip.GzipFile(fileobj=stream))
    if magic.startswith(b"\xfd7zXZ\x00"):
        import lzma  # noqa: PLC0415  # only compressed logs pay for it

        return cast("BinaryIO", lzma.LZMAFile(stream))
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        raise UsageError(
            f"{path} is compressed with zstd, which is not read yet; use: zstd -dc FILE | nlp-bench report -"
        )
    return stream


def blocks(stream: BinaryIO, damage: list[str]) -> Iterator[bytes]:
    """Yield the stream in blocks of at most BLOCK_BYTES; a damaged compressed stream ends early and says so in `damage`."""
    while True:
        try:
            block = stream.read(BLOCK_BYTES)
        except Exception as error:
            # lzma is imported only where it is used, so its error is known by name.
            if not isinstance(error, (EOFError, OSError, zlib.error)) and type(error).__name__ != "LZMAError":
                raise
            damage.append(f"reading stopped early: {error}")
            return
        if not block:
            return
        yield block


def lines_with(chunks: Iterable[bytes], needles: tuple[bytes, ...]) -> Iterator[Line]:
    """Yield the lines that contain any of `needles`; text without them is passed over a block at a time.

    Of a line longer than MAX_LINE_BYTES only the beginning is seen, so that memory stays bounded whatever the file holds.
    """
    number, rest, is_overlong = 1, b"", False
    for chunk in chunks:
        text = rest + chunk
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if is_overlong:
            begin = text.find(b"\n") + 1
            number += begin > 0
            is_overlong = not begin
            text, end = (text[begin:], max(end - begin, 0)) if begin else (b"", 0)
        yield from _split(text[:end], number, needles, is_ended=True)
        number += text.count(b"\n", 0, end)
        rest = text[end:]
        if len(rest) > MAX_LINE_BYTES:
            yield from _split(rest[:MAX_LINE_BYTES], number, needles, is_ended=False)
            rest, is_overlong = b"", True
    yield from _split(rest, number, needles, is_ended=False)


def _split(text: bytes, number: int, needles: tuple[bytes, ...], *, is_ended: bool) -> Iterator[Line]:
    if not any(needle in text for needle in needles):
        return
    for offset, raw in enumerate(text.split(b"\n")):
        if any(needle in raw for needle in needles):
            plain = _ANSI.sub(b"", raw) if b"\x1b" in raw else raw
            for piece in plain.split(b"\r"):
                yield Line(number + offset, piece, is_ended)
