"""Stand-ins of NVIDIA's management library, compiled from C: loaded and called by their C types as the real one is."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from nlp_bench.machine.nvml import Nvml


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


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(Path(__file__).with_name("fake_nvml.c"), tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def four_gpus(nvml_library: str, monkeypatch: pytest.MonkeyPatch) -> Nvml:
    """A node with four GPUs, in this process and those that it starts."""
    monkeypatch.setenv("FAKE_GPUS", "4")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(Path(nvml_library).parent))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    load_nvml(monkeypatch, nvml_library)
    return Nvml()


def put(root: Path, name: str, text: str) -> None:
    """Write a file of a made node, /sys or /proc say, below its root."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
