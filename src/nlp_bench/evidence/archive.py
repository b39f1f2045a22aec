"""A bundle as an archive: packed to bytes that depend on its files alone, and opened as untrusted.

Packed sorted, without owner, with one time and one mode. Opened by `tarfile` with its data filter into a private folder that is
removed again. What neither `nlp-bench bundle` nor a tar that repacks its folder writes is refused before the filter sees it: links,
devices, sparse files, names that lead out, are odd or are given twice, and more bytes than allowed.
"""

import contextlib
import errno
import gzip
import shlex
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeGuard, cast

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.escape import one_line, some
from nlp_bench.evidence.manifest import is_safe
from nlp_bench.files import open_for_reading, temporary_folder, writing
from nlp_bench.inputs.find import is_record
from nlp_bench.inputs.read import refusal_of_record
from nlp_bench.walk import MANIFEST, MAX_DEPTH, TOP, is_bundle

MTIME = 315532800  # 1980-01-01: GNU tar warns of earlier ones
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_OTHER = (".zip", ".7z", ".xz", ".bz2", ".gz", ".zst", ".rar")
MAX_BYTES = 4 << 30  # unpacked bytes of a bundle, unless more are allowed
MAX_FILES = 100_000
_CHUNK = _MAX_EXTENDED = 1 << 16
_OVERRIDES = (b" path=", b" linkpath=", b" size=", b" GNU.sparse")


def form_of(path: Path) -> str | None:
    """Return the suffix of the archive that `path` names, None where it names a folder. Raises UsageError for a suffix of another kind of archive."""
    name = path.name.lower()
    form = next(filter(name.endswith, SUFFIXES), None)
    if form is None and name.endswith(_OTHER):
        raise UsageError(f"--output {path}: write {', '.join(SUFFIXES)} or, without a suffix, a folder")
    return form


def write_archive(folder: Path, path: Path, form: str) -> None:
    """Pack the files of `folder` into `path`, whole or not at all. Raises NlpBenchError naming the path."""
    with contextlib.ExitStack() as stack:
        stream: Any = stack.enter_context(writing(path))
        if form == ".tar.zst":
            stream = stack.enter_context(_zstd().ZstdFile(stream, mode="w", level=9))
        elif form != ".tar":
            stream = stack.enter_context(gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0))
        tar = stack.enter_context(tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT))
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            member = tarfile.TarInfo(f"{TOP}/{file.relative_to(folder).as_posix()}")
            member.size, member.mtime, member.mode = file.stat().st_size, MTIME, 0o644
            with file.open("rb") as content:
                tar.addfile(member, content)


@contextlib.contextmanager
def opened(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[Path]:
    """Yield the folder that holds manifest.json. Raises UsageError for what is unsafe, too large or no bundle. A folder is only read."""
    if path.is_dir():
        folder = _holder(path, str(path))
        _check_folder(folder, max_bytes)
        yield folder
        return
    if path.name == MANIFEST and is_bundle(path.parent):
        around = shlex.quote(str(path.absolute().parent))
        raise UsageError(f"{path} is the manifest of a bundle; verify the folder around it: nlp-bench verify {around}")
    if is_record(path) and (refusal := refusal_of_record(path, str(path))):
        raise UsageError(
            f"{path} is not a bundle but {refusal.reasons[0].text}; what can be verified is made by: nlp-bench bundle RUN_DIR"
        )
    made = tempfile.TemporaryDirectory(prefix="nlp-bench-verify-", dir=temporary_folder(), ignore_cleanup_errors=True)
    with made as private:
        folder = Path(private)
        try:
            with open_for_reading(path) as stream:
                _unpack(_Bounded(_unpacked(stream), max_bytes), folder)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
        except (*_UNREADABLE, _zstd().ZstdError) as error:
            if is_of_this_machine(error):
                raise NlpBenchError(
                    f"{path} cannot be unpacked in {tempfile.gettempdir()} ({error.strerror}); set TMPDIR to "
                    "a folder with more room, or look at `ulimit -a`"
                ) from error
            why = "it is cut" if isinstance(error, EOFError) else getattr(error, "strerror", None) or error
            raise UsageError(
                f"{path} is not a bundle: it cannot be read as .tar, .tar.gz or .tar.zst: {why}; copy it again from where it was made, "
                "not as text, or unpack it (a zip, say) and give the folder"
            ) from error
        yield _holder(folder, str(path))


_UNREADABLE = (OSError, EOFError, ValueError, RecursionError, tarfile.TarError, zlib.error)
_OF_THIS_MACHINE = {
    getattr(errno, name) for name in ["ENOSPC", "EDQUOT", "EFBIG", "ENOMEM", "EMFILE", "ENFILE", "EIO", "EROFS"]
}


def is_of_this_machine(error: Exception) -> TypeGuard[OSError]:
    """Say whether an error is this machine's (no room, a limit, a disk), so that it says nothing about a bundle."""
    return isinstance(error, OSError) and error.errno in _OF_THIS_MACHINE


def _holder(folder: Path, name: str) -> Path:
    """Return `folder`, or the only folder in it, whichever holds the manifest."""
    if (folder / MANIFEST).is_file():
        return folder
    inside = [path for path in islice(folder.iterdir(), 2) if not path.is_symlink()]
    if len(inside) == 1 and (inside[0] / MANIFEST).is_file():
        return inside[0]
    held = [path.name for path in folder.iterdir() if (path / MANIFEST).is_file() or path.name.endswith(SUFFIXES)]
    inside_it = one_line(some(sorted(held), 5))
    remedy = f"verify one of those in it: {inside_it}" if held else "make one with: nlp-bench bundle RUN_DIR"
    raise UsageError(f"{name} is not a bundle: there is no {MANIFEST}; {remedy}")


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


def _zstd() -> Any:
    from backports import zstd  # noqa: PLC0415  # only archives need it

    return zstd


def _unpacked(stream: IO[bytes]) -> IO[bytes]:
    """Return the tar in `stream`, which is compressed where its first bytes say so. Raises UsageError for a text."""
    head = stream.read(512)  # a tar's first header, which has zeros
    stream.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream, mode="rb"))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return cast("IO[bytes]", _zstd().ZstdFile(stream, mode="r"))
    if head and b"\0" not in head:
        raise UsageError(
            "it is not a bundle but a text, a mail or a web page say; save the attachment or the download itself"
        )
    return stream


class _Bounded:
    """What tarfile reads an archive from: forward only, and never more than is allowed, so that a bomb fills neither memory nor disk."""

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        self._stream, self.max_bytes, self.left = stream, max_bytes, max_bytes  # bytes that may still be read

    def tell(self) -> int:
        """Return the bytes that were read."""
        return self.max_bytes - self.left

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer at the end. Raises UsageError for more than is allowed in all."""
        parts = []
        while count and self.left and (part := self._stream.read(min(count, self.left))):
            parts.append(part)
            count, self.left = count - len(part), self.left - len(part)
        if count and not self.left and self._stream.read(1):
            raise self.too_many()
        return b"".join(parts)

    def seek(self, position: int) -> None:
        """Skip to `position`. Raises TarError for a step back, which only damaged headers cause."""
        if position < self.tell():
            raise tarfile.TarError("a member begins within the one before it")
        while self.tell() < position and self.read(min(position - self.tell(), _CHUNK)):
            pass

    def too_many(self) -> UsageError:
        """Return the error for more bytes than allowed."""
        return UsageError(f"unpacks to more than {self.max_bytes} bytes; --max-bytes N allows more")


EXTRACT_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Pythons before 3.10.12 and 3.11.4 (Debian 12 has 3.11.2) lack it; names and kinds were checked here before. Source: PEP 706."""


class _Plain(tarfile.TarInfo):
    """A file or a folder; `_proc_member` is where tarfile lets a subclass decide what to do with a header."""

    def _proc_member(self, tar: Any) -> tarfile.TarInfo:
        if self.type in {tarfile.XHDTYPE, tarfile.XGLTYPE}:  # BSD tar writes times there: skipped
            if self.size > _MAX_EXTENDED:
                raise UsageError("unsafe archive: extended headers above 64 KiB")
            text = tar.fileobj.read(-(-self.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)
            if any(word in text for word in _OVERRIDES):
                raise UsageError("unsafe archive: an extended header names another file, link or size")
            return self.fromtarfile(tar)
        if self.type not in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE} or self.size < 0:
            raise UsageError(f"unsafe archive: {self.name!r} is a link, a device or of another special kind")
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]  # not in its stubs
        return member


def _refuse_name(name: str, shown: str) -> None:
    if is_safe(name):
        return
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        raise UsageError(f"unsafe archive: the name {shown!r} is absolute or leads out")
    others = [part for part in parts if part != ".DS_Store" and not part.startswith("._")]
    if len(others) < len(parts) and all(map(is_safe, others)):  # ._NAME beside each NAME
        raise UsageError(
            f"a macOS archiver added {shown!r}, which is no part of the bundle: pack it again with "
            "COPYFILE_DISABLE=1 tar, or unpack it, remove that and give the folder"
        )
    raise UsageError(
        f"no bundle: none holds a name like {shown!r}; unpack it and give the folder to `nlp-bench report`, or have a bundle made by: "
        "nlp-bench bundle RUN_DIR"
    )


def _unpack(source: _Bounded, folder: Path) -> None:
    seen: set[str] = set()
    with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r:", tarinfo=_Plain) as tar:
        while member := tar.next():
            tar.members.clear()  # type: ignore[attr-defined]  # it would keep them all
            name = member.name.removeprefix("./").rstrip("/")
            if member.isdir() and name in {"", "."}:
                continue
            _refuse_name(name, member.name)
            if name.lower() in seen and not member.isdir():
                raise UsageError(f"unsafe archive: {name!r} is there twice")
            if len(seen) >= MAX_FILES:
                raise UsageError(f"unsafe archive: more than {MAX_FILES} files")
            if member.size > source.left:  # by its header: nothing of it needs to be unpacked
                raise source.too_many()
            seen.add(name.lower())
            tar.extract(member, folder, set_attrs=False, **EXTRACT_FILTER)
    while rest := source.read(_CHUNK):
        if rest.strip(b"\0"):
            raise UsageError("data after the end of the archive")
