"""The compiled scanner of logs, for a package that was installed without it: scan.c to the shared object that ctypes loads."""

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from nlp_bench.errors import NlpBenchError, UsageError, explained
from nlp_bench.logs.scan import OBJECT, why_slow

FLAGS = ("-O3", "-std=c11", "-shared", "-fPIC")
"""As setup.py has them, and what makes a shared object."""


def build_scanner() -> Path:
    """Compile scan.c beside scan.py, unless that was done since it changed, and return the shared object: whole or not there at all.

    Raises UsageError where there is no C compiler or the package lies where nothing can be written, NlpBenchError where it does not compile.
    """
    source = OBJECT.with_name("scan.c")
    if OBJECT.exists() and OBJECT.stat().st_mtime > source.stat().st_mtime and not why_slow():
        return OBJECT
    compiler = shlex.split(os.environ.get("CC") or next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), ""))
    if not compiler:
        raise UsageError(
            "scanner: no C compiler: neither CC nor cc, gcc or clang; install one (Debian: gcc libc6-dev) or load a module"
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
            os.replace(made, OBJECT)  # noqa: PTH105  # as everywhere: whole or not at all
    except OSError as error:
        raise UsageError(f"scanner: {OBJECT.parent} cannot be written: {explained(error)}") from error
    return OBJECT
