"""GPUs, CUDA, NCCL and the fabric of a node that is not this one."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Cli
from support.examining import Make, finding
from support.processes import ROOT

from nlp_bench.build.environment import Machine
from nlp_bench.doctor import hardware
from nlp_bench.doctor.place import Place
from nlp_bench.machine.nvml import Nvml

INSIDE = {"SLURM_JOB_ID": "7"}
"""On a compute node."""


@pytest.fixture
def booster(place: Make, four_gpus: Nvml, tmp_path: Path) -> Place:
    """A compute node of 4 GPUs."""
    return place("juwels-booster", "13", nvml=four_gpus, no_nvml="", variables=INSIDE, files=tmp_path)


def test_as_many_as_the_ranks_and_of_the_right_kind(booster: Place) -> None:
    assert booster.accelerator == "cuda"
    found = finding("gpus", booster)
    assert found.status == "warning"
    assert found.summary == f"the system file says {booster.system.gpu.name}, NVML says NVIDIA Fake-40GB"
    hidden = replace(booster, variables=INSIDE | {"CUDA_VISIBLE_DEVICES": "0,1"})
    found = finding("gpus", hidden)
    assert (found.status, found.summary) == ("failed", "4 rank(s) per node, but 2 GPU(s) are visible")
    assert "CUDA_VISIBLE_DEVICES=0,1" in found.evidence


def test_a_display_gpu_that_no_rank_uses(booster: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DISPLAY", "1")
    mixed = finding("gpus", booster)
    assert (mixed.summary, mixed.remedy) == (
        "the GPUs of the ranks are not alike",
        "choose alike ones with CUDA_VISIBLE_DEVICES",
    )
    three = replace(booster.run, parallel=replace(booster.run.parallel, gpus_per_node=3, nodes=4, tensor=1, pipeline=1))
    chosen = replace(booster, run=three, variables=INSIDE | {"CUDA_VISIBLE_DEVICES": "0,1,2"})
    assert finding("gpus", chosen).summary.endswith("NVML says NVIDIA Fake-40GB")


@pytest.mark.parametrize(
    ("sheet", "told", "is_like"),
    [
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", True),
        ("A100 40GB", "NVIDIA A100-SXM4-40GB", True),
        ("NVIDIA GH200 120GB", "NVIDIA GH200 120GB", True),
        ("NVIDIA H100 SXM5", "NVIDIA H100 80GB HBM3", True),
        ("NVIDIA A100", "NVIDIA H100 80GB HBM3", False),
        ("NVIDIA B200", "NVIDIA GB200", False),
        ("NVIDIA L40", "NVIDIA L40S", False),
    ],
)
def test_data_sheets_and_drivers_word_names_differently(sheet: str, told: str, is_like: bool) -> None:
    assert hardware.is_like(sheet, told) == is_like


def test_a_variable_the_system_takes_from_outside(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "benchmark/systems/local.toml").read_text(encoding="utf-8")
    (tmp_path / "own.toml").write_text(f'{text}\n[environment]\nNCCL_SOCKET_IFNAME = "$NCCL_SOCKET_IFNAME"\n')
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "none-such")
    said = cli("doctor", "--checks", "nccl", "--system", tmp_path / "own.toml", code=None).out
    assert "NCCL_SOCKET_IFNAME=none-such; this node has: " in said


def test_a_login_node_and_a_compute_node_without_gpus(booster: Place) -> None:
    none = replace(booster, nvml=None, no_nvml="no NVIDIA driver on this node")
    assert finding("gpus", none).status == "failed"
    login = replace(none, variables={})
    for name in ("gpus", "gpu_health", "gpu_processes"):
        found = finding(name, login)
        assert found.status == "skipped"
        same_run = "nlp-bench doctor --model 13 --data-path mock --system juwels-booster --nodes all"
        assert found.summary.endswith(same_run)


def test_faults_that_a_board_remembers(booster: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    well = finding("gpu_health", booster)
    # the stand-in's board 1 has a low power limit, all but board 0 are at the power cap
    assert well.status == "warning"
    assert "GPU 1: power limit 300 W instead of 400 W" in well.summary
    assert "GPU 2 is slowed: power cap" in well.summary
    assert "active NVLinks per GPU: 4" in well.evidence
    monkeypatch.setenv("FAKE_SICK", "1")
    sick = finding("gpu_health", booster)
    assert sick.status == "failed"
    said = ("3 uncorrected ECC", "waits to be retired", "remapping a memory row failed", "waits to be remapped")
    assert all(words in sick.summary for words in said)
    assert "GPU 0" not in sick.summary
    assert "active NVLinks differ between the GPUs: 4, 3, 4, 4" in sick.evidence
    assert "--gpu-reset" in sick.remedy


def test_somebody_else_computes(booster: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding("gpu_processes", booster).status == "ok"
    monkeypatch.setenv("FAKE_SICK", "1")
    found = finding("gpu_processes", booster)
    assert found.status == "warning"
    assert found.evidence[0].startswith("GPU 1: process 1 (")


@pytest.mark.parametrize(
    ("torch", "built", "status", "says"),
    [
        ("2.6.0+cu124", "12.4", "ok", "torch for CUDA 12.4, driver for CUDA 12.2"),  # minor versions are compatible
        ("2.9.0+cu130", "13.0", "failed", "the driver supports 12.2"),
        ("2.6.0+cpu", "none", "failed", "without CUDA"),
        ("absent", "none", "failed", "not installed"),
    ],
)
def test_cuda(booster: Place, monkeypatch: pytest.MonkeyPatch, torch: str, built: str, status: str, says: str) -> None:
    machine = Machine(nlp_bench="1", python="cpython-311", torch=torch, megatron_core="1", cuda=built, arch="cpu")
    monkeypatch.setattr(hardware, "this_machine", lambda _: machine)
    found = finding("cuda", booster)
    assert found.status == status
    assert says in found.summary


def test_cuda_on_a_cpu_machine(place: Make) -> None:
    assert finding("cuda", place()).status == "skipped"


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("NCCL_SOCKET_IFNAME", "ib", "ok"),  # the beginning of a name
        ("NCCL_SOCKET_IFNAME", "=ib", "failed"),
        ("NCCL_SOCKET_IFNAME", "=ib0,ib1", "ok"),
        ("NCCL_SOCKET_IFNAME", "^lo", "ok"),
        ("NCCL_SOCKET_IFNAME", "eth", "failed"),
        ("GLOO_SOCKET_IFNAME", "ib0", "ok"),
        ("GLOO_SOCKET_IFNAME", "ib", "failed"),  # gloo wants the whole name
    ],
)
def test_interfaces(booster: Place, monkeypatch: pytest.MonkeyPatch, name: str, value: str, status: str) -> None:
    monkeypatch.setattr(hardware, "installed_version", lambda _: "2.27")
    for interface in ("ib0", "lo"):
        (booster.files / "sys/class/net" / interface).mkdir(parents=True)
    assert finding("nccl", replace(booster, variables=INSIDE | {name: value})).status == status
    if status == "failed":
        # a login node may have others
        assert finding("nccl", replace(booster, variables={name: value})).status == "warning"


def test_variables_that_were_set_to_look_for_a_fault(booster: Place) -> None:
    found = finding("nccl", replace(booster, variables=INSIDE | {"NCCL_P2P_DISABLE": "1"}))
    assert "NCCL_P2P_DISABLE=1" in found.summary


def ports(root: Path, *states: str, rate: str = "200 Gb/sec (4X HDR)") -> None:
    for index, state in enumerate(states):
        port = root / f"sys/class/infiniband/mlx5_{index}/ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"4: {state}\n")
        (port / "rate").write_text(f"{rate}\n")
        (port / "link_layer").write_text("InfiniBand\n")


def test_links(booster: Place, tmp_path: Path) -> None:
    assert finding("fabric", booster).summary == "4 link(s) per node are expected, Linux lists none"
    assert finding("fabric", replace(booster, variables={})).status == "skipped"
    (tmp_path / "sys/class/cxi").mkdir(parents=True)
    assert "Slingshot" in finding("fabric", booster).summary


@pytest.mark.parametrize(
    ("states", "rate", "status", "says"),
    [
        (["ACTIVE"] * 4, "200 Gb/sec (4X HDR)", "ok", "4 of 4 port(s) active"),
        (["ACTIVE"] * 4 + ["DOWN"], "200 Gb/sec (4X HDR)", "ok", "4 of 5"),  # a port that is for storage
        (["ACTIVE"] * 3 + ["DOWN"], "200 Gb/sec (4X HDR)", "failed", "3 of 4 links are active"),
        (["ACTIVE"] * 4, "100 Gb/sec (4X EDR)", "warning", "slower than 200 Gbit/s"),
    ],
)
def test_ports(booster: Place, tmp_path: Path, states: list[str], rate: str, status: str, says: str) -> None:
    ports(tmp_path, *states, rate=rate)
    found = finding("fabric", booster)
    assert found.status == status
    assert says in found.summary


def test_a_driver_that_hangs_is_told(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()
    monkeypatch.setattr("nlp_bench.doctor.place.DRIVER_S", 0.2)
    monkeypatch.setattr("nlp_bench.doctor.place.Nvml", lambda: is_over.wait(300))
    found = finding("gpus", place("dgx-h100", "13", variables=INSIDE))
    is_over.set()
    assert found.status == "failed"
    assert found.summary.startswith("the ranks need GPUs: NVIDIA's driver does not answer within 0.2 s")


def test_a_driver_that_fails_is_no_lack_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    (tmp_path / "nvidia-smi").write_text('#!/bin/sh\necho "Driver/library version mismatch" >&2\nexit 18\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    said = cli("check", "--model", "tiny", "--system", "local").err
    assert "warning: nvidia-smi fails, so that no GPU is seen here: Driver/library version mismatch" in said


def test_gpus_that_a_container_was_not_given_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    (tmp_path / "gpus/0000:01:00.0").mkdir(parents=True)
    monkeypatch.setattr("nlp_bench.config.machine.DRIVERS_GPUS", tmp_path / "gpus")
    monkeypatch.setenv("PATH", str(tmp_path))
    said = cli("check", "--model", "tiny", "--system", "local").err
    assert "warning: this node has 1 NVIDIA GPU(s), but no nvidia-smi here, so that none is used" in said
