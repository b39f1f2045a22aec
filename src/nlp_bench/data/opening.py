"""Opening a shard of text: plain, gzip, xz, zstd or bzip2, known by its first bytes and not by its name."""

import lzma
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from nlp_bench.errors import UsageError

_NOT_READ = {
    b"PK\x03\x04": "a zip archive; unpack it",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
    b"\x04\x22\x4d\x18": "lz4; unpack it",
    b"PAR1": "Parquet; write it as JSON lines (pandas: read_parquet, to_json(orient='records', lines=True))",
    b"ARROW1": "Arrow; write it as JSON lines",
}
"""First bytes, and what they mean."""
_ZSTD_WINDOW_LOG = 31
"""The largest window, as `zstd -d --long=31` allows; memory is used only where a file has one."""


@contextmanager
def open_shard(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Yield the unpacked stream, and the file itself, whose `tell` says how far it is read.

    Raises UsageError for a file of a kind that is not read; reading may raise what `reading_errors` lists.
    """
    with ExitStack() as stack:
        raw = stack.enter_context(path.open("rb"))
        head = raw.read(8)
        raw.seek(0)
        for magic, what in _NOT_READ.items():
            if head.startswith(magic):
                raise UsageError(f"input: {path} is {what}")
        text = _unpacked(raw, head)
        yield (stack.enter_context(text) if text is not raw else raw), raw


def _unpacked(raw: BinaryIO, head: bytes) -> BinaryIO:
    if head.startswith(b"\x1f\x8b"):
        import gzip  # noqa: PLC0415  # only what is needed is loaded

        return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
    if head.startswith(b"\xfd7zXZ\x00"):
        return cast("BinaryIO", lzma.LZMAFile(raw))
    if head.startswith(b"BZh"):
        import bz2  # noqa: PLC0415

        return cast("BinaryIO", bz2.BZ2File(raw))
    # A frame to be skipped stands in front where zstd ran in parallel (pzstd).
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5):
        from backports import zstd  # noqa: PLC0415

        option = zstd.DecompressionParameter.window_log_max
        return cast("BinaryIO", zstd.ZstdFile(raw, options={option: _ZSTD_WINDOW_LOG}))
    return raw


def reading_errors() -> tuple[type[Exception], ...]:
    """Return what reading may raise: a disk's error, a packed stream that is cut or corrupt, bytes that are no UTF-8."""
    from backports import zstd  # noqa: PLC0415

    return (OSError, EOFError, UnicodeDecodeError, zlib.error, lzma.LZMAError, zstd.ZstdError)
