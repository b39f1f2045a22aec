"""A real file, written and removed: rights, read-only mounts and quotas lie to every other question."""

import contextlib
import os
import shlex
import tempfile
import time
from pathlib import Path

from nlp_bench.doctor.finding import Finding, failed, ok, together, warning
from nlp_bench.doctor.folders import written_folders
from nlp_bench.doctor.place import Place

PROBE_BYTES = 2**20
SLOW_S = 2.0
"""Seconds to write and flush 1 MiB."""


def check(place: Place) -> Finding:
    """Write 1 MiB where runs, data and builds are written; the file is removed, whatever happens."""
    folders = dict.fromkeys(written_folders(place).values())
    return together([_try(folder) for folder in folders], f"{len(folders)} folder(s) can be written")


def _try(folder: Path) -> Finding:
    begin = time.monotonic()
    try:
        handle, name = tempfile.mkstemp(prefix=".nlp-bench-doctor.", dir=folder)
    except OSError as error:
        return failed(f"{folder}: cannot create a file: {error.strerror}", remedy=_remedy(folder))
    try:
        try:
            os.write(handle, bytes(PROBE_BYTES))
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        return failed(f"{folder}: cannot write 1 MiB: {error.strerror}", remedy=_remedy(folder))
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()
    elapsed_s = time.monotonic() - begin
    if elapsed_s > SLOW_S:
        return warning(
            f"{folder}: 1 MiB took {elapsed_s:.1f} s",
            remedy="a file system under load: start later, or write elsewhere",
        )
    return ok("", f"{folder}: 1 MiB in {1e3 * elapsed_s:.0f} ms")


def _remedy(folder: Path) -> str:
    word = shlex.quote(str(folder))
    return f"ls -ld {word}; df -h {word}; quota -s; or name another folder (--runs, NLP_BENCH_BUILD_DIR)"
