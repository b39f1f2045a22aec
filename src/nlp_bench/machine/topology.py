"""The cores of a node that this process may use, with their NUMA node and socket, by Linux's /sys.

Files: Linux's Documentation/ABI/stable/sysfs-devices-system-cpu and -node, Documentation/admin-guide/cputopology.rst
(`core_cpus_list`, before Linux 5.2 `thread_siblings_list`), Documentation/ABI/testing/sysfs-bus-pci (`numa_node`).
"""

import os
import re
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

from nlp_bench.immutable import immutable
from nlp_bench.machine.node import text_of

CPU, NODE, PCI = "sys/devices/system/cpu", "sys/devices/system/node", "sys/bus/pci/devices"


@immutable
class Core:
    """One physical core."""

    cpus: tuple[int, ...]  # numbers of its hardware threads that this process may use, ascending; never empty
    node: int
    socket: int  # processor package


@immutable
class Topology:
    """The cores that a process may use, by NUMA node and then by number."""

    cores: tuple[Core, ...]  # empty only where a system has neither /sys nor affinity
    sockets_of_node: dict[int, frozenset[int]] = field(default_factory=dict)
    """The sockets of each NUMA node, those without an allowed core included."""


def parse_cpus(text: str) -> frozenset[int]:
    """Return the numbers of a list as Linux and taskset write it, "0-3,8" or "0-30:2"; raises ValueError for other text."""
    numbers: set[int] = set()
    for word in text.replace("\n", "").split(","):
        if not word.strip():
            continue
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", word.strip())
        if found is None:
            raise ValueError(f"{word!r} is no range of CPUs")
        first, last, step = found.groups()
        numbers.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(numbers)


def ranges_of(numbers: Iterable[int]) -> str:
    """Return numbers as a list, which Linux and taskset read too: "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def read_topology(root: Path = Path("/"), allowed: Iterable[int] | None = None) -> Topology:
    """Return the topology of the node whose file system begins at `root`, within the CPUs `allowed`.

    `allowed` is this process's own affinity by default: what Slurm, cgroups and taskset have left of the node. What Linux does
    not state is assumed: NUMA node 0, socket 0, one thread per core.
    """
    mine = frozenset(os.sched_getaffinity(0) if allowed is None else allowed)
    node_of = _nodes(root)
    threads = {cpu: _threads(root, cpu) for cpu in mine | node_of.keys()}
    sockets_of_node: dict[int, set[int]] = {}
    for cpu in threads:
        sockets_of_node.setdefault(node_of.get(cpu, 0), set()).add(_socket(root, cpu))
    firsts = {min(threads[cpu] & mine) for cpu in mine}  # one thread of each core
    cores = [
        Core(cpus=tuple(sorted(threads[cpu] & mine)), node=node_of.get(cpu, 0), socket=_socket(root, cpu))
        for cpu in firsts
    ]
    return Topology(
        cores=tuple(sorted(cores, key=lambda core: (core.node, core.cpus))),
        sockets_of_node={node: frozenset(sockets) for node, sockets in sockets_of_node.items()},
    )


def gpu_node(address: int, root: Path = Path("/")) -> int | None:
    """Return the NUMA node of the PCI device at `address` (domain, bus, device and function in 16, 8, 5 and 3 bits); None: unknown."""
    name = f"{address >> 16:04x}:{address >> 8 & 0xFF:02x}:{address >> 3 & 0x1F:02x}.{address & 0x7}"
    text = text_of(root / PCI / name / "numa_node").strip()
    return int(text) if text.isdecimal() else None  # -1: unknown to the firmware


def _nodes(root: Path) -> dict[int, int]:
    """Return the NUMA node of each CPU; a node of memory alone (a GPU's, on Grace Hopper) has no CPU."""
    nodes = root.glob(f"{NODE}/node[0-9]*")
    return {cpu: int(path.name.removeprefix("node")) for path in nodes for cpu in parse_cpus(text_of(path / "cpulist"))}


def _threads(root: Path, cpu: int) -> frozenset[int]:
    folder = root / CPU / f"cpu{cpu}" / "topology"
    text = text_of(folder / "core_cpus_list") or text_of(folder / "thread_siblings_list")
    return parse_cpus(text) | {cpu}


def _socket(root: Path, cpu: int) -> int:
    text = text_of(root / CPU / f"cpu{cpu}" / "topology" / "physical_package_id").strip()
    return int(text) if text.isdecimal() else 0
