"""Files are written whole or not at all, and every JSON record states its schema."""

import contextlib
import errno
import fcntl
import json
import math
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from nlp_bench.errors import NlpBenchError, explained

LFS_POINTER = b"version https://git-lfs"  # how a file begins that stands for one that was not fetched
PIPE_S = 10.0  # seconds within which a named pipe must yield something: without a writer it would never open
SEEN_WITHIN_S = 60.0
"""Within which another node sees a new file: the attribute caches of network file systems hold for 30 to 60 s."""
PATIENCE_S = 3.0  # seconds after which a wait for a lock is reported
_BLOCK_BYTES = 1 << 20
MOST_RECORD_BYTES = 64 << 20  # largest JSON record that is read; real ones have some MB at most
_MOST_DIGITS = 400  # of a whole number in a record


def open_for_reading(path: Path) -> BinaryIO:
    """Open a file, or a pipe into which somebody writes, unbuffered. Raises OSError or ValueError as open() does, and OSError for a device."""
    mode = path.stat().st_mode
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and str(path) not in {os.devnull, "/dev/stdin"}):
        raise OSError(errno.EINVAL, "it is a device")
    # /dev/fd/N, of <(command) in a shell, is open on its other side already.
    if not stat.S_ISFIFO(mode) or real(path).is_relative_to("/proc"):
        return path.open("rb", buffering=0)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    if not any(event & select.POLLIN for _, event in ready.poll(1000 * PIPE_S)):
        os.close(descriptor)
        raise OSError(errno.EAGAIN, f"it is a pipe, and nothing came out of it within {PIPE_S:g} s")
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb", buffering=0)


def real(path: str | Path) -> Path:
    """Return the absolute path without links. A link to itself stays, so that opening it raises OSError; Path.resolve raises RuntimeError before Python 3.13."""
    return Path(os.path.realpath(path))


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Make `folder` the current one within the block; one before that this user may not enter is not returned to. Raises OSError."""
    flags = getattr(os, "O_PATH", os.O_RDONLY)  # which needs no right to read it; not on macOS
    try:
        before = os.open(".", flags)
    except PermissionError:  # as after sudo -u in root's home: no relative path could be reached from there
        before = os.open("/", flags)
    try:
        os.chdir(folder)
        yield
    finally:
        with contextlib.suppress(PermissionError):
            os.fchdir(before)
        os.close(before)


def opened(path: Path) -> BinaryIO:
    """Open a regular file of a folder that anybody may have filled. Raises OSError, also for anything else: a pipe without a writer would never open."""
    if not stat.S_ISREG(path.stat().st_mode) and not real(path).is_relative_to("/proc"):  # <(command)
        raise OSError(errno.EINVAL, "it is no regular file")
    return path.open("rb")


def record_text(path: Path) -> str:
    """Return the text of a record. Raises OSError, also for a file without end, and ValueError for bytes that are no UTF-8."""
    with opened(path) as stream:
        size = os.fstat(stream.fileno()).st_size or MOST_RECORD_BYTES  # of a pipe 0
        content = stream.read(min(size, MOST_RECORD_BYTES) + 1)
    if len(content) > MOST_RECORD_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_RECORD_BYTES >> 20} MiB, which no record is")
    return content.decode("utf-8")


def sha256_of(path: Path, num_bytes: int | None = None) -> str:
    """Return the SHA-256 of a file, or of its first `num_bytes`, in hexadecimal. Raises OSError."""
    import hashlib  # noqa: PLC0415  # few callers need it, and start-up is measured

    digest, left = hashlib.sha256(), num_bytes
    with opened(path) as stream:
        while block := stream.read(_BLOCK_BYTES if left is None else min(left, _BLOCK_BYTES)):
            digest.update(block)
            left = None if left is None else left - len(block)
    return digest.hexdigest()


def write_text(path: Path, text: str, *, errors: str = "backslashreplace") -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all, as `writing` does.

    Characters that UTF-8 cannot encode are escaped; `errors="surrogateescape"` writes the byte itself instead, for a
    script with a path that is not UTF-8. Raises NlpBenchError.
    """
    try:
        content = text.encode("utf-8", errors)
    except UnicodeEncodeError:  # a lone surrogate, from somebody's JSON
        content = text.encode("utf-8", "backslashreplace")
    write_bytes(path, content)


def write_bytes(path: Path, content: bytes, *, once: bool = False) -> None:
    """Write `content` to `path`, whole or not at all, as `writing` does. Raises NlpBenchError."""
    with writing(path, once=once) as stream:
        stream.write(content)


@contextlib.contextmanager
def writing(path: Path, *, once: bool = False) -> Iterator[BinaryIO]:
    """Yield a stream whose bytes are at `path` once the block has ended without an error: temporary file next to it, fsync, os.replace.

    The mode is that of a new file under the caller's umask, or that of the file which is replaced; a link is replaced, not followed, and
    files in /dev or /proc are written to directly. Raises NlpBenchError naming the path and the operating system's error; an older file
    at `path` is then untouched. A process that is killed may leave the temporary file .NAME.….part; nothing reads it.
    With `once`, the first of several writers wins: where `path` exists, it stays as it is.
    """
    temporary = path.parent / f".{path.name[:40]}.{os.urandom(6).hex()}.part"  # a file name may have 255 bytes
    try:
        if not path.name:  # the current folder
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        folder = real(path.parent)
        if folder == Path("/dev") or folder.is_relative_to("/proc"):
            # /dev/null, /dev/stdout, /dev/fd/63 of >(command): written to, never replaced.
            with path.open("wb") as stream:
                yield stream
            return
        # The kernel applies the umask: asking for it with os.umask would change it for every thread meanwhile.
        try:
            # Within the `try`: a signal may come as soon as the file is there.
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                with contextlib.suppress(OSError):  # nothing is replaced, or a file system without modes (CIFS)
                    older = path.lstat().st_mode
                    if stat.S_ISREG(older):  # a link is replaced, wherever it leads
                        os.fchmod(stream.fileno(), older & 0o777)
                try:
                    os.fsync(stream.fileno())
                except OSError as error:
                    if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}:  # those cannot flush at all
                        raise
            (_link if once else _replace)(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise NlpBenchError(f"cannot write {path}: {explained(error)}; nothing of it was changed") from error


def _replace(temporary: Path, path: Path) -> None:
    own = temporary.stat().st_ino
    try:
        temporary.replace(path)
    except FileNotFoundError:  # NFS: the answer was lost, and the request, sent again, found it done
        if path.stat().st_ino != own:
            raise


def _link(temporary: Path, path: Path) -> None:
    """Give the whole file its name unless another has it; a hard link is the step that only one writer can do."""
    try:
        path.hardlink_to(temporary)
    except OSError:  # another has it, or a file system without hard links
        if not os.path.lexists(path):
            _replace(temporary, path)
            return
    temporary.unlink()


def user_name(number: int) -> str:
    """Return the name of a user, or the number in words where nobody has a name for it."""
    import pwd  # noqa: PLC0415  # few callers need it, and start-up is measured

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def new_owner(folder: Path) -> int:
    """Return the number of the user to whom a file belongs that is made in `folder`: some file systems give everything one owner. Raises OSError."""
    import tempfile  # noqa: PLC0415  # few callers need it, and start-up is measured

    with tempfile.TemporaryFile(dir=folder) as trial:
        return os.fstat(trial.fileno()).st_uid


def age_s(path: Path) -> float:
    """Return the seconds since a file was changed, by the clock that dated it, which may be a file server's.

    A time in the future, by a clock that was set back or by `touch`, counts as one as far in the past. Raises OSError.
    """
    import tempfile  # noqa: PLC0415  # few callers need it, and start-up is measured

    now_s = time.time()
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=path.parent) as fresh:
        now_s = os.fstat(fresh.fileno()).st_mtime
    return abs(now_s - path.stat().st_mtime)


def await_file(path: Path) -> bool:
    """Wait until `path`, which another node has written, is seen here; return whether it is within SEEN_WITHIN_S."""
    end = time.monotonic() + SEEN_WITHIN_S
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.5)
        list(path.parent.glob("*"))  # some file systems look a name up anew only with its folder
    return path.exists()


def temporary_folder() -> Path:
    """Return the folder for temporary files. Raises NlpBenchError where there is none: a container may have neither /tmp nor TMPDIR."""
    import tempfile  # noqa: PLC0415  # few callers need it, and start-up is measured

    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise NlpBenchError(
            "there is no folder for temporary files: neither TMPDIR nor /tmp, /var/tmp, /usr/tmp or the current folder can be written; "
            "set TMPDIR to a folder that exists, is writable and has room"
        ) from error


def user_folder() -> Path:
    """Return this user's folder for temporary files, made if needed: look whose it is, others may have made it. Raises OSError, or NlpBenchError for none."""
    folder = temporary_folder() / f"nlp-bench-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return folder


def replace_folder(folder: Path, output: Path) -> None:
    """Move the finished `folder` to `output`, where another folder may be: afterwards there is the old one or the new one.

    A process that is killed between the two steps leaves the old folder as `.NAME.old`: call `recover_folder` before
    looking for `output`. Raises OSError.
    """
    import shutil  # noqa: PLC0415  # few callers need it, and start-up is measured

    if output.exists():  # a folder cannot be renamed over another one that holds files
        older = _older(output)
        shutil.rmtree(older, ignore_errors=True)
        if older.exists():  # another user's, which only that user can remove
            older.rename(older.with_name(f"{older.name}.{os.urandom(6).hex()}"))
        output.rename(older)
        try:
            folder.rename(output)
        except OSError:
            older.rename(output)
            raise
        shutil.rmtree(older, ignore_errors=True)
    else:
        folder.rename(output)


def recover_folder(output: Path) -> None:
    """Restore the folder that a killed `replace_folder` had set aside, if there is one. Raises OSError."""
    older = _older(output)
    if older.is_dir() and not output.exists():
        older.rename(output)


def _older(output: Path) -> Path:
    return output.with_name(f".{output.name[:60]}.old")


@contextlib.contextmanager
def reported_late(message: str, *, patience: float = 1) -> Iterator[Callable[[], None]]:
    """Print `message` on standard error where the block takes longer, or calls what is yielded later, than `patience` times PATIENCE_S."""
    timer = threading.Timer(patience * PATIENCE_S, print, [f"nlp-bench: {message}"], {"file": sys.stderr})
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


@contextlib.contextmanager
def locked(path: Path, remedy: str) -> Iterator[None]:
    """Hold the lock file `path`, made with its folder, so that two processes do not make the same thing.

    Another user's is held as well where it may be read; a wait of some seconds is reported. Raises NlpBenchError naming the path and the
    `remedy` when it can be neither made nor opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError as refused:
            try:
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                raise refused from None  # it could not be made: the folder is not ours
    except OSError as error:
        raise NlpBenchError(f"cannot write {path}: {explained(error)}; or {remedy}") from error
    with os.fdopen(handle, "rb"):
        try:
            try:
                # A lock daemon may not answer.
                with reported_late(f"waiting for the file system to answer for the lock {path}"):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with reported_late(f"waiting for the process that holds {path}"):
                    fcntl.flock(handle, fcntl.LOCK_EX)  # released by the system even if that process is killed
        except OSError as error:  # ENOLCK: a file server without locks
            raise NlpBenchError(f"cannot lock {path}: {explained(error)}") from error
        yield


def write_json(path: Path, record: dict[str, Any], *, once: bool = False) -> None:
    """Write a record, which has a schema, as indented JSON; NaN and infinity, which JSON has not (RFC 8259, section 6), as null. `once` as of `writing`."""
    try:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError:
        record = _finite(record)
        text = json.dumps(record, indent=1, ensure_ascii=False)
    try:
        content = text.encode()
    except UnicodeEncodeError:  # a path that is not UTF-8: as an escape of JSON it is read back unchanged
        content = json.dumps(record, indent=1).encode()
    write_bytes(path, content + b"\n", once=once)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finite_number(text: str) -> float | None:
    return None if text in {"NaN", "Infinity", "-Infinity"} or not math.isfinite(value := float(text)) else value


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    """Parse a JSON text, with the hooks of `json.loads`. Raises ValueError where it is none, or nested too deeply."""
    try:
        return json.loads(text, **hooks)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_record(text: str, **hooks: Any) -> Any:
    """Parse the JSON text of a record as `parse_json` does. Raises ValueError, too, for a key that stands twice, of which readers take either."""
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark; save it as UTF-8 without one")
    if not text:
        raise ValueError(
            "it is empty: its file server shows it late, or crashed while it was written; look again in a minute, then put it back, or "
            "remove it (nlp-bench sync DIR decides an outcome.json anew)"
        )
    return parse_json(text, object_pairs_hook=once, parse_int=_whole_number, **hooks)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON (`object_pairs_hook`). Raises ValueError for one with a key twice: in a log it is the halves of two lines."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice[:80]!r} stands twice in one object; leave one of the two out")
    return found


def _whole_number(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits, {text[:20]}..., is in no record")
    return int(text)


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of any origin, {} where there is none: for what a number does not depend on."""
    with contextlib.suppress(OSError, ValueError):
        record = parse_json(record_text(path))
        return record if isinstance(record, dict) else {}
    return {}


def refuse_types(record: dict[str, Any], path: Path, **kinds: Any) -> None:
    """Refuse a record that lacks one of the fields `kinds` or has it in another type. Raises NlpBenchError naming it."""
    for name, kind in kinds.items():
        if name not in record or not isinstance(record[name], kind) or isinstance(record[name], bool):
            found = repr(record[name])[:80] if name in record else "missing"
            raise NlpBenchError(f"{path}: {name} is {found}: the file was changed or is damaged; put the original back")


def read_json(path: Path, schema: str) -> dict[str, Any]:
    """Read a record of the family `schema` ("nlp-bench/run/1"): older versions are read, newer ones refused.

    A number that is not finite, which JSON does not have, is read as None: missing.
    Raises NlpBenchError when the file is missing, is no JSON object, is of another family or newer than this program.
    """
    try:
        record = parse_record(record_text(path), parse_constant=_finite_number, parse_float=_finite_number)
    except OSError as error:
        # What `opened` and `record_text` say of the file itself is no matter of the system's.
        why = error.strerror if error.errno in {errno.EINVAL, errno.EFBIG} else explained(error)
        raise NlpBenchError(f"cannot read {path}: {why}") from error
    except ValueError as error:
        raise NlpBenchError(f"{path} is not JSON: {error}") from error
    family, _, version = schema.rpartition("/")
    found = str(record.get("schema", "")) if isinstance(record, dict) else ""
    found_family, _, found_version = found.rpartition("/")
    if found_family != family or not (found_version.isascii() and found_version.isdigit()):
        raise NlpBenchError(f"{path}: schema is {found[:80]!r}, expected {schema!r}")
    if len(found_version) > 9 or int(found_version) > int(version):
        raise NlpBenchError(
            f"{path}: schema {found[:80]} is newer than this nlp-bench reads ({schema}); install a newer one"
        )
    return dict(record)
