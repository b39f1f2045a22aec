"""`nlp-bench plan calibrate` as a user runs it: a short measurement, the file that plan takes, bad words, an interruption."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.known_machine import CEILING, RATE, calibration

from nlp_bench.cli.main import main
from nlp_bench.plan.calibrate.fit import fit_all
from nlp_bench.plan.calibrate.output import write_constants
from nlp_bench.plan.calibrate.record import read_calibration
from nlp_bench.plan.constants import read_constants

SHORT = ["--minutes", "0.03", "--device", "cpu", "--precision", "fp32", "--no-trainer"]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("calibrated") / "cpu.toml"
    assert main(["plan", "calibrate", *SHORT, "--output", str(file)]) == 0
    return file


def test_the_file_is_what_plan_reads(calibrated: Path) -> None:
    measured, constants = read_calibration(calibrated.with_suffix(".json")), read_constants(calibrated)
    fitted = fit_all(measured)
    assert constants.machine is not None
    assert constants.machine.name == measured.device
    assert constants.machine.peak_tflops["fp32"] == pytest.approx(fitted["product_flops_per_s.fp32"].value / 1e12, 1e-4)
    assert constants.machine.memory_gb_per_s == pytest.approx(fitted["memory_bytes_per_s"].value / 1e9, 1e-4)
    assert constants["stream_fused"] == pytest.approx(2 * fitted["between_products.fp32"].value, 1e-4)  # of 16 bit
    assert constants.time["stream_fused"].source.startswith(f"measured on {measured.device}, torch ")
    assert constants["collective_latency_s"] == read_constants()["collective_latency_s"]


def test_a_laptop_is_planned_with_it(calibrated: Path) -> None:
    from nlp_bench.config.request import Request
    from nlp_bench.config.resolve import resolve
    from nlp_bench.plan.forecast import forecast
    from nlp_bench.plan.problem import configuration_of

    run = resolve(Request(model="tiny", system="local", launcher="local", gpus_per_node=1, tp=1), ask_scheduler=False)
    constants = read_constants(calibrated)
    found = forecast(configuration_of(run, constants), constants)
    assert 0 < float(found.low[0]) < float(found.seconds.total[0]) < float(found.high[0])
    assert found.memory.capacity == pytest.approx(
        read_calibration(calibrated.with_suffix(".json")).memory_bytes, rel=0.02
    )


def test_what_was_kept_is_fitted_again_to_the_same(calibrated: Path, tmp_path: Path, capsys: Any) -> None:
    words = ["--from", str(calibrated.with_suffix(".json")), "--output", str(tmp_path / "cpu.toml"), "--format", "json"]
    assert main(["plan", "calibrate", *words]) == 0
    assert (tmp_path / "cpu.toml").read_text() == calibrated.read_text()
    printed = json.loads(capsys.readouterr().out)
    assert printed["schema"] == "nlp-bench/calibrated/1"
    assert printed["constants"]["product_flops_per_s.fp32"]["value"] > 0


def test_the_table_says_that_it_is_a_cpu(calibrated: Path, capsys: Any) -> None:
    assert main(["plan", "calibrate", "--from", str(calibrated.with_suffix(".json"))]) == 0
    text = capsys.readouterr().out
    assert "stand for no GPU" in text
    assert "not measured: 8-bit and 4-bit products" in text


def test_a_gpu_of_the_table_has_shares_of_its_data_sheet(tmp_path: Path) -> None:
    from nlp_bench.plan.machines import sheet_of

    measured = calibration(lambda: 1.0)
    measured = type(measured)(**(vars(measured) | {"device": "NVIDIA H100 80GB HBM3"}))
    write_constants(tmp_path / "h.toml", measured, fit_all(measured), None)
    constants, sheet = read_constants(tmp_path / "h.toml"), sheet_of("NVIDIA H100 80GB HBM3", "bf16")
    assert constants.machine is None
    assert constants["products_hopper"] == pytest.approx(CEILING / sheet.half_flops, rel=0.01)
    assert constants["attention_hopper"] == pytest.approx(RATE / (1 + 16 / 128) / sheet.half_flops, rel=0.02)
    assert constants["products_ampere"] == read_constants()["products_ampere"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--minutes", "0"], "--minutes: '0' is not a time above 0"),
        (["--minutes", "1e9"], "is more than 120 minutes"),
        (["--output", "x.json"], "name it x.toml"),
        (["--output", "no/such/folder/x.toml"], "there is no folder"),
        (["--from", "nothing.json"], "cannot read nothing.json"),
        (["--precision", "fp8"], "is not one of bf16, fp16, fp32"),
    ],
)
def test_bad_words(words: list[str], said: str, capsys: Any) -> None:
    assert main(["plan", "calibrate", *words]) in {1, 2}
    assert said in capsys.readouterr().err


def test_a_gpu_that_is_not_there_is_refused(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["plan", "calibrate", "--device", "cuda"]) == 2
    assert "torch sees no GPU here" in capsys.readouterr().err


def test_a_record_of_something_else_is_refused(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a.json").write_text('{"schema": "nlp-bench/calibration/1", "device": "x"}')
    assert main(["plan", "calibrate", "--from", str(tmp_path / "a.json")]) == 1
    assert "no calibration" in capsys.readouterr().err


def test_an_interrupted_measurement_leaves_nothing(tmp_path: Path) -> None:
    words = [
        "plan",
        "calibrate",
        "--minutes",
        "2",
        "--device",
        "cpu",
        "--no-trainer",
        "--output",
        str(tmp_path / "c.toml"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "nlp_bench", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
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
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("stand for no GPU") == 1
    measured, constants = read_calibration(tmp_path / "two.json"), read_constants(tmp_path / "two.toml")
    assert measured.ranks == 2
    assert constants.machine is not None
    assert constants.machine.link_gb_per_s == pytest.approx(fit_all(measured)["link_bytes_per_s"].value / 1e9, 1e-4)
    assert constants["collective_latency_s"] == pytest.approx(fit_all(measured)["link_latency_s"].value, 1e-4)
