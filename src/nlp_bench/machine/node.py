"""What one node is, by Linux, Slurm and the environment modules: no program is started."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlp_bench.packages import installed_version

NCCL_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
"""Names under which pip installs NCCL; the loaded library may be another one."""

SLOW_VARIABLES = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "CUDA_LAUNCH_BLOCKING": "1",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
}
"""Variables for debugging that slow a training down when they stay set."""


def node_name(variables: Mapping[str, str]) -> str:
    """Return this node's name in Slurm, else the host's; letters, digits and . _ - only, as it names files."""
    name = variables.get("SLURMD_NODENAME") or socket.gethostname() or "node"
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".")[:200] or "node"


def cpu_model(root: Path = Path("/")) -> str | None:
    """Return the CPU's model name, None where Linux does not state it."""
    return _first(r"^model name\s*:\s*(.+)$", text_of(root / "proc/cpuinfo"))


def memory_bytes(name: str, root: Path = Path("/")) -> int | None:
    """Return a field of /proc/meminfo, such as MemTotal, in bytes; None where Linux does not have it."""
    found = _first(rf"^{name}:\s+(\d+) kB", text_of(root / "proc/meminfo"))
    return int(found) * 1024 if found else None


def host_facts(root: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts of the node whose file system begins at `root`; unknown is None, a list may be empty."""
    cpuinfo = text_of(root / "proc/cpuinfo")
    boot_s = _first(r"^btime (\d+)", text_of(root / "proc/stat"))
    sockets = re.findall(r"^physical id\s*:\s*(\d+)", cpuinfo, re.MULTILINE)
    cores = re.findall(r"^core id\s*:\s*(\d+)", cpuinfo, re.MULTILINE)
    governors = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    uname = os.uname()
    return {
        "host": socket.gethostname(),
        "cpu": {
            "model": cpu_model(root),
            "architecture": uname.machine,
            "sockets": len(set(sockets)) or None,
            "cores": len(set(zip(sockets, cores, strict=False))) or None,
            "threads": len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE)) or None,
            "usable_threads": len(os.sched_getaffinity(0)),
            "scaling_governor": sorted({text for path in governors if (text := text_of(path).strip())}),
        },
        "memory_bytes": memory_bytes("MemTotal", root),
        "num_numa_nodes": len(list(root.glob("sys/devices/system/node/node[0-9]*"))) or None,
        "kernel": uname.release,
        "operating_system": _first(r'^PRETTY_NAME="?([^"\n]+)', text_of(root / "etc/os-release")),
        "boot_time_unix_s": int(boot_s) if boot_s else None,
        "boot_id": text_of(root / "proc/sys/kernel/random/boot_id").strip() or None,
        "infiniband": infiniband(root),
        "modules": loaded_modules(variables) or [],
        "slurm": {
            "job_id": variables.get("SLURM_JOB_ID"),
            "node_list": variables.get("SLURM_JOB_NODELIST"),
            "node_id": variables.get("SLURM_NODEID"),
            "node_name": variables.get("SLURMD_NODENAME"),
        },
        "nccl_package": next((v for name in NCCL_PACKAGES if (v := installed_version(name))), None),
    }


def loaded_modules(variables: Mapping[str, str]) -> list[str] | None:
    """Return the environment modules that are loaded, in their order; None where no module system says so."""
    known = variables.get("LOADEDMODULES")
    return None if known is None else [name for name in known.split(":") if name]


def infiniband(root: Path) -> list[dict[str, Any]]:
    """Return the ports of InfiniBand adapters (RoCE ones, too): device, port, state, rate and link layer as Linux words them."""
    ports = []
    for path in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        state = text_of(path / "state").strip()
        ports.append(
            {
                "device": path.parts[-3],
                "port": path.name,
                "state": state.partition(":")[2].strip() or state or None,  # "4: ACTIVE"
                "rate": text_of(path / "rate").strip() or None,
                "link_layer": text_of(path / "link_layer").strip() or None,
            }
        )
    return ports


def load_1min(root: Path) -> float | None:
    """Return Linux's load average over the last minute, which shows other people's work."""
    text = _first(r"^(\d+\.\d+) ", text_of(root / "proc/loadavg"))
    return float(text) if text else None


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1).strip() if found else None


def text_of(path: Path) -> str:
    """Return what a file holds, "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
