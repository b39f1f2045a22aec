"""The old benchmark's JUBE patterns read a log of ours and get our reference number."""

import re
from pathlib import Path

import pytest

from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.train.logline import Interval, format_line

# JUBE's $jube_pat_int and $jube_pat_fp.
INT, FP = r"([+-]?\d+)", r"([+-]?(?:\d*\.?\d+(?:[eE][-+]?\d+)?|\d+\.))"
SECONDS = (7.2310, 5.3551, 5.6192, 5.3291, 5.3247)


def interval(number: int, elapsed_s: float) -> Interval:
    return Interval(
        iteration=10 * number, train_iters=12345678, consumed_samples=960 * number, elapsed_s=elapsed_s, learning_rate=1e-6,
        global_batch_size=96, loss=8.5, loss_scale=1.0, grad_norm=5.0, num_skipped=0, num_nan=0, legacy_flops=2.8e17, model_flops=2.1e17,
        sequence_length=2048, num_gpus=384, peak_bytes=40 * 2**30, unix_time_s=1763639990 + 60.5 * number,
    )  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.out"
    lines = [f"[default3]:{format_line(interval(n, s))}\n" for n, s in enumerate(SECONDS, start=1)]
    path.write_text("Submitted batch job 4711\n" + "".join(lines) + "training finished: 50 iterations\n")
    return path


def test_one_match_per_line_and_the_same_reference(log: Path) -> None:
    text = log.read_text()
    elapsed = [float(x) for x in re.findall(rf"elapsed time per iteration \(s\):\s+{FP}", text)]
    assert [int(x) for x in re.findall(rf"iteration\s+{INT}/\s*\d+", text)] == [10, 20, 30, 40, 50]
    assert len(re.findall(rf"TFLOPs:\s+{FP}", text)) == 5
    assert re.findall(rf"Submitted batch job {INT}", text) == ["4711"]
    (entry,) = measure_log(str(log), Overrides(sequence_length=2048))
    assert entry.reference == pytest.approx(1 / (sum(elapsed) / 5) * 96 * 2048, rel=1e-12)


def test_what_the_trainer_writes_is_read_back(log: Path) -> None:
    (entry,) = measure_log(str(log), Overrides(sequence_length=2048))
    assert [record.elapsed_s for record in entry.records] == list(SECONDS)
    assert all(record.is_whole and record.tflops and record.model_tflops for record in entry.records)
    assert {(record.lm_loss, record.num_nan) for record in entry.records} == {(8.5, 0)}
    assert [record.stamp_s for record in entry.records] == [1763639990 + 60.5 * n for n in range(1, 6)]
