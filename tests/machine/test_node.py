"""What a node says of itself, from files as Linux has them."""

from pathlib import Path

import pytest

from nlp_bench.machine.node import host_facts, load_1min, node_name
from nlp_bench.machine.recorder import Meters, packages

SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_NODEID": "1",
    "SLURMD_NODENAME": "n2",
    "LOADEDMODULES": "GCC/12.3.0:CUDA/12:OpenMPI/4.1.5",
}


def test_the_facts_of_a_node(node: Path) -> None:
    facts = host_facts(node, SLURM)
    cpu = facts["cpu"]
    assert (cpu["model"], cpu["sockets"], cpu["cores"], cpu["threads"], cpu["scaling_governor"]) == (
        "AMD EPYC 7402 24-Core Processor", 2, 4, 8, ["performance"],
    )  # fmt: skip
    assert (facts["memory_bytes"], facts["num_numa_nodes"]) == (527988132 * 1024, 2)
    assert (facts["boot_time_unix_s"], facts["boot_id"]) == (1763600000, "0f3c")
    assert facts["operating_system"] == "Rocky Linux 9.4"
    assert facts["modules"] == ["GCC/12.3.0", "CUDA/12", "OpenMPI/4.1.5"]
    assert facts["slurm"] == {"job_id": "4711", "node_list": "n[1-2]", "node_id": "1", "node_name": "n2"}
    ports = [(port["device"], port["state"], port["rate"]) for port in facts["infiniband"]]
    assert ports == [(f"mlx5_{i}", state, "200 Gb/sec (4X HDR)") for i, state in enumerate(("ACTIVE", "DOWN"))]
    assert load_1min(node) == 4.25


def test_a_node_that_tells_nothing(tmp_path: Path) -> None:
    facts = host_facts(tmp_path, {})
    assert (facts["memory_bytes"], facts["num_numa_nodes"], facts["boot_id"]) == (None, None, None)
    assert (facts["infiniband"], facts["modules"], load_1min(tmp_path)) == ([], [], None)
    assert facts["cpu"]["cores"] is None


@pytest.mark.parametrize(
    ("word", "name"), [("n2", "n2"), ("../../etc/x", "_.._etc_x"), ("a b:c", "a_b_c"), ("...", "node")]
)
def test_a_name_that_is_safe_in_a_file_name(word: str, name: str) -> None:
    assert node_name({"SLURMD_NODENAME": word}) == name


def test_rapl_counts_packages_alone(node: Path) -> None:
    found, why = packages(node)
    assert why is None
    counters = [(p.name, p.energy_uj(), p.range_uj) for p in found]
    assert counters == [("package-0", 1000, 262143328850), ("package-1", 1001, 262143328850)]


def test_rapl_that_one_cannot_read_is_no_meter(node: Path) -> None:
    (node / "sys/class/powercap/intel-rapl:1/energy_uj").unlink()  # as for a user who may not: root reads everything
    why = "RAPL cannot be read by this user (energy_uj in /sys/class/powercap; an administrator can allow it)"
    assert packages(node) == ([], why)


def meters(root: Path, *, num_gpus: int, visible: str | None = None) -> Meters:
    return Meters(root, num_gpus=num_gpus, visible=visible)


@pytest.mark.usefixtures("four_gpus")
def test_the_meters_of_the_gpus_that_ranks_use(node: Path) -> None:
    found = meters(node, num_gpus=2, visible="1,3")
    assert [gpu["is_used"] for gpu in found.to_json()["gpus"]] == [False, True, False, True]
    assert found.columns[:3] == ["load_1min", "gpu1_energy_mj", "gpu1_power_w"]
    assert found.columns[-2:] == ["cpu0_energy_uj", "cpu1_energy_uj"]
    values = found.sample()
    assert len(values) == len(found.columns) == 1 + 2 * 5 + 2
    assert (values[0], values[2], values[7], values[-1]) == (4.25, 110.0, 130.0, 1001)
    assert found.to_json()["no_meter"] is None


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("visible", "used"),
    [(None, [0, 1]), (" 3 , 1 , 0", [3, 1]), ("GPU-2,GPU-0-fake", [0, 2]), ("0,9,1", [0]), ("GPU-", []), ("MIG-7", [])],
)
def test_the_meters_follow_the_rules_by_which_ranks_see_gpus(node: Path, visible: str | None, used: list[int]) -> None:
    gpus = meters(node, num_gpus=2, visible=visible).to_json()["gpus"]
    assert [gpu["index"] for gpu in gpus if gpu["is_used"]] == sorted(used)


@pytest.mark.usefixtures("four_gpus")
def test_why_there_is_no_meter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = "no RAPL on this node (no package in /sys/class/powercap)"
    assert meters(tmp_path, num_gpus=0).to_json()["no_meter"] == f"no meter: the run uses no GPU; {none}"
    few = meters(tmp_path, num_gpus=6).to_json()
    assert (few["no_meter"], few["meter_remarks"][0]) == (None, "NVML shows 4 of the 6 GPUs of the ranks")
    monkeypatch.setenv("FAKE_OLD", "1")
    old = str(meters(tmp_path, num_gpus=1).to_json()["no_meter"])
    assert "GPU 0 has no energy counter (nvmlDeviceGetTotalEnergyConsumption: Not Supported)" in old
    monkeypatch.setenv("FAKE_BROKEN", "1")
    lost = meters(tmp_path, num_gpus=4)
    assert lost.to_json()["no_meter"] == f"no meter: nvmlInit: Driver Not Loaded; {none}"
    assert lost.columns == ["load_1min"]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert "AMD GPUs" in str(meters(tmp_path, num_gpus=4).to_json()["no_meter"])
