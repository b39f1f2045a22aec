"""Calibration: what is timed is what it is counted as, the time is kept, known constants are found again, and the command."""

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import known_machine as machine
from support.command import Cli
from support.known_machine import calibration, iteration, of

from nlp_bench.cli.main import main
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.errors import NlpBenchError
from nlp_bench.machine.timing import Cpu, summary
from nlp_bench.plan.calibrate import trainer, work
from nlp_bench.plan.calibrate.output import write_constants
from nlp_bench.plan.calibrate.record import fit_all, read_calibration
from nlp_bench.plan.calibrate.session import Ranks, Session, spread_out
from nlp_bench.plan.calibrate.trainer import measure_trainer
from nlp_bench.plan.calibrate.work import WAYS, Call, Group, Task
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.machines import sheet_of
from nlp_bench.plan.problem import configuration_of


def smallest(tasks: list[Task]) -> Task:
    return min(tasks, key=lambda task: task.flops or task.num_bytes)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "way"), [*zip(("bf16", "fp16", "fp32"), WAYS, strict=True)])
def test_products_have_the_flops_they_say(precision: str, way: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    task = smallest([one for one in work.product_tasks(precision) if one.name == way])
    call = task.make(Cpu())
    with FlopCounterMode(display=False) as counter:
        result = call()
    assert counter.get_total_flops() == task.flops
    tokens, in_width, out_width = task.sizes.values()
    shapes = ((tokens, out_width), (tokens, in_width), (out_width, in_width))
    assert tuple(result.shape) == shapes[WAYS.index(way)]


@pytest.mark.parametrize("way", ["forward", "both"])
def test_attention_has_the_flops_of_the_full_square(way: str) -> None:
    """Counted where torch makes two products of it: its fused CPU kernel is not counted, and is the one that is timed."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    task = smallest([one for one in work.attention_tasks("fp32") if one.name == way])
    call = task.make(Cpu())
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        result = call()
    assert counter.get_total_flops() == task.flops
    tensors = result if isinstance(result, tuple) else (result,)
    assert all(torch.isfinite(tensor).all() for tensor in tensors)


def test_a_copy_copies_and_a_step_moves_the_parameters() -> None:
    import torch

    target = smallest(work.copy_tasks("fp32")).make(Cpu())()
    assert target.count_nonzero() > 0.99 * target.numel()
    step = smallest(work.step_tasks()).make(Cpu())
    parameter = step.__self__.param_groups[0]["params"][0]
    before = parameter.detach().clone()
    step()
    assert not torch.equal(before, parameter)


def test_median_and_spread_do_not_follow_one_disturbed_repetition() -> None:
    timing = summary([1.0, 1.0, 1.1, 1.0, 9.0], 1)
    assert timing.seconds == 1.0
    assert timing.spread == pytest.approx(0.05)


class Simulated:
    """A device with its own clock: work takes FLOPs / rate and a fixed cost."""

    kind, name, place = "cpu", "simulated", None

    def __init__(self, rate: float, free: int = 1 << 34) -> None:
        self.rate, self.free, self.now, self.cost = rate, free, 0.0, 0.0

    def elapsed(self, call: Call, calls: int, *, waits: bool = False) -> float:
        assert not waits
        begin = self.now
        for _ in range(calls):
            call()
        return self.now - begin

    def memory(self) -> tuple[int, int]:
        return self.free, self.free

    def release(self) -> None:
        pass

    def state(self) -> str:
        return "simulated"


def task(flops: float, *, needs: float = 0.0, failing: Exception | None = None) -> Task:
    def make(device: Any) -> Call:
        if failing:
            raise failing

        def call() -> None:
            device.now += 1e-6 + flops / device.rate

        return call

    facts: Any = {"kind": "product", "name": "forward", "precision": "bf16", "sizes": {"f": int(flops)}}
    return Task(**facts, flops=flops, needs_bytes=needs, make=make)


def session(device: Simulated) -> Session:
    return Session(device=device, ranks=Ranks(), say=lambda _: None, clock=lambda: device.now)


def ladder(number: int = 60) -> list[Task]:
    return [task(1e6 * 1.4**step) for step in range(number)]


@pytest.mark.parametrize(("rate", "seconds"), [(1e9, 60.0), (1e12, 2.0), (1e12, 60.0), (1e15, 2.0)])
def test_the_time_is_kept_and_used(rate: float, seconds: float) -> None:
    device = Simulated(rate)
    measuring = session(device)
    measuring.measure([Group(name=name, tasks=ladder(), share=share) for name, share in (("a", 2), ("b", 1))], seconds)
    assert 0.3 * seconds < device.now < 1.25 * seconds
    assert len(measuring.measurements) >= 12
    for measured in measuring.measurements:
        assert measured.seconds == pytest.approx(1e-6 + measured.flops / rate, rel=1e-6)
        assert measured.repeats >= 3


def measure_products(rate: float, tasks: list[Task], seconds: float) -> Session:
    measuring = session(Simulated(rate, free=10 << 30))
    measuring.measure([Group(name="products", tasks=tasks, share=1)], seconds)
    return measuring


def test_shapes_that_take_too_long_are_told() -> None:
    measuring = measure_products(1e9, ladder(), 1.0)
    assert any("large shapes take too long for the time" in line for line in measuring.skipped)
    assert max(m.seconds for m in measuring.measurements) < 0.1


NO_MEMORY = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")


@pytest.mark.parametrize(
    ("large", "why"),
    [
        (task(2e9, needs=9 * 2.0**30), "needs 9.0 GiB of 10.0 GiB free"),
        (task(2e9, failing=NO_MEMORY), "out of memory"),
    ],
)
def test_what_memory_does_not_suffice_for_is_left_out_and_told(large: Task, why: str) -> None:
    measuring = measure_products(1e12, [task(1e9), large, task(3e9)], 5.0)
    assert sorted(m.flops for m in measuring.measurements) == [1e9, 3e9]
    assert measuring.skipped == [f"product forward bf16 2000000000: {why}"]


def test_another_error_is_an_end() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        measure_products(1e12, [task(1e9, failing=RuntimeError("mat1 and mat2"))], 1.0)


@pytest.mark.parametrize("number", [1, 2, 7, 64, 100])
def test_every_beginning_covers_all_sizes(number: int) -> None:
    tasks = [task(float(index)) for index in range(number)]
    order = [int(one.flops) for one in spread_out(tasks)]
    assert sorted(order) == list(range(number))
    if number >= 64:
        first = sorted(order[:8])
        assert max(b - a for a, b in zip(first, [*first[1:], number], strict=True)) <= number / 4 + 1


EXPECTED = {
    "memory_bytes_per_s": machine.BANDWIDTH, "step_bytes_per_s": machine.BANDWIDTH, "product_flops_per_s.bf16": machine.CEILING,
    "product_traffic.bf16": machine.TRAFFIC, "attention_flops_per_s.bf16": machine.RATE, "attention_short.bf16": machine.SHORT,
    "attention_narrow.bf16": machine.NARROW, "between_products.bf16": 1.5, "link_latency_s": machine.LATENCY,
    "link_bytes_per_s": machine.LINK, "host_s.step": machine.STEP, "host_s.batch": machine.BATCH, "host_s.layer": machine.LAYER,
}  # fmt: skip


def test_exact_measurements_give_the_constants_back() -> None:
    found = fit_all(calibration(lambda: 1.0))
    assert set(found) == set(EXPECTED)
    for name, value in EXPECTED.items():
        assert found[name].value == pytest.approx(value, rel=0.01), name
        assert found[name].misfit is None or found[name].misfit < 0.01


def test_noise_and_disturbed_measurements_move_them_little_and_the_error_says_how_much() -> None:
    drawn = random.Random(3)  # noqa: S311  # noise, not a secret
    found = fit_all(calibration(lambda: drawn.lognormvariate(0, 0.03) * (1.8 if drawn.random() < 0.04 else 1.0)))
    for name, value in EXPECTED.items():
        one = found[name]
        assert one.value == pytest.approx(value, rel=max(0.05, 4 * one.error)), name
        assert one.error < 0.3, name
    assert found["product_flops_per_s.bf16"].value == pytest.approx(machine.CEILING, rel=0.03)
    assert found["attention_flops_per_s.bf16"].value == pytest.approx(machine.RATE, rel=0.08)


def test_what_was_not_measured_has_no_constant() -> None:
    rows = [m for m in calibration(lambda: 1.0).measurements if m.kind == "stream"]
    assert set(fit_all(of(rows))) == {"memory_bytes_per_s", "between_products.bf16"}
    assert fit_all(of([])) == {}


def test_the_record_keeps_everything_that_a_fit_needs(tmp_path: Any) -> None:
    made = calibration(lambda: 1.0)
    made.write(tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json") == made


@pytest.mark.torchrun
def test_more_layers_and_micro_batches_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "RUNS", ((1, 1), (6, 4)))
    monkeypatch.setattr(trainer, "ITERATIONS", 20)
    small, large = measure_trainer("cpu", "fp32")
    assert small.sizes == {"layers": 1, "microbatches": 1}
    assert large.sizes == {"layers": 6, "microbatches": 4}
    assert 0 < small.seconds < large.seconds  # 24 times the work: no load turns them round


def test_a_trainer_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SMALL", "--num-layers zero")
    with pytest.raises(NlpBenchError, match=r"exit code 2: .*num-layers.*--no-trainer"):
        measure_trainer("cpu", "fp32")


def test_no_part_of_the_overhead_is_negative() -> None:
    rows = [iteration(*run, seconds) for run, seconds in zip(trainer.RUNS, (1.0, 4.0, 4.0, 16.0), strict=True)]
    found = fit_all(of(rows))
    assert min(one.value for one in found.values()) == 0
    assert found["host_s.layer"].value == pytest.approx(0.5, rel=0.01)


def test_the_processor_time_of_a_process_grows() -> None:
    before = trainer.processor_seconds(os.getpid())
    sum(range(3_000_000))
    assert trainer.processor_seconds(os.getpid()) > before
    with pytest.raises(FileNotFoundError):
        trainer.processor_seconds(int(Path("/proc/sys/kernel/pid_max").read_text()) + 1)


SHORT = ["--minutes", "0.03", "--device", "cpu", "--precision", "fp32", "--no-trainer"]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("calibrated") / "cpu.toml"
    assert main(["plan", "calibrate", *SHORT, "--output", str(file)]) == 0
    return file


@pytest.mark.slow
def test_the_file_is_what_plan_reads(calibrated: Path) -> None:
    measured, constants = read_calibration(calibrated.with_suffix(".json")), read_constants(calibrated)
    fitted = fit_all(measured)
    assert constants.machine.name == measured.device
    assert constants.machine.peak_tflops["fp32"] == pytest.approx(fitted["product_flops_per_s.fp32"].value / 1e12, 1e-4)
    assert constants.machine.memory_gb_per_s == pytest.approx(fitted["memory_bytes_per_s"].value / 1e9, 1e-4)
    assert constants["stream_fused"] == pytest.approx(2 * fitted["between_products.fp32"].value, 1e-4)  # of 16 bit
    assert constants.time["stream_fused"].source.startswith(f"measured on {measured.device}, torch ")
    assert constants["collective_latency_s"] == read_constants()["collective_latency_s"]


@pytest.mark.slow
def test_a_laptop_is_planned_with_it(calibrated: Path) -> None:
    request = Request(model="tiny", system="local", launcher="local", gpus_per_node=1, tensor=1)
    constants, measured = read_constants(calibrated), read_calibration(calibrated.with_suffix(".json"))
    found = forecast(configuration_of(resolve(request, ask_scheduler=False), constants), constants)
    assert 0 < float(found.low[0]) < float(found.seconds.total[0]) < float(found.high[0])
    assert found.memory.capacity == pytest.approx(measured.memory_bytes, rel=0.02)


@pytest.mark.slow
def test_what_was_kept_is_fitted_again_to_the_same(calibrated: Path, tmp_path: Path, cli: Cli) -> None:
    again = ("plan", "calibrate", "--from", calibrated.with_suffix(".json"))
    printed = cli(*again, "--output", tmp_path / "cpu.toml", "--format", "json").json
    assert (tmp_path / "cpu.toml").read_text() == calibrated.read_text()
    assert printed["schema"] == "nlp-bench/calibrated/1"
    assert printed["constants"]["product_flops_per_s.fp32"]["value"] > 0
    text = cli(*again).out
    assert "stand for no GPU" in text
    mine = tmp_path / "my cpu.toml"
    assert f"use it with: nlp-bench plan --constants '{mine}'\n" in cli(*again, "--output", mine).err
    assert "plan calibrate --from 'my cpu.json' --output 'my cpu.toml'\n" in mine.read_text()
    assert "not measured: 8-bit and 4-bit products" in text


def test_a_gpu_of_the_table_has_shares_of_its_data_sheet(tmp_path: Path) -> None:
    measured = replace(calibration(lambda: 1.0), device="NVIDIA H100 80GB HBM3")
    write_constants(tmp_path / "h.toml", measured, fit_all(measured), None)
    constants, sheet = read_constants(tmp_path / "h.toml"), sheet_of("NVIDIA H100 80GB HBM3", "bf16")
    assert constants.machine is None
    assert constants["products_hopper"] == pytest.approx(machine.CEILING / sheet.half_flops, rel=0.01)
    assert constants["attention_hopper"] == pytest.approx(machine.RATE / (1 + 16 / 128) / sheet.half_flops, rel=0.02)
    assert constants["products_ampere"] == read_constants()["products_ampere"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--minutes", "0"], "--minutes: '0' is not a time above 0"),
        (["--minutes", "1e9"], "is more than 120 minutes"),
        (["--output", "x.json"], "name it x.toml"),
        (["--output", "no/such/folder/x.toml"], "there is no folder"),
        (["--system", "nosys"], "system: 'nosys' is not a file of benchmark/systems"),
        (["--from", "nothing.json"], "cannot read nothing.json"),
        (["--precision", "fp8"], "is not one of bf16, fp16, fp32"),
    ],
)
def test_bad_words(words: list[str], said: str, cli: Cli) -> None:
    done = cli("plan", "calibrate", *words, code=None)
    assert done.code in {1, 2}
    assert said in done.err


def test_a_gpu_that_is_not_there_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "torch sees no GPU here" in cli("plan", "calibrate", "--device", "cuda", code=2).err


def test_a_record_of_something_else_is_refused(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.json").write_text('{"schema": "nlp-bench/calibration/1", "device": "x"}')
    assert "no calibration" in cli("plan", "calibrate", "--from", tmp_path / "a.json", code=1).err


@pytest.mark.slow
def test_an_interrupted_measurement_leaves_nothing(tmp_path: Path) -> None:
    words = ["plan", "calibrate", "--minutes", "2", "--device", "cpu", "--no-trainer", "--output"]
    process = subprocess.Popen(
        [sys.executable, "-m", "nlp_bench", *words, str(tmp_path / "c.toml")],
        stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert "measuring CPU" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.torchrun
def test_two_ranks_measure_the_all_reduce_between_them(tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = ["plan", "calibrate", *SHORT, "--output", str(tmp_path / "two.toml")]
    answer = subprocess.run(
        [sys.executable, *torchrun, "-m", "nlp_bench", *words],
        capture_output=True, text=True, check=False, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("stand for no GPU") == 1
    measured, constants = read_calibration(tmp_path / "two.json"), read_constants(tmp_path / "two.toml")
    assert measured.ranks == 2
    assert constants.machine.link_gb_per_s == pytest.approx(fit_all(measured)["link_bytes_per_s"].value / 1e9, 1e-4)
    assert constants["collective_latency_s"] == pytest.approx(fit_all(measured)["link_latency_s"].value, 1e-4)
