"""Whether a file is there, and the file itself rather than a pointer to it."""

from pathlib import Path

from nlp_bench.errors import UsageError

LFS_POINTER = b"version https://git-lfs"


def require_file(field: str, path: Path) -> None:
    """Raise UsageError unless `path` is a readable file and not the pointer that git-lfs leaves in its place."""
    try:
        with path.open("rb") as stream:
            if stream.read(len(LFS_POINTER)) == LFS_POINTER:
                raise UsageError(f"{field}: {path} is a git-lfs pointer, not the file; fetch it with git lfs pull")
    except OSError as error:
        raise UsageError(f"{field}: cannot read {path}: {error.strerror}") from error
