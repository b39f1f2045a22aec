"""A folder as a tar archive whose bytes depend on its files alone: sorted, no owner, one time, one mode."""

import contextlib
import gzip
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from nlp_bench.errors import UsageError
from nlp_bench.files import writing

TOP = "evidence"
"""The folder that everything lies in once the archive is unpacked."""
MTIME = 315532800
"""1980-01-01: GNU tar warns of earlier ones."""
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_OTHER = (".zip", ".7z", ".xz", ".bz2", ".gz", ".zst", ".rar")


def form_of(path: Path) -> str | None:
    """Return the suffix of the archive that `path` asks for, None where it asks for a folder.

    Raises UsageError for a suffix of another kind of archive.
    """
    name = path.name.lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    if name.endswith(_OTHER):
        raise UsageError(f"--output {path}: write {', '.join(SUFFIXES)} or, without a suffix, a folder")
    return None


def write_archive(folder: Path, path: Path, form: str) -> None:
    """Pack the files of `folder` into `path`, whole or not at all. Raises NlpBenchError naming the path."""
    with (
        writing(path) as stream,
        _packer(stream, form) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            _add(tar, file, f"{TOP}/{file.relative_to(folder).as_posix()}")


def _add(tar: tarfile.TarFile, file: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = file.stat().st_size, MTIME, 0o644
    with file.open("rb") as stream:
        tar.addfile(member, stream)


@contextlib.contextmanager
def _packer(stream: IO[bytes], form: str) -> Iterator[IO[bytes]]:
    if form == ".tar":
        yield stream
    elif form == ".tar.zst":
        from backports import zstd  # noqa: PLC0415  # only this form needs it

        with cast("Any", zstd).ZstdFile(stream, mode="w", level=9) as packed:
            yield packed
    else:
        with gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as packed:
            yield cast("IO[bytes]", packed)
