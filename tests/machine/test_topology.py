"""Cores, NUMA nodes and sockets from the files of Linux, and lists of CPUs."""

import os
from pathlib import Path

import pytest
from support.native import put

from nlp_bench.machine.topology import Core, gpu_node, parse_cpus, ranges_of, read_topology


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("0-6:2\n", {0, 2, 4, 6}), ("84-85,180", {84, 85, 180})],
)
def test_lists(text: str, numbers: set[int]) -> None:
    assert parse_cpus(text) == numbers
    assert parse_cpus(ranges_of(numbers)) == numbers


@pytest.mark.parametrize("text", ["a", "1-", "<84-95>", "-1"])
def test_other_text_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match="is no range of CPUs"):
        parse_cpus(text)


@pytest.fixture
def grace(tmp_path: Path) -> Path:
    """Two superchips of 2 cores: NUMA nodes 0 and 1 with CPUs, 4 and 12 with the GPUs' memory only."""
    for cpu in range(4):
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
        put(tmp_path, f"{folder}/thread_siblings_list", f"{cpu}\n")
        put(tmp_path, f"{folder}/physical_package_id", f"{cpu // 2}\n")
    for node, cpus in {0: "0-1", 1: "2-3", 4: "", 12: ""}.items():
        put(tmp_path, f"sys/devices/system/node/node{node}/cpulist", f"{cpus}\n")
    put(tmp_path, "sys/devices/system/node/online", "0-1,4,12\n")
    put(tmp_path, "sys/bus/pci/devices/0009:01:00.0/numa_node", "0\n")
    put(tmp_path, "sys/bus/pci/devices/0019:01:00.0/numa_node", "-1\n")
    return tmp_path


def test_memory_of_a_gpu_is_no_place_for_a_rank(grace: Path) -> None:
    topology = read_topology(grace, range(4))
    assert [(core.node, core.socket, core.cpus) for core in topology.cores] == [
        (0, 0, (0,)), (0, 0, (1,)), (1, 1, (2,)), (1, 1, (3,)),
    ]  # fmt: skip
    assert topology.sockets_of_node == {0: frozenset({0}), 1: frozenset({1})}


def test_what_is_not_allowed_is_not_there(grace: Path) -> None:
    topology = read_topology(grace, {1})
    assert topology.cores == (Core(cpus=(1,), node=0, socket=0),)
    assert topology.sockets_of_node[1] == frozenset({1})  # a GPU may be there


def test_the_node_of_a_gpu(grace: Path) -> None:
    assert gpu_node(0x9 << 16 | 0x01 << 8, grace) == 0
    assert gpu_node(0x19 << 16 | 0x01 << 8, grace) is None  # -1
    assert gpu_node(0x29 << 16 | 0x01 << 8, grace) is None  # not there


def test_nothing_told(tmp_path: Path) -> None:
    topology = read_topology(tmp_path, {2, 0})
    assert topology.cores == (Core(cpus=(0,), node=0, socket=0), Core(cpus=(2,), node=0, socket=0))


def test_this_machine() -> None:
    topology = read_topology()
    cpus = [cpu for core in topology.cores for cpu in core.cpus]
    assert sorted(cpus) == sorted(os.sched_getaffinity(0))
    assert all(core.socket in topology.sockets_of_node[core.node] for core in topology.cores)
