"""Programs that nobody has described: read where their numbers agree, refused where they may mean two things.

Every invented program trains with 64 samples of 2048 tokens in 0.512 s on 8 devices: 256 000 tokens per second, 32 000 of each.
"""

import time
from functools import partial
from pathlib import Path

import pytest
from support.unknown_logs import (
    DEVICES,
    FOREIGN,
    NOTHING,
    RATE,
    READ,
    REFUSED,
    log,
)

from nlp_bench.logs.reader import read_log
from nlp_bench.logs.unknown.meaning import meaning
from nlp_bench.measure import foreign
from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides


def entry(tmp_path: Path, text: str, options: Overrides = NOTHING) -> RunEntry:
    path = tmp_path / "job.log"
    path.write_text(text, encoding="utf-8")
    return max(measure_log(str(path), options), key=lambda e: e.num_records or 0)


def said(found: RunEntry) -> str:
    """Everything that a reader of the number is told."""
    of_log = found.provenance.remarks if found.provenance else ()
    return " ".join((*found.reasons, *found.remarks, *of_log))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is known."""
    monkeypatch.setattr(foreign, "read_log", partial(read_log, only="unknown"))


@pytest.mark.parametrize("name", READ)
@pytest.mark.usefixtures("alone")
def test_read(tmp_path: Path, name: str) -> None:
    text, options = READ[name]
    found = entry(tmp_path, text, options)
    assert found.dialect == "unknown"
    assert found.steady == pytest.approx(RATE, rel=2e-3), said(found)
    assert "read by its units" in said(found)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("alone")
def test_refused(tmp_path: Path, name: str) -> None:
    text, options, word = REFUSED[name]
    found = entry(tmp_path, text, options)
    assert not found.has_number, (found.steady, said(found))
    assert word in said(found)


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.usefixtures("alone")
def test_no_training(tmp_path: Path, name: str) -> None:
    for options in (NOTHING, Overrides(global_batch_size=64, sequence_length=2048, num_gpus=8)):
        found = entry(tmp_path, FOREIGN[name], options)
        assert not found.has_number, (found.steady, found.dialect, said(found))


@pytest.mark.parametrize(
    ("name", "unit", "meant"),
    [
        ("tokens_per_second", "", "tokens_rate"),
        ("TokensPerSec", "", "tokens_rate"),
        ("perf/tok_s", "", "tokens_rate"),
        ("", "toks/sec", "tokens_rate"),
        ("throughput", "tokens/s", "tokens_rate"),
        ("global throughput", "tokens/s", "tokens_rate total"),
        ("throughput/device/tokens_per_second", "", "tokens_rate device"),
        ("tokens per GPU (tokens/s/GPU)", "", "tokens_rate device"),
        ("tgs (tokens/gpu/second)", "", "tokens_rate device"),
        ("tokens per chip per second", "", "tokens_rate device"),
        ("", "samples/s/p", "samples_rate device"),
        ("tokens/s/node", "", "tokens_rate node"),
        ("CurrSamplesPerSec", "", "samples_rate"),
        ("It/sec", "", "steps_rate"),
        ("elapsed time per iteration", "ms", "step_time"),
        ("train_step_timing in s", "", "step_time"),
        ("", "s/it", "step_time"),
        ("elapsed", "s", "time"),
        ("total time", "s", "clock total"),
        ("global_step", "", "counter"),
        ("num_input_tokens_seen", "", "seen_tokens"),
        ("per_device_train_batch_size", "", "micro_batch"),
        ("total batch size", "tokens", "step_tokens total"),
        ("total train batch size", "", "global_batch total"),
        ("throughput", "", "rate"),
        ("val_tokens_per_sec", "", None),
        ("data_time", "s", None),
        ("forward", "ms", None),
        ("max tokens/s", "", None),
        ("TFLOP/s/device", "", None),
        ("step_time_ms", "s", None),
        ("tokens/s", "samples/s", None),
        ("memory", "GB", None),
    ],
)
def test_meaning(name: str, unit: str, meant: str | None) -> None:
    found = meaning(name, unit)
    assert (f"{found.kind} {found.place}".strip() if found else None) == meant


@pytest.mark.parametrize(
    ("line", "sure"),
    [
        ("tok/s 256000 | 512 ms/step", "high"),
        ("tok/s 256000", "medium"),
        ("tokens/s 256000 | 32000 tokens/s/gpu", "high"),
    ],
)
@pytest.mark.usefixtures("alone")
def test_how_sure(tmp_path: Path, line: str, sure: str) -> None:
    found = entry(tmp_path, log(lambda n: f"step {n} | loss 2.31 | {line}"))
    assert f"({sure})" in said(found)


@pytest.mark.usefixtures("alone")
def test_a_cut_line_is_not_read(tmp_path: Path) -> None:
    text = log(lambda n: f"step {n} | loss 2.31 | tok/s 256000")
    for size in range(len(text) - 34, len(text)):
        found = entry(tmp_path, text[:size])
        assert found.steady == pytest.approx(RATE), text[:size][-40:]
        assert found.num_records == (11 if size < len(text) else 12)


def test_a_known_program_is_believed_instead(tmp_path: Path) -> None:
    text = log(lambda n: f"[titan] step: {n}  loss: 2.31000  memory: 40.00GiB(50.00%)  tps: 32,000  mfu: 2.00%")
    assert entry(tmp_path, text, DEVICES).dialect == "torchtitan"


@pytest.mark.parametrize(
    "text",
    [
        "step " + "1" * (1 << 20) + "\n",
        "step " + " " * (1 << 20) + "1 loss\n",
        "step " + "1,111" * (1 << 18) + "\n",
        "step 1 " + "loss " * (1 << 18) + "\n",
        "step " + "1:" * (1 << 19) + "\n",
        "tokens/s" * (1 << 17) + "1\n",
        ("step " + "1 " * 4000 + "\n") * 500,
        "".join(f"step {'x' * (n % 97)}{n} of loss y{n}z\n" for n in range(100_000)),
    ],
    ids=["digits", "blanks", "commas", "words", "clocks", "units", "numbers", "forms"],
)
def test_strange_lines_take_no_time(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.log"
    path.write_text(text, encoding="utf-8")
    begin = time.process_time()
    assert not read_log(str(path), only="unknown").attempts
    assert time.process_time() - begin < 20
