"""What the form of a pattern does to whole logs, where a fixture's rate would not show it: numbers of iterations, facts, other records."""

from pathlib import Path

import pytest
from support.texts import log_of

from nlp_bench.logs.record import Log

MINDFORMERS = "Epoch:[  {epoch}/  3], step:[ {step}/ 100], loss: 8.500, per_step_time: 2000ms, lr: 1e-05\n"
XTUNER = (
    "01/01 10:00:00 - mmengine - INFO - Epoch(train) [{epoch}][ {step}/50]  lr: 2.0e-04  time: 2.0000  loss: 2.5000\n"
)
EASYLM = " 12% {step}/10000 [10:00<1:13:20, 2.00it/s]\n"
TORCHTUNE = "Step {step} | loss:1.23 lr:2e-05 tokens_per_second_per_gpu:2048.0 grad_norm:1.23 \n"
BAR = "1|{step}|Loss: 0.94: 100%|###| 3/3 [00:24<00:00,  8.00s/it]\n"
TITAN = "[rank0]:[titan] root - INFO - step: {step}  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: 5,856  mfu: 34.29%\n"
OLMO = "[2026-01-01 10:00:10] INFO [step={step}/1000]\n    throughput/device/tokens_per_second={rate}\n"


def iterations(log: Log) -> list[float]:
    return [record.iteration for attempt in log.attempts for record in attempt.records]


@pytest.mark.parametrize(("line", "total"), [(MINDFORMERS, 100), (XTUNER, 50)])
def test_iterations_are_numbered_through_all_epochs(tmp_path: Path, line: str, total: int) -> None:
    log = log_of(tmp_path, (line.format(epoch=epoch, step=step) for epoch in (1, 2, 3) for step in (10, 20)))
    assert iterations(log) == [epoch * total + step for epoch in (0, 1, 2) for step in (10, 20)]
    known = 300 if total == 100 else None
    assert {record.total_iterations for record in log.attempts[0].records} == {known}, (
        "XTuner does not say how many epochs"
    )


@pytest.mark.slow
@pytest.mark.parametrize("line", [MINDFORMERS, XTUNER, TORCHTUNE, TITAN, OLMO, BAR])
def test_a_log_of_many_blocks_is_read_to_its_end(tmp_path: Path, line: str) -> None:
    """Where a dialect has shown itself, the rest is searched for its words alone."""
    log = log_of(tmp_path, (line.format(epoch=1, step=step, rate=4096.0) for step in range(1, 6_000)))
    assert iterations(log) == list(range(1, 6_000))


def test_of_two_names_for_one_quantity_the_first_counts(tmp_path: Path) -> None:
    log = log_of(tmp_path, XTUNER.format(epoch=1, step=10).replace("loss: 2.5000", "loss: 2.5000  total_loss: 9.5000"))
    assert log.attempts[0].records[0].lm_loss == 2.5


def test_a_bar_counts_once_the_program_has_been_seen(tmp_path: Path) -> None:
    assert log_of(tmp_path, EASYLM.format(step=1)).dialect is None
    log = log_of(
        tmp_path, [EASYLM.format(step=1), "{'gradient_norm': 1.2,\n 'param_norm': 300.0}\n", EASYLM.format(step=2)]
    )
    assert (log.dialect, iterations(log)) == ("easylm", [2])


def test_records_that_say_less_are_read_where_there_are_no_others(tmp_path: Path) -> None:
    assert iterations(log_of(tmp_path, (BAR.format(step=step) for step in (1, 2, 2, 3)))) == [1, 2, 3]
    assert iterations(log_of(tmp_path, TORCHTUNE.format(step=7) + BAR.format(step=8) + BAR.format(step=9))) == [7]


@pytest.mark.parametrize(
    ("line", "devices"),
    [
        ("+ torchrun --nnodes=4 --nproc_per_node=8 train.py\n", 32),
        ("+ torchrun --nnodes=4 --nproc_per_node=8 -m torchtitan.train --job.config_file a.toml\n", 32),
        ("+ srun --nodes=8 torchrun --nnodes 8 --nproc-per-node 8 check_nccl.py\n", None),
        ("+ torchrun --nproc_per_node=8 train.py\n", None),
        ("torchrun --nnodes=4 --nproc_per_node=8 train.py\n", None),
        ("Building 3-D device mesh with ['pp', 'dp', 'tp'], [2, 4, 8]\n", 64),
        ("device mesh with parallelism: pp=1, dp_replicate=2, dp_shard=8, cp=1, tp=4\n", 64),
    ],
)
def test_a_fact_may_be_a_product(tmp_path: Path, line: str, devices: int | None) -> None:
    (attempt,) = log_of(tmp_path, [line, *(TITAN.format(step=step) for step in (1, 2, 3))]).attempts
    assert attempt.count("num_devices") == devices


def test_a_line_of_the_next_record_whose_head_is_lost_ends_the_one_before(tmp_path: Path) -> None:
    first, second, third = (OLMO.format(step=step, rate=f"{1000 * step}.5") for step in (1, 2, 3))
    log = log_of(tmp_path, first + second.splitlines()[1] + "\n    throughput/total_tokens=9\n" + third)
    assert [(r.iteration, r.tokens_per_second_per_device, r.consumed_tokens) for r in log.attempts[0].records] == [
        (1, 1000.5, None),
        (3, 3000.5, None),
    ]
