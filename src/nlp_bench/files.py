"""Files are written whole or not at all, and every JSON record says which schema it follows."""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nlp_bench.errors import NlpBenchError


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` through a temporary file in the same folder, flushed, then `os.replace`.

    The mode is that of a new file under the caller's umask. Raises NlpBenchError naming the path and what
    the operating system said; an older file at `path` is then untouched.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, whole or not at all, as `write_text` does."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        raise NlpBenchError(
            f"cannot write {path}: {error.strerror}; check that the folder exists, is writable and has room"
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def locked(path: Path, remedy: str) -> Iterator[None]:
    """Hold the lock file `path`, made with its folder, so that two processes do not make the same thing.

    Raises NlpBenchError naming the path and the `remedy` when it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
    except OSError as error:
        raise NlpBenchError(f"cannot write {path}: {error.strerror}; {remedy}") from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # released by the system even if this process is killed
        yield


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write one record as indented JSON; `record["schema"]` is required by the house rules."""
    write_text(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of any origin, {} where there is none: for what a number does not depend on."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else {}
    return {}


def read_json(path: Path, schema: str) -> dict[str, Any]:
    """Read a record of the family `schema` ("nlp-bench/run/1"): older versions are read, newer ones refused.

    Raises NlpBenchError when the file is missing, is no JSON object, is of another family or newer than this program.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NlpBenchError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise NlpBenchError(f"{path} is not JSON: {error}") from error
    family, _, version = schema.rpartition("/")
    found = str(record.get("schema", "")) if isinstance(record, dict) else ""
    found_family, _, found_version = found.rpartition("/")
    if found_family != family or not found_version.isdigit():
        raise NlpBenchError(f"{path}: schema is {found!r}, expected {schema!r}")
    if int(found_version) > int(version):
        raise NlpBenchError(
            f"{path}: schema {found} is newer than this nlp-bench reads ({schema}); install a newer one"
        )
    return dict(record)
