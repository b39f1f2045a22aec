"""Which GPUs the ranks of a node will see, and what is said when they are too few."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.native import load_nvml

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.config.system import Binding
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.nodes import resources as node_module
from nlp_bench.launch.nodes.resources import addresses, binding_plan, node_environment, require_gpus
from nlp_bench.launch.nodes.torchrun import rank_environment
from nlp_bench.machine.nvml import Nvml, visible_gpus

BUS = [number << 8 for number in (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)]


@pytest.fixture
def nvml(gpu_library: str, monkeypatch: pytest.MonkeyPatch) -> Nvml:
    monkeypatch.setenv("FAKE_GPUS", "8")
    load_nvml(monkeypatch, gpu_library)
    return Nvml()


def run_on(system: str, **binding: object) -> Run:
    run = resolve(Request(model="13", system=system), ask_scheduler=False)
    return replace(run, system=replace(run.system, binding=Binding(**binding)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("0,1,2,3", [0, 1, 2, 3]),
        ("6, 4", [6, 4]),
        ("GPU-3fake,GPU-0", [3, 0]),
        ("GPU-", []),  # fits several
        ("1,9,2", [1]),  # a wrong word ends the list
        ("1,1", [1]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),  # what Slurm sets for a step without GPUs
        ("MIG-1-fake", [1]),
        ("MIG-1-fake,MIG-1-fake2", [1]),  # a process sees one MIG device
        ("MIG-7-fake", []),
    ],
)
def test_visible(nvml: Nvml, visible: str | None, indices: list[int]) -> None:
    assert visible_gpus(visible, nvml) == indices
    assert addresses(list(indices), nvml) == [BUS[index] for index in indices]


@pytest.mark.parametrize(
    ("visible", "count"), [("0,1", 2), ("GPU-a1,GPU-b2", 2), ("MIG-a,MIG-b", 1), ("", 0), ("NoDevFiles", 0)]
)
def test_without_a_driver_words_are_counted(visible: str, count: int) -> None:
    assert visible_gpus(visible, None) == [None] * count


def test_without_driver_and_words_nothing_is_known() -> None:
    assert visible_gpus(None, None) is None
    require_gpus(run_on("juwels-booster"), None, {})  # left to torch, which knows its own reasons


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_PER_TASK": "1", "SLURMD_NODENAME": "node7"},
            (
                r"parallel\.gpus_per_node: 4 rank\(s\) on node node7, which shows them 1 GPU\(s\): "
                r"CUDA_VISIBLE_DEVICES='0', SLURM_GPUS_PER_TASK='1'; .*take --gpus-per-task and --gpu-bind out"
            ),
        ),
        ({"CUDA_VISIBLE_DEVICES": ""}, r"0 GPU\(s\): CUDA_VISIBLE_DEVICES=''"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1-fake"}, "CUDA shows a process one MIG device; start one rank per node"),
    ],
)
def test_too_few_are_refused(nvml: Nvml, variables: dict[str, str], said: str) -> None:
    with pytest.raises(NlpBenchError, match=said):
        require_gpus(run_on("juwels-booster"), visible_gpus(variables["CUDA_VISIBLE_DEVICES"], nvml), variables)


def test_a_node_of_fewer_boards(nvml: Nvml) -> None:
    del nvml.handles[2:]
    with pytest.raises(NlpBenchError, match=r"2 GPU\(s\): CUDA_VISIBLE_DEVICES is not set"):
        require_gpus(run_on("juwels-booster"), visible_gpus(None, nvml), {})


def test_the_launcher_refuses_before_torch_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "open_nvml", lambda: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(NlpBenchError, match=r"4 rank\(s\).*CUDA_VISIBLE_DEVICES='0,1'"):
        rank_environment(run_on("juwels-booster"), {})


def plan(run: Run, gpus: list[int | None], root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(256)))
    return binding_plan(run, gpus, root)


def test_the_plan_of_a_node(nvml: Nvml, dgx_a100: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_on("juwels-booster", memory="preferred")
    assert plan(run, addresses([4, 0, 1, 7], nvml), dgx_a100, monkeypatch) == {
        "mode": "unique_contiguous",
        "memory": "preferred",
        "ranks": [
            {"cpus": "112-119,240-247", "nodes": [7]},
            {"cpus": "48-55,176-183", "nodes": [3]},
            {"cpus": "56-63,184-191", "nodes": [3]},
            {"cpus": "80-87,208-215", "nodes": [5]},
        ],
    }


def test_a_wish_that_cannot_be_fulfilled_is_a_reason(dgx_a100: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan(run_on("juwels-booster", min_cores=60), [None] * 4, dgx_a100, monkeypatch)
    assert "fewer than min_cores = 60" in str(found["why"])


def test_cpu_ranks_stay_as_they_are(dgx_a100: Path) -> None:
    run = run_on("slurm-sandbox")
    assert json.loads(node_environment(run, {}, dgx_a100)["NLP_BENCH_BINDING"]) == {"mode": "none", "memory": "local"}


@pytest.mark.parametrize("order", [None, "FASTEST_FIRST"])
def test_gpus_are_counted_as_nvidia_smi_counts_them(
    nvml: Nvml, dgx_a100: Path, monkeypatch: pytest.MonkeyPatch, order: str | None
) -> None:
    monkeypatch.setattr(node_module, "open_nvml", lambda: nvml)
    variables = {} if order is None else {"CUDA_DEVICE_ORDER": order}
    environment = node_environment(run_on("juwels-booster"), variables, dgx_a100)
    assert environment["CUDA_DEVICE_ORDER"] == (order or "PCI_BUS_ID")


def test_an_image_does_not_win_over_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "open_nvml", lambda: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    run = run_on("juwels-booster")
    assert "NCCL_IB_TIMEOUT" not in rank_environment(run, {})
    inside = replace(run.system, container=replace(run.system.container, image="image.sqsh"))
    assert rank_environment(replace(run, system=inside), {})["NCCL_IB_TIMEOUT"] == "50"
