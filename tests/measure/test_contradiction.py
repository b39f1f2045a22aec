"""What a log states twice and differently is told, and proves nothing against a limit."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import pytest
from support.megatron_log import dump, line
from support.texts import entry_of

from nlp_bench.measure.contradiction import Code
from nlp_bench.measure.limit import NOT_PROVEN, PASS, verdict_of


def lines_of(number: int, **columns: Callable[[int], float]) -> list[str]:
    """Return lines that agree, but for `columns`, functions of the iteration."""
    of = {
        "s": lambda i: 5 + 0.001 * (i * 7 % 11), "loss": lambda i: 9 - 0.001234 * i, "lr": lambda i: 1e-5 * i, "skipped": lambda _: 0,
        "tokens": lambda i: 96 * 2048 * i, "samples": lambda i: 96 * i, "stamp": None,
    } | columns  # fmt: skip
    facts = ({name: value(i) for name, value in of.items() if value} for i in range(1, number + 1))
    return [line(i, number, batch=96, **said) for i, said in enumerate(facts, 1)]


def without(lines: list[str], *numbers: int) -> list[str]:
    return [text for number, text in enumerate(lines, 1) if number not in numbers]


def of_two_ranks(factor: float) -> list[str]:
    """Return the lines of two processes, of which the second is slower."""
    both = zip(lines_of(40), lines_of(40, s=lambda i: factor * (5 + 0.001 * (i * 7 % 11))), strict=True)
    return [f"[default{rank}]:{text}" for pair in both for rank, text in enumerate(pair)]


def after_a_start(factor: float, number: int = 8) -> list[str]:
    """Return a start of `number` lines whose times are other ones, and a second one that counts."""
    return [*lines_of(40, s=lambda i: factor * (5 + 0.001 * (i * 7 % 11)))[:number], *lines_of(40)]


def dumped(**arguments: int) -> list[str]:
    return [dump(**arguments), *lines_of(40)]


LAYOUT = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4, "data_parallel_size": 48, "world_size": 384}  # fmt: skip
FLAT = {"loss": lambda _: 9.12345}
ROUND = {"loss": lambda _: 6.93}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (lines_of(40), None),
        (lines_of(40, stamp=lambda i: 1.7e9 + 5.03 * i), None),
        (lines_of(40, stamp=lambda i: 1.7e9 + 2.0 * i),
         (Code.STAMPS_VS_TIME_FAST, "doubt", (), "written within 78.0 s, and their times add up to 195.2 s")),
        (lines_of(40, stamp=lambda i: 1.7e9 + 10.0 * i), (Code.STAMPS_VS_TIME_SLOW, "void", (), "from line to line 1.99")),
        (lines_of(4, s=lambda _: 0.1, stamp=lambda i: 1.7e9 + 0.1 * i + 1.3 * (i > 2)), (Code.STAMPS_VS_TIME_SLOW, "doubt", (), "as much time passed")),
        (lines_of(4, s=lambda _: 0.1, stamp=lambda i: 1.7e9 + 0.1 * i + 30 * (i > 2)), (Code.STAMPS_VS_TIME_SLOW, "void", (), "as much time passed")),
        (lines_of(40, samples=lambda i: 48 * i, tokens=lambda i: 48 * 2048 * i),
         (Code.SAMPLES_VS_BATCH, "void", (), "consumed samples grow by 0.5 times the global batch size per iteration")),
        (lines_of(40, samples=lambda i: 96 * i + 8 * (i in {10, 20})),
         (Code.SAMPLES_VS_BATCH, "doubt", (10, 20), "consumed samples is 968 where iteration and batch give 960; so does line 20")),
        (lines_of(40, s=lambda i: 2.0 if i == 20 else 5.0), (Code.IMPLAUSIBLY_FAST, "remark", (20,), "1 of 40 intervals take less than 60 %")),
        (lines_of(40, s=lambda i: 2.0 if i in {20, 30} else 5.0), (Code.IMPLAUSIBLY_FAST, "doubt", (20, 30), "2 of 40 intervals take")),
        (without(lines_of(400), 200), (Code.MISSING_LINES, "remark", (200,), "1 of 400 lines between")),
        (without(lines_of(400), 200, 300), (Code.MISSING_LINES, "doubt", (200, 299), "2 of 400 lines between")),
        (without(lines_of(40), 20, 21), (Code.MISSING_LINES, "doubt", (20,), "2 of 40 lines between")),
        (after_a_start(1.04), None),
        (after_a_start(1.06), (Code.ATTEMPTS_DIFFER, "doubt", (1,), "takes 1.06 times as long per token")),
        (after_a_start(0.94), (Code.ATTEMPTS_DIFFER, "remark", (1,), "takes 0.94")),
        (after_a_start(2, 7), None),
        (of_two_ranks(1.009), None),
        (of_two_ranks(1.012), (Code.RANKS_DIFFER, "doubt", ANY, "for 40 of 40 iterations: the slowest one's are 1.012 times")),
        (lines_of(40, lr=lambda i: 0 if i <= 36 else 1e-5), None),
        (lines_of(40, lr=lambda i: 0 if i <= 37 else 1e-5), (Code.IMPOSSIBLE_VALUES, "doubt", ANY, "in 37 of 40 lines")),
        (lines_of(40, lr=lambda _: 0), (Code.IMPOSSIBLE_VALUES, "doubt", (), "in all 40 lines")),
        (lines_of(9, **FLAT), None),
        (lines_of(10, **FLAT), (Code.LOSS_DOES_NOT_MOVE, "doubt", (), "the loss is 9.12345 in all 10 lines")),
        (lines_of(99, **ROUND), None),
        (lines_of(100, **ROUND), (Code.LOSS_DOES_NOT_MOVE, "doubt", (), "the loss is 6.93 in all 100 lines")),
        (lines_of(20, loss=lambda i: 9.12345 + i % 3), None),
        (lines_of(20, loss=lambda i: 9.12345 + i % 2), (Code.LOSS_DOES_NOT_MOVE, "doubt", (), "the loss has 2 value(s) in 20 lines")),
        (lines_of(40, loss=lambda i: 9 - 0.001234 * (i - 11 * (i in {31, 32}))), None),
        (lines_of(40, loss=lambda i: 9 - 0.001234 * (i - 11 * (i in {31, 32, 33}))),
         (Code.REPEATED_LINES, "doubt", (31, 32, 33), "3 of 40 lines have the loss and the time of another one")),
        (lines_of(40, skipped=lambda i: int(i <= 15)), None),
        (lines_of(40, skipped=lambda i: int(i <= 16)), (Code.SKIPPED_UPDATES, "doubt", ANY, "40 % of the iterations skipped")),
        (lines_of(40, skipped=lambda i: int(i <= 36)), (Code.SKIPPED_UPDATES, "void", ANY, "90 % of the iterations skipped the update of the weights: nothing was trained")),
        (lines_of(19, skipped=lambda _: 1), (Code.SKIPPED_UPDATES, "doubt", ANY, "every iteration skipped")),
        (lines_of(20, skipped=lambda _: 1), (Code.SKIPPED_UPDATES, "void", ANY, "every iteration skipped")),
        (lines_of(40, tokens=lambda i: 0.5 * 96 * 2048 * i), (Code.TOKENS_VS_SAMPLES, "void", (), "grow by 0.5 times the sequence length")),
        (lines_of(40, tokens=lambda i: 2 * 96 * 2048 * i), None),
        (dumped(**LAYOUT, global_batch_size=96, seq_length=2048, max_position_embeddings=2048), None),
        (dumped(global_batch_size=90), (Code.ARGUMENTS_VS_LINES, "doubt", (2,), "is 96, and 90 by")),
        (dumped(global_batch_size=64), (Code.ARGUMENTS_VS_LINES, "void", (2,), "is 96, and 64 by")),
        (dumped(sft=True), (Code.ARGUMENTS_VS_LINES, "doubt", (), "2048 tokens are counted, the most that one has: sft is True")),
        (dumped(variable_seq_lengths=True), (Code.ARGUMENTS_VS_LINES, "doubt", (), "2048 tokens are counted, the most that one has")),
        (dumped(global_batch_size=100), None),
        (dumped(**LAYOUT | {"data_parallel_size": 24}), (Code.ARGUMENTS_VS_ARGUMENTS, "doubt", (), "is 384, and 192 by")),
        (dumped(**LAYOUT | {"data_parallel_size": 24}, context_parallel_size=2), None),
        (dumped(**LAYOUT, micro_batch_size=2), None),
        (dumped(seq_length=2048, max_position_embeddings=2000),
         (Code.ARGUMENTS_VS_ARGUMENTS, "doubt", (), "is 2048, and 2000 by")),
        (lines_of(400, s=lambda i: 0 if i == 30 else 5 + 0.001 * (i * 7 % 11)), (Code.MISSING_LINES, "remark", (31,), "1 of 400 lines")),
    ],
)  # fmt: skip
def test_each_contradiction_at_its_border(
    lines: list[str], found: tuple[Code, str, tuple[int, ...], str] | None, tmp_path: Path
) -> None:
    entry = entry_of(tmp_path, lines, sequence_length=2048, num_gpus=384)
    if found is None:
        assert entry.contradictions == ()
        assert verdict_of(entry, 20_000_000, 1000).word == (NOT_PROVEN if entry.doubts else PASS)
        return
    code, weight, numbers, words = found
    (said,) = entry.contradictions
    assert (said.code, said.weight.value, said.lines) == (code, weight, numbers)
    assert words in said.text
    assert entry.has_number is (weight != "void")
    if weight != "remark":
        assert verdict_of(entry, 20_000_000, 1000).word == NOT_PROVEN


def maxtext(weights: Callable[[int], int], *, devices: int = 8, more: str = "") -> list[str]:
    """Return lines of 8192 tokens per device and step, of which `weights` are real on all."""
    of = ((i, 4 + 0.003 * (i * 7 % 11)) for i in range(40))
    return [f"Num_devices: {devices}, shape (1, 8)\n"] * bool(devices) + [
        f"completed step: {i}, seconds: {s:.3f}, Tokens/s/device: {8192 / s:.3f}, total_weights: {weights(i)}, loss: {9 - i / 60:.3f}{more}\n"
        for i, s in of
    ]


def trainer(more: str) -> list[str]:
    """Return the dicts and the bar of Hugging Face's Trainer, a step of 64 samples in about 4 s."""
    clock = [round(40 * i + i * 7 % 11 / 3) for i in range(1, 31)]
    steps = [
        f"{{'loss': {9 - i / 60:.4f}, 'learning_rate': 1e-06{more}, 'epoch': {i / 30:.2f}}}\n"
        f" 10%|#         | {10 * i}/300 [{s // 60:02d}:{s % 60:02d}<00:00,  4.00s/it]\n"
        for i, s in enumerate(clock, 1)
    ]
    return ["***** Running training *****\n", "  Total train batch size (w. parallel) = 64\n", *steps]


def micro_batches(form: str) -> list[str]:
    """Return 300 lines of micro-batches of 5.15 s each."""
    clock = (f"{round(5.15 * i) // 60:02d}:{round(5.15 * i) % 60:02d}" for i in range(1, 301))
    return [
        form.format(n=i, ms=135 + 3 * (i * 7 % 11), clock=at, loss=9 - i / 60) + "\n" for i, at in enumerate(clock, 1)
    ]


MICRO, SIZES = "micro-batch", {"sequence_length": 2048, "global_batch_size": 64}
BAR = "{n:3d}%|###  | {n}/300 [{clock}<00:00,  5.15s/it, {loss:.3f}]"
XTUNER = "01/01 10:{clock} - mmengine - INFO - Iter(train) [{n:5d}/300]  lr: 2.0e-04  time: 5.{ms}  loss: {loss:.4f}"
ENGINE = "[2026-01-01 10:{clock},000] [INFO] [timer.py:199:stop] epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=12.4{ms}, MemAllocated=4.0GB"
BETWEEN = "leaves out what lies between two steps"
PADDED, PAIR = "total_weights, the real tokens, are fewer", "a pair of answers is counted as one sequence"


@pytest.mark.parametrize(
    ("lines", "given", "doubt"),
    [
        (maxtext(lambda _: 65536), {}, ""),
        (maxtext(lambda i: 65300 + i), {}, ""),
        (maxtext(lambda i: 65000 + i), {}, PADDED),
        (maxtext(lambda i: 65300 + i, devices=0), {"num_gpus": 8}, PADDED),  # of how many devices nothing says
        (maxtext(lambda _: 5480, more=", reward_accuracy: 0.100"), {"num_gpus": 8}, PAIR),
        (trainer(""), {"sequence_length": 2048}, ""),
        (micro_batches(BAR), SIZES, MICRO),
        (micro_batches(f"Epoch 0: {BAR}"), SIZES, MICRO),
        (micro_batches(XTUNER), SIZES, MICRO),
        (["accumulative_counts = 1\n", *micro_batches(XTUNER)], SIZES, ""),
        (micro_batches("iter {n}: loss {loss:.4f}, time: 5{ms}.00ms"), SIZES, MICRO),
        (["  train_batch_size ............. 64\n", *micro_batches(ENGINE)], {"sequence_length": 2048}, ""),
        (micro_batches(ENGINE), {"sequence_length": 2048}, BETWEEN),
        (micro_batches(ENGINE.split("] ", 1)[1]), {"sequence_length": 2048}, BETWEEN),
        (trainer(", 'rewards/chosen': 0.01, 'rewards/rejected': -0.02"), {"sequence_length": 2048}, PAIR),
    ],
)
def test_what_a_program_counts_beyond_what_was_trained_proves_nothing(
    lines: list[str], given: dict[str, int], doubt: str, tmp_path: Path
) -> None:
    entry = entry_of(tmp_path, lines, **given)
    said = [doubt in each.text for each in entry.contradictions if each.code is Code.WHAT_IS_COUNTED]
    assert said == [True] * bool(doubt)
    assert verdict_of(entry, 20_000_000, 10_000).word == (NOT_PROVEN if doubt else PASS)
