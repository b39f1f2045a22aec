"""Let every writer write where it cannot: the old files stay whole, the path and the remedy are said, no temporary file is left.

    python tests/soak/full_disk.py --levels 8

full: a tmpfs of 8 MiB on which 0, 4, 8, ... KiB are free, so that some files of a set fit and the next does not. readonly: the same
tmpfs, remounted. quota, io: fsync that ends with EDQUOT, EIO (a stand-in: no quota and no broken disk can be had here). The mounts are
made in a namespace of their own (unshare -rm); where that is not allowed, full is RLIMIT_FSIZE and readonly is left out, and the
last line says so. Exits with 1 if anything failed.
"""

import argparse
import contextlib
import errno
import io
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, whatever is installed

from nlp_bench.cli import main as command_line
from nlp_bench.errors import REMEDIES
from nlp_bench.files import recover_folder
from soak.state import State, state_of
from soak.workers import memory_folder
from soak.writer import CommandError, Writer
from soak.writers import WRITERS

SIZE_KIB = 8192
FULL, LIMIT, READONLY, QUOTA, IO = "full", "limit", "readonly", "quota", "io"
ERRORS = {FULL: errno.ENOSPC, LIMIT: errno.EFBIG, READONLY: errno.EROFS, QUOTA: errno.EDQUOT, IO: errno.EIO}
IN_NAMESPACE = "NLP_BENCH_TEST_DISK"  # set where this script runs in the namespace that it made
PRIVATE = "PRIVATE"


@dataclass
class Count:
    trials: int = 0
    refused: int = 0
    failed: int = 0


def answer(writer: Writer, folder: Path) -> tuple[int, str]:
    """Run one writer as the command line does; return its exit code and what was said."""
    said = io.StringIO()

    def write(_: list[str]) -> int:
        writer.write(folder)
        return 0

    real, command_line._dispatch = command_line._dispatch, write  # main tells the errors
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            if not writer.is_command:
                return command_line.main([]), said.getvalue()
            command_line._dispatch = real
            writer.write(folder)
            return 0, said.getvalue()
    except CommandError as error:
        return error.code, error.said
    finally:
        command_line._dispatch = real


@contextlib.contextmanager
def starved(kind: str, disk: Path, free_kib: int) -> Iterator[None]:
    if kind == FULL:
        fill = disk / ".fill"
        room = os.statvfs(disk)
        fill.write_bytes(b"\0" * max(room.f_bavail * room.f_frsize - 1024 * free_kib, 0))
        yield
        fill.unlink()
    elif kind == LIMIT:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * free_kib, before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    elif kind == READONLY:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        yield
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    else:
        yield from _fsync_fails(ERRORS[kind])


def _fsync_fails(number: int) -> Iterator[None]:
    real = os.fsync

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    os.fsync = fail  # type: ignore[assignment]
    yield
    os.fsync = real


def trial(writer: Writer, kind: str, disk: Path, free_kib: int, new: State) -> tuple[bool, str | None]:
    """Return whether the writer was refused, and what is wrong with what it did and said."""
    folder = fresh(writer, disk)
    old, before = state_of(folder, writer.seal), temporary(folder)
    with starved(kind, disk, free_kib):
        code, said = answer(writer, folder)
    if writer.recover:
        recover_folder(folder / writer.recover)
    found = state_of(folder, writer.seal)
    if code == 0:
        return False, None if found.keys() == new.keys() else f"exit code 0, but there is {sorted(found)}"
    if code not in {1, 2} or "Traceback" in said:
        return True, f"exit code {code}: {said}"
    if code == 2 and found != old:
        return True, f"exit code 2, but something was written: {said}"
    if str(disk) not in said or not _tells(kind, code, said):
        return True, f"no path, no reason or no remedy: {said}"
    lost = sorted(old.keys() - found.keys())
    half = [name for name, text in found.items() if text not in (old.get(name), new.get(name)) and name != writer.steps]
    left = sorted(temporary(folder) - before)
    wrong = f"lost {lost}, half {half}, left {left}" if lost or half or left else writer.check(folder)
    return True, wrong and f"{wrong}: {said}"


def _tells(kind: str, code: int, said: str) -> bool:
    """Whether the reason and what to do are said; a folder that is refused before anything was done needs another one."""
    sqlite = ("database or disk is full", "disk I/O error")  # it hides the number of the error
    reason = os.strerror(ERRORS[kind]) in said or "not writable" in said or any(words in said for words in sqlite)
    elsewhere = re.search(r"\b(name|give|set) .*\b(another|folder)\b", said)
    otherwise = kind == READONLY and "without that file: nlp-bench report" in said
    remedy = otherwise or REMEDIES[ERRORS[kind]] in said or (elsewhere and (code == 2 or kind == READONLY))
    return reason and bool(remedy)


def fresh(writer: Writer, disk: Path) -> Path:
    """Return the folder `run` on the disk with what stands there before."""
    folder = disk / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        writer.prepare(folder)
    return folder


def temporary(folder: Path) -> set[str]:
    """Return the hidden and passing files and folders, locks apart."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    return {name for name in names if (name.rpartition("/")[2].startswith(".") or name.endswith(".part")) and not name.endswith(".lock")}  # fmt: skip


def starve_all(kinds: dict[str, int], disk: Path, only: str) -> Count:
    """Try every writer with each kind of fault, `full` with several levels."""
    count = Count()
    for writer in WRITERS:
        if only not in writer.name:
            continue
        code, said = answer(writer, fresh(writer, disk))
        new = state_of(disk / "run", writer.seal)
        if code:
            print(f"{writer.name}: does not write at all: {said}")
            count.failed += 1
        for kind, levels in kinds.items():
            for level in range(levels):
                is_refused, wrong = trial(writer, kind, disk, 4 * level, new)
                count.trials += 1
                count.refused += is_refused
                wrong = wrong or (None if is_refused or level or kind in {QUOTA, IO} else "it was not refused")
                if wrong:
                    count.failed += 1
                    print(f"{writer.name}, {kind}, {4 * level} KiB free: {wrong}", flush=True)
    return count


def can_mount() -> bool:
    """Whether this process may make a namespace with a mount of its own."""
    words = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(words, capture_output=True, check=False).returncode == 0


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=int, default=8, help="how much is free: 0, 4, ... KiB (default 8 levels)")
    parser.add_argument("--kinds", default="full,readonly,quota,io", help="which faults (default: all)")
    parser.add_argument("--only", default="", help="writers whose name holds this word")
    options = parser.parse_args(words)
    if not os.environ.get(IN_NAMESPACE) and can_mount():
        environment = {**os.environ, IN_NAMESPACE: PRIVATE}
        return subprocess.run(["unshare", "-rm", sys.executable, *sys.argv], env=environment, check=False).returncode
    start, is_real = time.perf_counter(), bool(os.environ.get(IN_NAMESPACE))
    kinds = {kind: options.levels if kind == FULL else 1 for kind in options.kinds.split(",")}
    if not is_real:
        kinds = {{FULL: LIMIT}.get(kind, kind): levels for kind, levels in kinds.items() if kind != READONLY}
    with memory_folder() as disk:
        if is_real:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_KIB}k", "none", str(disk)], check=True)
        try:
            count = starve_all(kinds, disk, options.only)
        finally:
            if is_real:
                subprocess.run(["umount", str(disk)], check=True)
    how = "a real tmpfs" if is_real else "RLIMIT_FSIZE: no mount may be made here"
    seconds = time.perf_counter() - start
    print(f"full_disk ({how}): {count.trials} trials of {len(WRITERS)} writers, {count.refused} refused with a word, {count.failed} failed, {seconds:.0f} s")  # fmt: skip
    return int(count.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
