"""Opens a bundle that nobody vouches for: a folder is only read, an archive goes into a private folder that is removed again.

The reader takes plain tar headers alone (POSIX ustar, as `archive.py` and GNU tar write short names) and refuses everything else:
links, devices, sparse files, names that lead out or are given twice, and more bytes than allowed.
"""

import gzip
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from nlp_bench.bundle.manifest import MANIFEST, is_safe
from nlp_bench.errors import UsageError
from nlp_bench.files import open_for_reading
from nlp_bench.walk import MAX_DEPTH

MAX_BYTES = 4 << 30
"""Unpacked bytes of a bundle, unless more are allowed."""
MAX_FILES = 100_000
_BLOCK = 512
_MAX_EXTENDED = 1 << 16
_OVERRIDES = (b" path=", b" linkpath=", b" size=", b" GNU.sparse")


@contextmanager
def opened(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[Path]:
    """Yield the folder that holds manifest.json. Raises UsageError for what is unsafe, too large or no bundle."""
    if path.is_dir():
        folder = _holder(path, str(path))
        _check_folder(folder, max_bytes)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="nlp-bench-verify-") as private:
        folder = Path(private)
        try:
            with open_for_reading(path) as stream:
                _unpack(_Bounded(_unpacked(stream), max_bytes), folder)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
        except _errors() as error:
            why = getattr(error, "strerror", None) or error
            why = "it is cut; copy it again from where it was made" if isinstance(error, EOFError) else why
            raise UsageError(
                f"{path} is not a bundle: it cannot be read as .tar, .tar.gz or .tar.zst: {why}"
            ) from error
        yield _holder(folder, str(path))


def _errors() -> tuple[type[Exception], ...]:
    import zlib  # noqa: PLC0415  # likewise

    from backports import zstd  # noqa: PLC0415  # only archives need it

    return (OSError, EOFError, ValueError, tarfile.TarError, zlib.error, cast("Any", zstd).ZstdError)


def _holder(folder: Path, name: str) -> Path:
    """Return `folder`, or the only folder in it, whichever holds the manifest."""
    if (folder / MANIFEST).is_file():
        return folder
    inside = [path for path in islice(folder.iterdir(), 2) if not path.is_symlink()]
    if len(inside) == 1 and (inside[0] / MANIFEST).is_file():
        return inside[0]
    raise UsageError(f"{name} is not a bundle: there is no {MANIFEST}; make one with: nlp-bench bundle RUN_DIR")


def _check_folder(folder: Path, max_bytes: int) -> None:
    total = count = 0
    left = [folder]
    while left:
        for path in left.pop().iterdir():
            mode, inside = path.lstat().st_mode, path.relative_to(folder)
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UsageError(f"{folder}: {str(inside)!r} is a link or a device; a bundle has none")
            if len(inside.parts) > MAX_DEPTH:
                raise UsageError(f"{folder}: folders in folders, more than {MAX_DEPTH} deep; a bundle has none")
            left += [path] if stat.S_ISDIR(mode) else []
            total, count = total + path.lstat().st_size * stat.S_ISREG(mode), count + 1
            if total > max_bytes or count > MAX_FILES:
                raise UsageError(f"{folder}: more than {max_bytes} bytes or {MAX_FILES} files; --max-bytes allows more")


def _unpacked(stream: IO[bytes]) -> IO[bytes]:
    head = stream.read(4)
    stream.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream, mode="rb"))
    if head == b"\x28\xb5\x2f\xfd":
        from backports import zstd  # noqa: PLC0415  # only this form needs it

        return cast("IO[bytes]", cast("Any", zstd).ZstdFile(stream, mode="r"))
    return stream


class _Bounded:
    """Reads what is wanted, or refuses; a bomb is met by the limit, before it fills memory or disk."""

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        self.stream, self.left, self.max_bytes = stream, max_bytes, max_bytes

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer at the end."""
        parts = []
        while count:
            if self.left <= 0:
                raise self.too_many()
            part = self.stream.read(min(count, 1 << 16, self.left))
            if not part:
                break
            parts.append(part)
            count, self.left = count - len(part), self.left - len(part)
        return b"".join(parts)

    def too_many(self) -> UsageError:
        """Return the refusal."""
        return UsageError(f"unpacks to more than {self.max_bytes} bytes; --max-bytes N allows more")


def _unpack(source: _Bounded, folder: Path) -> None:
    seen: set[str] = set()
    while True:
        header = source.read(_BLOCK)
        if not header.strip(b"\0"):
            break
        member = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        if member.size < 0:
            raise UsageError("a member of negative size; nothing was read")
        if member.type in {tarfile.XHDTYPE, tarfile.XGLTYPE}:
            _pass_over(source, member)
            continue
        name = member.name.removeprefix("./").rstrip("/")
        if not name or (member.isdir() and name == "."):
            continue
        _check_member(member, name, seen)
        seen.add(name.lower())
        if member.isdir():
            (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        else:
            _extract(source, member, folder / name)
    while rest := source.read(1 << 16):
        if rest.strip(b"\0"):
            raise UsageError("data behind the end of the archive")


def _check_member(member: tarfile.TarInfo, name: str, seen: set[str]) -> None:
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise UsageError(f"unsafe archive: {name!r} is a link, a device or of another special kind; nothing was read")
    if not is_safe(name):
        raise UsageError(f"unsafe archive: the name {member.name!r} is absolute, leads out or has unusual characters")
    if name.lower() in seen and not member.isdir():
        raise UsageError(f"unsafe archive: {name!r} is there twice")
    if len(seen) >= MAX_FILES:
        raise UsageError(f"unsafe archive: more than {MAX_FILES} files")


def _pass_over(source: _Bounded, member: tarfile.TarInfo) -> None:
    """Leave out extended attributes (BSD tar writes times there) unless they name another file."""
    if member.size > _MAX_EXTENDED:
        raise UsageError("unsafe archive: extended headers above 64 KiB")
    text = source.read(-(-member.size // _BLOCK) * _BLOCK)
    if any(word in text for word in _OVERRIDES):
        raise UsageError("unsafe archive: an extended header names another file, link or size")


def _extract(source: _Bounded, member: tarfile.TarInfo, path: Path) -> None:
    if member.size > source.left:  # as it says itself: nothing of it needs to be unpacked
        raise source.too_many()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    left = member.size
    with os.fdopen(handle, "wb") as stream:
        while left:
            part = source.read(min(left, 1 << 20))
            if not part:
                raise UsageError("the archive is cut")
            stream.write(part)
            left -= len(part)
    source.read(-member.size % _BLOCK)
