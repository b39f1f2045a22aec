"""What the machine really was, beside the number: warnings for what makes the number another one, and silence otherwise."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.machines import BEGIN_S, Node, log_text, write_machine_run
from support.published import change_record
from support.texts import entry_of

from nlp_bench.measure.folder import measure_folder
from nlp_bench.measure.machine import MachineTruth

NCCL = "[default0]:NCCL version 2.21.5+cuda12.4\n"
IB = "[default0]:n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.1<0>\n[default0]:n1:1:2 [0] NCCL INFO Using network IB\n"
CHANNEL = "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via {}\n"
SOCKET = "n1:1:2 [0] NCCL INFO NET/IB : No device found.\nn1:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\nn1:1:2 [0] NCCL INFO Using network Socket\n"
CHANNELS = (
    "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    "n1:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/direct pointer/read\n"
    "n1:1:2 [0] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0/GDRDMA\n"
)
CLOCKS = "[default0]: > clocks of the ranks: within 0.001500 s after a barrier\n"
UP = [{"device": "mlx5_0", "port": "1", "state": "ACTIVE", "rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand"}]


def truth(folder: Path) -> MachineTruth:
    entry = measure_folder(folder, "run").entry
    assert entry.steady
    assert set(entry.machine.warnings) <= set(entry.remarks)
    return entry.machine


def two(**second: Any) -> list[Node]:
    return [Node("n1"), Node("n2", **second)]


def bits(mask: int, gpu: int = 0, begin_s: float = -1e9) -> Any:
    """Cells in which one GPU is throttled from `begin_s` on."""
    return lambda name, t: mask if name == f"gpu{gpu}_throttle_reasons" and t >= BEGIN_S + begin_s else None


def test_a_machine_that_is_as_it_should_be(tmp_path: Path) -> None:
    found = truth(write_machine_run(tmp_path / "run", two(), before=NCCL + IB + CHANNELS + CLOCKS))
    assert (found.warnings, found.notes) == ((), ())
    known = found.to_json()
    assert known["nodes"] == ["n1", "n2"]
    assert known["gpus"] == {"NVIDIA A100-SXM4-40GB": 8}
    assert (known["power_limit_w"], known["driver"]) == ({"400": 8}, {"535.104.05": 2})
    assert known["nccl"] == {
        "loaded": "2.21.5+cuda12.4", "package": "2.21.5", "transport": "IB", "channels": ["NET/IB/GDRDMA", "P2P"],
    }  # fmt: skip
    assert known["mean_sm_clock_mhz"] == {"lowest": 1410, "highest": 1410}
    assert (known["packages"], known["commit"]) == ({"torch": "2.6.0", "nvidia-nccl-cu12": "2.21.5"}, "abc")


def slow(factor: float) -> Any:
    return lambda name, _t: 1410 * factor if name == "gpu1_sm_clock_mhz" else None


@pytest.mark.parametrize(
    ("nodes", "before", "warning"),
    [
        (two(gpu_facts={3: {"power_limit_w": 300.0}}), "", "GPU 3 on node n2 limited to 300 of 400 W"),
        (
            two(gpu_facts={i: {"power_limit_w": 300.0} for i in range(4)}),
            "",
            "GPU 0 on node n2, GPU 1 on node n2, GPU 2 on node n2 and 1 more limited to 300 of 400 W",
        ),
        (two(gpu_facts={1: {"name": "NVIDIA A100-SXM4-80GB"}}), "", "different models: 7 x NVIDIA A100-SXM4-40GB, 1 x NVIDIA A100-SXM4-80GB"),
        (two(facts={"driver": "550.1"}), "", "the nodes have different drivers: 1 x 535.104.05, 1 x 550.1"),
        (two(facts={"cpu": {"model": "Xeon"}}), "", "the nodes have different CPU models"),
        (two(cell=bits(0x40)), "", "throttled by thermal slowdown by hardware: GPU 0 on node n2 in 100 % of the samples"),
        (two(cell=bits(0x08 | 0x80, 2)), "", "throttled by power brake: GPU 2 on node n2 in 100 % of the samples"),
        (two(cell=bits(0x04)), "", "throttled by power cap: GPU 0 on node n2 in 100 % of the samples"),
        (two(cell=slow(0.8)), "", "clocks differ: GPU 1 on node n2 ran at 1128 MHz or more, the median GPU at 1410 MHz"),
        (two(), NCCL.replace("2.21.5", "2.28.3"), "NCCL 2.28.3+cuda12.4 was loaded, the installed package is 2.21.5"),
        (two(facts={"infiniband": UP}), SOCKET, "NCCL uses TCP sockets (NET/Socket) although InfiniBand is up (mlx5_0)"),
        (two(facts={"infiniband": UP}), CHANNEL.format("NET/Socket/0"), "NCCL uses TCP sockets (NET/Socket) although InfiniBand is up"),
        ([Node("n1")], "", "machine records of 1 of 2 nodes are missing (there: n1)"),
    ],
)  # fmt: skip
def test_what_is_warned_of(tmp_path: Path, nodes: list[Node], before: str, warning: str) -> None:
    found = truth(write_machine_run(tmp_path / "run", nodes, before=before + CLOCKS, num_nodes=2))
    assert any(warning in said for said in found.warnings), found.warnings


@pytest.mark.parametrize(
    ("nodes", "before"),
    [
        (two(cell=bits(0x01 | 0x02 | 0x10)), ""),  # idle, application clocks, sync boost
        (two(cell=slow(0.97)), ""),
        (two(), SOCKET),  # no InfiniBand that is up
        (two(facts={"infiniband": [{**UP[0], "state": "DOWN"}]}), SOCKET),
        (two(facts={"infiniband": UP}), IB),
        (two(facts={"infiniband": UP}), CHANNEL.format("NET/IB/0")),
        ([Node(name, cell=lambda n, _t: 4 if n.endswith("throttle_reasons") else None) for name in ("n1", "n2")], ""),
        (two(gpu_facts={0: {"power_limit_w": None}, 1: {"default_power_limit_w": "x"}, 2: {"power_limit_w": -1}}), ""),
    ],
)
def test_what_is_not_warned_of(tmp_path: Path, nodes: list[Node], before: str) -> None:
    assert truth(write_machine_run(tmp_path / "run", nodes, before=before + CLOCKS)).warnings == ()


def test_only_the_window_counts(tmp_path: Path) -> None:
    node = Node("n1", cell=lambda name, t: 0x40 if name == "gpu0_throttle_reasons" and t < BEGIN_S + 15 else None)
    assert truth(write_machine_run(tmp_path / "run", [node])).warnings == ()


def test_a_full_load_at_the_power_limit_is_a_note(tmp_path: Path) -> None:
    nodes = [Node("n1", cell=lambda name, _t: 4 if name.endswith("throttle_reasons") else None)]
    found = truth(write_machine_run(tmp_path / "run", nodes, before=IB))
    assert found.notes == ("throttled by power cap: 4 of 4 GPUs, most GPU 0 on node n1 in 100 % of the samples",)
    assert found.to_json()["throttled_share"] == {"power cap": 1.0}


def test_a_transport_that_was_not_recorded_is_said(tmp_path: Path) -> None:
    notes = truth(write_machine_run(tmp_path / "run", two(), before=NCCL)).notes
    assert notes == ("transport not recorded; run with NCCL_DEBUG=INFO",)


def test_a_recorder_that_failed(tmp_path: Path) -> None:
    folder = write_machine_run(tmp_path / "run", two(), before=CLOCKS)
    (folder / "machine/n2.error.txt").write_text("Traceback\n")
    assert "machine record of node n2: the recorder failed, see machine/n2.error.txt" in truth(folder).warnings


def test_a_run_of_before(tmp_path: Path) -> None:
    """Without machine records nothing is missed, and what environment.json says stands."""
    found = truth(write_machine_run(tmp_path / "run", [], num_nodes=2))
    assert found.warnings == ()
    assert found.to_json()["packages"]["torch"] == "2.6.0"
    assert not any("machine records" in note for note in found.notes)
    silent = truth(write_machine_run(tmp_path / "silent", [], num_nodes=2, before=CLOCKS))
    assert silent.notes[0].startswith("no machine records: the recorder was switched off (NLP_BENCH_SAMPLE_S=0)")


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ("booster", ("system machine describes the cluster booster, and the job ran on cluster2",)),
        ("cluster2", ()),
        (None, ()),
    ],
)
def test_a_job_of_another_cluster(tmp_path: Path, described: str | None, said: tuple[str, ...]) -> None:
    folder = write_machine_run(tmp_path / "run", two(), before=CLOCKS)
    change_record(folder, "run.json", system__detect={"slurm_cluster": described})
    (folder / "environment.json").write_text('{"variables": {"SLURM_CLUSTER_NAME": "cluster2"}}')
    assert truth(folder).warnings == said


def test_variables_of_a_debugging_session_that_stayed_set(tmp_path: Path) -> None:
    folder = write_machine_run(tmp_path / "run", two(), before=CLOCKS)
    variables = {"CUDA_LAUNCH_BLOCKING": "1", "NCCL_P2P_DISABLE": "0", "NCCL_IB_DISABLE": "1"}
    (folder / "environment.json").write_text(json.dumps({"variables": variables}))
    said = "NCCL_IB_DISABLE=1, CUDA_LAUNCH_BLOCKING=1 was set, which is for debugging and slows the training down"
    assert truth(folder).warnings == (said,)


@pytest.mark.parametrize("text", ["", "[1]", '{"packages": 3}', "[" * 100_000])
def test_an_environment_that_is_none(tmp_path: Path, text: str) -> None:
    folder = write_machine_run(tmp_path / "run", two(), before=CLOCKS)
    (folder / "environment.json").write_text(text)
    assert truth(folder).to_json()["packages"] == {}


def test_words_of_a_record_are_one_line_and_stay_text(tmp_path: Path, cli: Cli) -> None:
    nodes = two(gpu_facts={0: {"name": "<script>\n\x1b[31mA|B", "power_limit_w": 300.0}})
    folder = write_machine_run(tmp_path / "run", nodes, before=CLOCKS)
    page = cli("report", folder, "--format", "html").out
    assert "&lt;script&gt;" in page
    assert "<script>\n\x1b" not in page
    assert "\x1b" not in cli("report", folder).out


def test_a_log_of_somebody_tells_its_nccl(tmp_path: Path) -> None:
    entry = entry_of(tmp_path, log_text(before=NCCL + SOCKET), sequence_length=2048)
    nccl = entry.machine.to_json()["nccl"]
    assert (nccl["loaded"], nccl["transport"], nccl["package"]) == ("2.21.5+cuda12.4", "Socket", None)
    assert entry.machine.warnings == ()
    assert entry_of(tmp_path, log_text(), sequence_length=2048).machine is None


def test_explain_and_result_carry_the_machine(tmp_path: Path, cli: Cli) -> None:
    folder = write_machine_run(tmp_path / "run", two(gpu_facts={3: {"power_limit_w": 300.0}}), before=NCCL + CLOCKS)
    text = cli("report", folder, "--explain").out
    nodes = "2 node(s) (n1, n2); 8 x NVIDIA A100-SXM4-40GB; 2 x AMD EPYC 7402 24-Core Processor; driver 535.104.05"
    assert f"  machine   {nodes}" in text
    assert "  machine   NCCL 2.21.5+cuda12.4 loaded; transport not recorded; run with NCCL_DEBUG=INFO" in text
    assert "limited to 300 of 400 W" in text.partition("time s: seconds for")[0]  # beside the number, below the table
    cli("measure", folder)
    result = json.loads((folder / "result.json").read_text())
    assert result["run"]["machine"]["warnings"] == ["GPU 3 on node n2 limited to 300 of 400 W"]
    assert result["run"]["energy"]["mean_power_w_per_gpu"] == pytest.approx(115)
