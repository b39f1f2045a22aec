"""Stand-ins of shared libraries, compiled from C: loaded and called by their C types as the real ones are."""

import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(source: Path, folder: Path) -> str:
    """Compile `source` into a shared library in `folder` and return its path; skips where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = folder / f"lib{source.stem}.so"
    subprocess.run([compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    return str(path)
