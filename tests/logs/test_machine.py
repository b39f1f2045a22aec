"""What any log says of its model and its accelerators."""

from pathlib import Path

import pytest
from support.megatron_log import line
from support.reported import Reported
from support.texts import entry_of, log_of

STEP = "step: 20  loss:  6.1384  grad_norm:  0.5  memory: 49.66GiB(52.28%)  tps: 5,856  tflops: 339.16  mfu: 34.29%\n"


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("Total number of parameters in billions: 8.03", 8.03e9),
        ("number of parameters: 124.34M", 124.34e6),
        ("number parameters: 8.030 billion", 8.03e9),
        ("Model llama3 8B size: 8,030,261,248 total parameters", 8030261248.0),
        ("Number of trainable parameters = 148,796,794", 148796794.0),
        ("total params: 7392727040", 7392727040.0),
        ("step: 1 total para3ms: 3\nstep: 2 total params: 7392727040", 7392727040.0),
        (" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 1557686272", None),
        ("Number of parameters in most loaded shard in billions: 8.0305", None),
        ("Number of parameters in embedding layers in billions: 1.05", None),
        ("number of parameters: 124.34M\nnum_experts ........ 8", None),
        ("number of parameters: 12", None),
    ],
)
def test_parameters(tmp_path: Path, text: str, parameters: float | None) -> None:
    found = log_of(tmp_path, f"{text}\n{STEP}").attempts[0].fact("parameters")
    assert found is None if parameters is None else found == pytest.approx(parameters, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("|   0  NVIDIA H100 80GB HBM3          On  |", "NVIDIA H100 80GB HBM3"),
        ("device: NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("using AMD Instinct MI300X for it", "AMD Instinct MI300X"),
        ("NVIDIA Driver Version: 555.42", None),
        ("step: 1 on MI900X\nstep: 2 on MI300X", "MI300X"),  # lines that differ in their digits alone
    ],
)
def test_devices(tmp_path: Path, text: str, device: str | None) -> None:
    fact = log_of(tmp_path, f"{text}\n{STEP}").attempts[0].facts.get("device")
    assert (fact and fact.value) == device


def test_a_step_faster_than_the_accelerators_peak_is_refused(tmp_path: Path) -> None:
    text = f"NVIDIA A100-SXM4-40GB\nTotal number of parameters in billions: 70.0\n{STEP}"
    entry = entry_of(tmp_path, text, num_gpus=8)
    assert (entry.outcome.value, entry.has_number) == ("REFUSED", False)
    assert "more than the 312 of A100" in entry.reason_texts[0]
    assert entry_of(tmp_path, text.replace("70.0", "7.0"), num_gpus=8).outcome.value == "MEASURED"


NEMO = "".join(
    f"Training epoch 0, iteration {i}/99 | global_batch_size: 128 | global_step: {i} | train_step_timing in s: 8.0\n"
    for i in range(4)
)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("GPTConfig(num_layers=32, seq_length=8192, fp8=None)", 131072),
        ("  encoder_seq_length: 2048", 32768),
        ("  model.encoder_seq_length=2048", 32768),
        ("  seq_length: 8192\n  seq_length: 4096", None),
        ("  max_seq_length: 8192", None),
    ],
)
def test_the_printed_configuration_of_nemo(tmp_path: Path, text: str, rate: float | None) -> None:
    for steps, numbers in ((NEMO, (rate, 32)), (STEP, (None, None))):
        entry = entry_of(tmp_path, f"{text}\nGLOBAL_RANK: 0, MEMBER: 1/32\n{steps}")
        assert (entry.steady, entry.num_gpus) == numbers


def test_a_shape_alone_states_no_number_of_parameters(reported: Reported) -> None:
    """What layers of that width have at least serves to doubt a rate; nobody printed it."""
    shape = "  num_layers .................... 40\n  hidden_size ................... 5120\n  seq_length .................... 2048\n"
    same = {"ms": 16700, "batch": 1024}
    lines = "".join(line(n, 200, samples=1024 * n, loss=9 - n / 100, **same) for n in range(1, 21))
    run = reported(f"{shape}{lines}", "--num-gpus", "8")
    assert run["tokens_per_second"]["steady"] == pytest.approx(1024 * 2048 / 16.7)
    assert "num_parameters" not in run["workload"]["logged"]
    run = reported(f"{shape}{lines.replace('16700.0', '2.0')}", "--num-gpus", "8")
    assert run["outcome"] == "REFUSED"
    assert "implausible" in run["reasons"][0]
