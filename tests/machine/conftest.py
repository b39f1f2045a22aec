"""A node to record: NVIDIA's library by its C types, and the files of Linux below a folder."""

from pathlib import Path

import pytest
from support.native import four_gpus, nvml_library, put

__all__ = ["four_gpus", "nvml_library"]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The root of a node: 2 sockets of 2 cores with RAPL, one InfiniBand adapter that is up and one that is down."""
    root = tmp_path / "node"
    cpu = "processor\t: {}\nmodel name\t: AMD EPYC 7402 24-Core Processor\nphysical id\t: {}\ncore id\t: {}\n\n"
    put(root, "proc/cpuinfo", "".join(cpu.format(i, i // 4, i % 4 // 2) for i in range(8)))
    put(root, "proc/meminfo", "MemTotal:       527988132 kB\nMemFree: 1 kB\n")
    put(root, "proc/stat", "cpu 1 2 3\nbtime 1763600000\n")
    put(root, "proc/loadavg", "4.25 2.0 1.0 5/999 12345\n")
    put(root, "proc/sys/kernel/random/boot_id", "0f3c\n")
    put(root, "etc/os-release", 'NAME="Rocky"\nPRETTY_NAME="Rocky Linux 9.4"\n')
    for index in range(2):
        put(root, f"sys/devices/system/cpu/cpu{index}/cpufreq/scaling_governor", "performance\n")
        (root / f"sys/devices/system/node/node{index}").mkdir(parents=True)
        zone = f"sys/class/powercap/intel-rapl:{index}"
        put(root, f"{zone}/name", f"package-{index}\n")
        put(root, f"{zone}/energy_uj", f"{1000 + index}\n")
        put(root, f"{zone}/max_energy_range_uj", "262143328850\n")
        put(root, f"sys/class/powercap/intel-rapl:{index}:0/name", "dram\n")
        put(root, f"sys/class/powercap/intel-rapl:{index}:0/energy_uj", "5\n")
        port = f"sys/class/infiniband/mlx5_{index}/ports/1"
        put(root, f"{port}/state", "1: DOWN\n" if index else "4: ACTIVE\n")
        put(root, f"{port}/rate", "200 Gb/sec (4X HDR)\n")
        put(root, f"{port}/link_layer", "InfiniBand\n")
    return root
