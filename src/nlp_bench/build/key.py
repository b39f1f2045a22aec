"""What a build depends on, read without importing torch: versions, Python, GPU architecture, Apex commit."""

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from nlp_bench import __version__
from nlp_bench.packages import installed_version


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The software and the GPU that compiled kernels must fit."""

    nlp_bench: str
    """Version of this program: its operators are compiled too."""
    python: str
    """Python's tag for compiled modules, for example cpython-311."""
    torch: str
    """Version of torch; "absent" without it."""
    megatron_core: str
    """Version of megatron-core; "absent" without it."""
    cuda: str
    """CUDA version that torch was built for; "none" for a CPU build."""
    arch: str
    """Compute capability of the GPU, for example 9.0; "cpu" where there is none."""


@dataclass(frozen=True, kw_only=True)
class Apex:
    """Which Apex is compiled."""

    source: str
    """Git URL or folder."""
    commit: str
    """Commit that is checked out."""


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What is compiled on top of torch's own kernels."""

    apex: Apex | None = None
    """NVIDIA Apex, or none."""
    transformer_engine: str = ""
    """What pip installs for Transformer Engine, for example "transformer_engine[pytorch]==2.9.0"; empty: none."""


def this_machine(arch: str | None = None) -> Machine:
    """Return what is here; `arch` replaces the question to the driver, for building where no GPU is."""
    cuda = _torch_cuda()
    return Machine(
        nlp_bench=__version__,
        python=sys.implementation.cache_tag or "unknown",
        torch=installed_version("torch") or "absent",
        megatron_core=installed_version("megatron-core") or "absent",
        cuda=cuda,
        arch=arch or (gpu_arch() if cuda != "none" else None) or "cpu",
    )


def folder_name(machine: Machine, extras: Extras) -> str:
    """Return `kernels-` and 12 hexadecimal digits that change with anything in `machine` or `extras`."""
    parts = json.dumps([asdict(machine), asdict(extras)], sort_keys=True)
    return f"kernels-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"


def gpu_arch() -> str | None:
    """Return the first GPU's compute capability as the driver tells it, or None without a driver or GPU."""
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return answer[0] if answer and re.fullmatch(r"\d+\.\d+", answer[0]) else None


def _torch_cuda() -> str:
    found = importlib.util.find_spec("torch")  # looks for the package, does not run it
    if found is None or found.origin is None:
        return "none"
    try:
        text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return "none"
    known = re.search(r"^cuda\b.*=\s*'([\d.]+)'", text, re.MULTILINE)
    return known.group(1) if known else "none"
