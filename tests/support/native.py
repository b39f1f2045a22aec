"""Stand-ins of NVIDIA's management library, compiled from C: loaded and called by their C types as the real one is."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(source: Path, folder: Path) -> str:
    """Compile `source` into libnvidia-ml.so.1 in `folder` and return its path; skips where there is no C compiler.

    A process with this folder in LD_LIBRARY_PATH loads it.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    return str(path)


def load_nvml(monkeypatch: pytest.MonkeyPatch, path: str | None) -> None:
    """Let the library at `path` answer in this process; None: the node's own, where there is one."""
    import pynvml

    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(path) if path else None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
