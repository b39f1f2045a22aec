"""Compiles the scanner of logs, scan.c, to the shared object that ctypes loads, for a package that was installed without it."""

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.logs.scan import OBJECT, why_slow

FLAGS = ("-O3", "-std=c11", "-fno-fast-math", "-shared", "-fPIC")  # those of setup.py, and those for a shared object


def build_scanner() -> Path:
    """Compile scan.c to the shared object next to it, unless that is up to date, and return it; it is replaced atomically.

    Raises UsageError where there is no C compiler or the package's folder is not writable, NlpBenchError where it does not compile.
    """
    source = OBJECT.with_name("scan.c")
    if OBJECT.exists() and OBJECT.stat().st_mtime > source.stat().st_mtime and not why_slow():
        return OBJECT
    compiler = shlex.split(os.environ.get("CC") or next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), ""))
    if not compiler:
        raise UsageError(
            "scanner: no C compiler: neither CC nor cc, gcc or clang; install one (Debian: gcc libc6-dev) or load a module"
        )
    if not shutil.which(compiler[0]):
        raise UsageError(
            f"scanner: CC={os.environ.get('CC')}: there is no {compiler[0]} on PATH; load the module that set CC, or unset it"
        )
    try:
        with tempfile.TemporaryDirectory(dir=OBJECT.parent) as folder:
            made = Path(folder, OBJECT.name)
            command = [*compiler, *FLAGS, "-o", str(made), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode:
                raise NlpBenchError(
                    f"scanner: {shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}"
                )
            os.replace(made, OBJECT)  # noqa: PTH105  # atomic
    except OSError as error:
        raise UsageError(f"scanner: {OBJECT.parent} cannot be written: {explained(error)}") from error
    return OBJECT
