"""The trainer's own overhead, measured on the trainer itself."""

from pathlib import Path

import pytest
from support.known_machine import iteration, of

from nlp_bench.errors import NlpBenchError
from nlp_bench.plan.calibrate import trainer
from nlp_bench.plan.calibrate.fit import fit_all
from nlp_bench.plan.calibrate.trainer import measure_trainer


@pytest.mark.torchrun
def test_more_layers_and_micro_batches_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "RUNS", ((1, 1), (6, 4)))
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
    import os

    before = trainer.processor_seconds(os.getpid())
    sum(range(3_000_000))
    assert trainer.processor_seconds(os.getpid()) > before
    with pytest.raises(FileNotFoundError):
        trainer.processor_seconds(int(Path("/proc/sys/kernel/pid_max").read_text()) + 1)
