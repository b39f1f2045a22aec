"""Energy over the window of the rate: what meters count is added up, what they do not count is no number."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import Cli
from support.machines import BEGIN_S, ITERATION_S, TOKENS_PER_ITERATION, Node, write_machine_run
from support.megatron_log import line
from support.published import change_record
from support.texts import entry_of

from nlp_bench.measure.energy import Energy, EnergyCounter, MeterError
from nlp_bench.measure.folder import measure_folder
from nlp_bench.measure.result import RunResult
from nlp_bench.outcome import Outcome

Cell = Callable[[str, float], float | None]
WATTS = 100 + 110 + 120 + 130
CLOCKS = "[default0]: > clocks of the ranks: within 0.001500 s after a barrier\n"


def measured(folder: Path) -> RunResult:
    return measure_folder(folder, "run").entry


def energy(folder: Path) -> Energy:
    found = measured(folder).energy
    assert found is not None
    return found


def why(folder: Path) -> str:
    entry = measured(folder)
    assert entry.outcome is Outcome.VALID
    assert entry.steady
    assert entry.energy.why_none
    assert (entry.energy.joules, entry.energy.joules_per_token, entry.energy.kwh(10**6)) == (None, None, None)
    assert (f"no energy: {entry.energy.why_none}" in entry.remarks) == (entry.accelerator != "cpu")
    return entry.energy.why_none


def test_the_counters_of_all_gpus_over_the_window(tmp_path: Path) -> None:
    folder = write_machine_run(tmp_path / "run", [Node("n1"), Node("n2")], before=CLOCKS)
    found = energy(folder)
    assert found.joules_per_token == pytest.approx(2 * WATTS * ITERATION_S / TOKENS_PER_ITERATION, rel=1e-6)
    assert found.mean_power_w_per_gpu == pytest.approx(WATTS / 4, rel=1e-6)
    assert found.kwh(20_000_000) == pytest.approx(2 * WATTS * 2 * 20e6 / TOKENS_PER_ITERATION / 3.6e6, rel=1e-6)
    assert found.boundary == (
        "GPU boards by NVML's energy counter, 8 of 8 GPUs; without CPUs, memory, network, power supplies and cooling"
    )
    assert (found.remarks, found.why_none) == ((), None)
    assert (found.samples_per_second, found.longest_gap_s) == (1.0, 1.0)
    window = measured(folder).throughput
    assert found.joules == pytest.approx(2 * WATTS * window.window.seconds, rel=1e-6)


@pytest.mark.parametrize(
    "cell",
    [
        lambda name, _: 1.0 if name.endswith("power_w") else None,  # the power column is never integrated
        lambda name, t: 1.0 if name == "gpu0_energy_mj" and t < BEGIN_S else None,  # a reset before the window
    ],
)
def test_the_counters_within_the_window_are_the_energy(tmp_path: Path, cell: Cell) -> None:
    node = Node("n1", cell=cell)
    assert energy(write_machine_run(tmp_path / "run", [node])).mean_power_w_per_gpu == pytest.approx(WATTS / 4)


@pytest.mark.parametrize("num_cut", [1, 5, 40])
def test_a_line_that_was_cut_is_no_sample(tmp_path: Path, num_cut: int) -> None:
    folder = write_machine_run(tmp_path / "run", [Node("n1")])
    whole = energy(folder).joules
    path = folder / "machine/n1.samples.csv"
    path.write_bytes(path.read_bytes()[:-num_cut])
    assert energy(folder).joules == whole


def reset_counter(name: str, time_s: float) -> float | None:
    late_s = time_s - BEGIN_S - 100
    return 1e5 * late_s if name == "gpu2_energy_mj" and late_s >= 0 else None


@pytest.mark.parametrize(
    ("node", "run", "reason"),
    [
        (Node("n1", cell=reset_counter), {}, "GPU 2 on node n1: the energy counter began again during the window"),
        (Node("n1", times=[BEGIN_S - 5 + n for n in range(200)]), {}, "GPU 0 on node n1: the samples miss 24.0 s of the window"),
        (Node("n1", times=[BEGIN_S + 100 + n for n in range(200)]), {}, "the samples miss"),
        (Node("n1", times=[BEGIN_S - 5 + n for n in range(120)] + [BEGIN_S + 110 + n for n in range(200)]), {}, "clock was set back during the window"),
        (Node("n1", times=()), {}, "GPU 0 on node n1 has no samples of its energy counter"),
        (Node("n1", cell=lambda name, _t: "" if name == "gpu1_energy_mj" else None), {}, "GPU 1 on node n1 has no samples"),
        (Node("n1", cell=lambda name, _t: 7 if name == "gpu1_energy_mj" else None), {}, "a counter that counts 0 J in"),
        (Node("n1", cell=lambda name, t: 1e9 * (t - BEGIN_S + 9) if name == "gpu1_energy_mj" else None), {}, "is not believed"),
        (Node("n1", gpu_facts={3: {"no_energy_counter": "Not Supported"}}), {}, "3 of 4 GPUs have a meter: GPU 3 on node n1 has no"),
        (Node("n1", num_gpus=3), {}, "3 of 4 GPUs have a meter"),
        (Node("n1", num_gpus=5), {}, "5 of 4 GPUs have a meter"),
        (Node("n1", num_gpus=0, facts={"no_meter": "no meter: no NVIDIA driver"}), {}, "0 of 4 GPUs have a meter: no meter: no NVIDIA"),
        (Node("n1", gpu_facts={3: {"uuid": "GPU-n1-1"}}), {}, "GPU 3 on node n1 is recorded twice (UUID GPU-n1-1)"),
        (Node("n1", facts={"schema": "nlp-bench/machine/9"}), {}, "node n1:"),
        (Node("n1"), {"num_nodes": 2}, "1 of 2 nodes have machine records (n1)"),
        (Node("n1", times=[BEGIN_S - 5 + n for n in range(240) if not 100 <= n < 104], num_gpus=0, num_packages=1, range_uj=3_000_000_000),
         {"accelerator": "cpu"}, "may have gone round unseen"),
    ],
)  # fmt: skip
def test_what_is_no_number_and_why(tmp_path: Path, node: Node, run: dict[str, Any], reason: str) -> None:
    assert reason in why(write_machine_run(tmp_path / "run", [node], **run))


def test_a_node_of_an_earlier_start_took_no_part(tmp_path: Path) -> None:
    """Behind a requeue on another node its record lies there still: 8 of 4 GPUs had a meter, and the others no record."""
    earlier = Node("n9", times=[BEGIN_S - 5000 + n for n in range(240)])
    folder = write_machine_run(tmp_path / "run", [Node("n1"), earlier], num_nodes=1)
    assert energy(folder).mean_power_w_per_gpu == pytest.approx(WATTS / 4)
    found = measured(folder).machine
    assert (found.summary["nodes"], sum(found.summary["gpus"].values())) == (["n1"], 4)


def test_a_clock_that_was_set_back_before_the_window_does_no_harm(tmp_path: Path) -> None:
    times = [BEGIN_S + 3600 + n for n in range(3)] + [BEGIN_S - 5 + n for n in range(240)]
    node = Node(
        "n1", times=times, cell=lambda name, t: 5.0 if name.endswith("energy_mj") and t > BEGIN_S + 3000 else None
    )
    found = energy(write_machine_run(tmp_path / "run", [node]))
    assert (found.mean_power_w_per_gpu, found.samples_per_second) == (pytest.approx(WATTS / 4), 1.0)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        *(("n1.samples.csv", text, "no samples (n1.samples.csv does not begin with the column unix_time_s)")
          for text in ("", "hello\n", "unix_time_s,a,a\n1,2,3\n", "\x00\xff,\n")),
        *(("n1.json", text, "") for text in ("", "[]", '{"schema": "other/1"}', "[" * 100_000)),
    ],
)  # fmt: skip
def test_a_file_of_a_node_that_is_none(tmp_path: Path, name: str, text: str, said: str) -> None:
    folder = write_machine_run(tmp_path / "run", [Node("n1")])
    (folder / "machine" / name).write_text(text)
    assert why(folder).startswith(f"node n1: {said}")


@pytest.mark.parametrize("gpus", [7, [7], [{"index": "x", "is_used": True}], [{"is_used": True}], {"index": 0}, None])
def test_a_record_with_something_else_in_it(tmp_path: Path, gpus: object) -> None:
    folder = write_machine_run(
        tmp_path / "run", [Node("n1", facts={"gpus": gpus, "cpu_packages": gpus, "infiniband": gpus})]
    )
    assert "0 of 4 GPUs have a meter" in why(folder)


def test_a_log_without_the_time_of_day(tmp_path: Path) -> None:
    folder = write_machine_run(tmp_path / "run", [Node("n1")])
    path = folder / "job.out"
    path.write_text(re.sub(r" unix time: [\d.]+ \|", "", path.read_text()))
    assert why(folder).startswith("the log has no time of day (field `unix time`)")


@pytest.mark.parametrize(
    ("times", "remarks"),
    [
        ([BEGIN_S - 5 + 2 * n for n in range(120)], ["0.50 samples per second; MLPerf's rules ask for at least 1"]),
        ([BEGIN_S - 5 + n for n in range(240) if not 100 <= n < 107],
         ["the samples pause for up to 8.0 s (GPU 0 on node n1)", "0.96 samples per second"]),
        ([BEGIN_S - 5 + 10 * n for n in range(24)],
         ["pause for up to 10.0 s", "0.10 samples per second", "20 samples in the window; MLPerf's rules ask for at least 60"]),
    ],
)  # fmt: skip
def test_thin_samples_are_said_and_the_counters_still_add_up(
    tmp_path: Path, times: list[float], remarks: list[str]
) -> None:
    entry = measured(write_machine_run(tmp_path / "run", [Node("n1", times=times)]))
    assert entry.energy.mean_power_w_per_gpu == pytest.approx(WATTS / 4)
    assert len(entry.energy.remarks) == len(remarks)
    for remark, part in zip(entry.energy.remarks, remarks, strict=True):
        assert part in remark
        assert remark in entry.remarks


@pytest.mark.parametrize(
    ("before", "remark"),
    [
        ("", "energy: the log does not say how far the nodes' clocks are apart"),
        (CLOCKS.replace("0.001500", "3.900000"), "energy: the nodes' clocks are 3.9 s apart, 2.0 % of the window"),
    ],
)
def test_the_clocks_of_the_nodes_are_compared(tmp_path: Path, before: str, remark: str) -> None:
    folder = write_machine_run(tmp_path / "run", [Node("n1"), Node("n2")], before=before)
    assert energy(folder).remarks == (remark,)
    assert energy(write_machine_run(tmp_path / "one", [Node("n1")], before=before)).remarks == ()


def test_cpu_packages_that_go_round(tmp_path: Path) -> None:
    """At 150 W a range of 3000 J is passed every 20 s."""
    node = Node("n1", num_gpus=0, num_packages=2, range_uj=3_000_000_000, facts={"no_meter": None})
    found = energy(write_machine_run(tmp_path / "run", [node], accelerator="cpu"))
    assert found.joules_per_token == pytest.approx(2 * 150 * ITERATION_S / TOKENS_PER_ITERATION, rel=1e-6)
    assert found.mean_power_w_per_gpu is None
    assert str(found.boundary).startswith("CPU packages by RAPL, 1 of 1 node(s); without memory")


def test_nodes_that_are_one_machine_are_metered_once(tmp_path: Path) -> None:
    nodes = [Node(name, num_gpus=0, num_packages=2, facts={"boot_id": "one"}) for name in ("node1", "node2")]
    found = energy(write_machine_run(tmp_path / "run", nodes, accelerator="cpu", before=CLOCKS))
    assert found.joules_per_token == pytest.approx(2 * 150 * ITERATION_S / TOKENS_PER_ITERATION, rel=1e-6)


def test_cpu_packages_stand_beside_the_gpus_and_are_not_added(tmp_path: Path) -> None:
    found = energy(write_machine_run(tmp_path / "run", [Node("n1", num_packages=2)]))
    assert found.joules_per_token == pytest.approx(WATTS * ITERATION_S / TOKENS_PER_ITERATION, rel=1e-6)
    assert found.cpu_joules_per_token == pytest.approx(300 * ITERATION_S / TOKENS_PER_ITERATION, rel=1e-6)


def test_a_run_that_is_not_valid_or_recorded_nothing_has_no_energy(tmp_path: Path) -> None:
    folder = write_machine_run(tmp_path / "run", [Node("n1")])
    change_record(folder, "outcome.json", outcome="FAILED")
    assert measured(folder).energy is None
    entry = measured(write_machine_run(tmp_path / "silent", [], num_nodes=1))
    assert entry.energy is None
    assert not any("energy" in remark for remark in entry.remarks)


def test_the_interval_between_two_samples_is_divided_evenly() -> None:
    counter = EnergyCounter(name="it", times=np.arange(5.0), joules=np.array([0.0, 10.0, 40.0, 50.0, 60.0]))
    assert counter.joules_in(np.array([0.5]), np.array([1.5])) == pytest.approx(5 + 15)
    apart = counter.joules_in(np.array([0.0, 2.0]), np.array([1.0, 3.5]))
    assert apart == pytest.approx(10 + 15)
    with pytest.raises(MeterError, match=r"the samples miss 0.5 s of the window"):
        counter.joules_in(np.array([0.5]), np.array([4.5]))
    with pytest.raises(MeterError, match="began again"):
        replace(counter, joules=counter.joules[::-1]).joules_in(np.array([0.5]), np.array([1.5]))


def stated(tmp_path: Path, joules: float, **options: int) -> Energy | None:
    same = {"ms": 2000, "flops": 400, "energy": joules, "power": 300, "lr": 1e-6, "batch": 96, "skipped": 0, "nan": 0}
    lines = (line(n, 30, samples=96 * n, loss=8 + 1e-6 * n, **same) for n in range(1, 31))
    entry = entry_of(tmp_path, lines, sequence_length=2048, **options)
    assert entry.has_number
    return entry.energy


def test_what_megatron_states_itself(tmp_path: Path) -> None:
    found = stated(tmp_path, 600.0, num_gpus=8)
    assert found.joules_per_token == pytest.approx(8 * 600 / TOKENS_PER_ITERATION)
    assert found.mean_power_w_per_gpu == pytest.approx(300)
    assert "as the log states it (--log-energy)" in str(found.boundary)


def test_what_megatron_states_without_a_meter_or_without_a_number_of_gpus(tmp_path: Path) -> None:
    assert stated(tmp_path, 0.0, num_gpus=8) is None
    found = stated(tmp_path, 600.0)
    assert found.joules_per_token is None
    assert "--num-gpus N" in str(found.why_none)


def test_the_report_shows_energy_and_money(tmp_path: Path, cli: Cli) -> None:
    folder = write_machine_run(tmp_path / "run", [Node("n1")])
    joules = WATTS * ITERATION_S / TOKENS_PER_ITERATION
    kwh = joules * 20e6 / 3.6e6
    text = cli("report", folder, "--price-per-kwh", 250, "--currency", "EUR").out
    assert f"energy     {joules:.4g} J/token, {kwh:.4g} kWh, cost {250 * kwh:.4g} EUR\n" in text
    text = cli("report", folder, "--price-per-kwh", 250, "--currency", "EUR", "--explain").out
    assert "Metered: GPU boards by NVML's energy counter, 4 of 4 GPUs; without" in text
    assert "cost: kWh x 250 EUR." in text
    report = cli("report", folder, "--price-per-kwh", 250, "--format", "json").json
    found = report["runs"][0]["energy"]
    assert (report["price_per_kwh"], report["currency"]) == (250, None)
    assert found["cost"] == pytest.approx(250 * kwh)
    assert found["energy_kwh"] == pytest.approx(kwh)
    text = cli("report", folder, "--explain").out
    assert f"  energy    {joules:.6g} J/token = " in text
    assert "  power     115.0 W per GPU" in text
    silent = cli("report", write_machine_run(tmp_path / "silent", [], num_nodes=1), "--price-per-kwh", 0.3).flat
    assert "no cost: no meter was read during the run, and the log states no energy" in silent


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--price-per-kwh", "cheap"], "is no price of one kWh"),
        (["--price-per-kwh", "-1"], "is no price of one kWh"),
        (["--price-per-kwh", "nan"], "is no price of one kWh"),
        (["--currency", "EUR"], "--price-per-kwh, which is missing"),
        (["--price-per-kwh", "1", "--currency", "E\nUR"], "is no word of 1 to 12 characters"),
    ],
)
def test_a_wrong_price(tmp_path: Path, cli: Cli, words: list[str], said: str) -> None:
    assert said in cli("report", tmp_path, *words, code=2).err
