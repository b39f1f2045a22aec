"""What a log states twice and differently is told, and proves nothing against a limit."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import pytest

from nlp_bench.measure.contradiction import Code, Weight
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.limit import NOT_PROVEN, verdict_of
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome


def measured(
    folder: Path,
    *,
    grown: int = 96,
    skipped: int = 0,
    wall_s: float = 5.0,
    stamps: bool = True,
    short: tuple[int, ...] = (),
) -> RunResult:
    lines = []
    for i in range(1, 41):
        elapsed = 2.0 if i in short else 5 + 0.01 * (i * 7 % 5)
        clock = f" unix time: {1.7e9 + i * wall_s:.3f} |" if stamps else ""
        lines.append(
            f" iteration {i:8d}/      40 | consumed samples: {grown * i:12d} | elapsed time per iteration (s): {elapsed:.4f} | "
            f"global batch size:    96 | lm loss: {9 - 0.01 * i:.6E} | number of skipped iterations: {skipped} | "
            f"number of nan iterations:   0 |{clock}\n"
        )
    path = folder / "job.out"
    path.write_text("".join(lines))
    (entry,) = measure_log(str(path), Overrides(sequence_length=2048, num_gpus=384))
    return entry


def test_a_log_that_agrees_with_itself_says_nothing(tmp_path: Path) -> None:
    entry = measured(tmp_path, wall_s=5.03)
    assert entry.reason_texts == ()
    assert verdict_of(entry, 20_000_000, 1000).word == "PASS"


@pytest.mark.parametrize(
    ("what", "said", "outcome"),
    [
        ({"grown": 48}, "its consumed samples grow by 0.5 times the global batch size per iteration", Outcome.INVALID),
        ({"wall_s": 2.0}, "its lines were written within 78.0 s, and their times add up to 195.8 s", Outcome.MEASURED),
        ({"wall_s": 10.0}, "from line to line 1.99", Outcome.INVALID),
        ({"skipped": 1, "stamps": False}, "every iteration skipped the update", Outcome.INVALID),
    ],
)
def test_a_contradiction_is_told_and_proves_nothing(
    tmp_path: Path, what: dict[str, float], said: str, outcome: Outcome
) -> None:
    entry = measured(tmp_path, **what)
    assert said in entry.reason_texts[0]
    assert (entry.outcome, entry.has_number) == (outcome, outcome.has_number)
    assert verdict_of(entry, 20_000_000, 1000).word == NOT_PROVEN


@pytest.mark.parametrize(
    ("short", "outcome", "word"), [((20,), Outcome.VALID, "PASS"), ((20, 30), Outcome.MEASURED, NOT_PROVEN)]
)
def test_a_second_interval_that_no_machine_trains_in_proves_nothing_but_takes_no_number(
    tmp_path: Path, short: tuple[int, ...], outcome: Outcome, word: str
) -> None:
    entry = measured(tmp_path, stamps=False, short=short)
    assert f"{len(short)} of 40 intervals take less than 60 % of the time" in " ".join(entry.reason_texts)
    assert (entry.outcome, entry.has_number) == (outcome, True)
    assert verdict_of(entry, 20_000_000, 1000).word == word


@pytest.mark.parametrize(("held_up_s", "weight"), [(1.3, Weight.DOUBT), (30.0, Weight.VOID)])
def test_one_hold_up_between_few_lines_is_no_forgery(tmp_path: Path, held_up_s: float, weight: Weight) -> None:
    """A loaded machine held a run of a few tenths of a second up between two of its lines."""
    line = (
        " iteration {:8d}/       4 | consumed samples: {:12d} | elapsed time per iteration (s): 0.1000 | global batch size:    96 | "
        "lm loss: {:.6E} | number of skipped iterations: 0 | number of nan iterations:   0 | unix time: {:.3f} |\n"
    )
    lines = [line.format(i, 96 * i, 9 - 0.01 * i, 1.7e9 + 0.1 * i + held_up_s * (i > 2)) for i in range(1, 5)]
    (tmp_path / "job.out").write_text("".join(lines))
    (entry,) = measure_log(str(tmp_path / "job.out"), Overrides(sequence_length=2048, num_gpus=384))
    assert [(found.code, found.weight) for found in entry.contradictions] == [(Code.STAMPS_VS_TIME_SLOW, weight)]
    assert entry.has_number == (weight is Weight.DOUBT)
    assert verdict_of(entry, 20_000_000, 1000).word == NOT_PROVEN


def lines_of(number: int, **columns: Callable[[int], float]) -> list[str]:
    """Return lines that agree, but for `columns`, functions of the iteration."""
    of = {
        "elapsed": lambda i: 5 + 0.001 * (i * 7 % 11), "loss": lambda i: 9 - 0.001234 * i, "rate": lambda i: 1e-5 * i, "skipped": lambda _: 0,
        "tokens": lambda i: 96 * 2048 * i,
    } | columns  # fmt: skip
    return [
        f"iteration {i}/ {number} | consumed samples: {96 * i} | consumed tokens: {of['tokens'](i):.0f} | "
        f"elapsed time per iteration (s): {of['elapsed'](i):.4f} | learning rate: {of['rate'](i):.3E} | global batch size: 96 | "
        f"lm loss: {of['loss'](i):.6E} | number of skipped iterations: {of['skipped'](i)} |\n"
        for i in range(1, number + 1)
    ]


def without(lines: list[str], *numbers: int) -> list[str]:
    return [line for number, line in enumerate(lines, 1) if number not in numbers]


def of_two_ranks(factor: float) -> list[str]:
    """Return the lines of two processes, of which the second is slower."""
    both = zip(lines_of(40), lines_of(40, elapsed=lambda i: factor * (5 + 0.001 * (i * 7 % 11))), strict=True)
    return [f"[default{rank}]:{line}" for pair in both for rank, line in enumerate(pair)]


def after_a_start(factor: float, number: int = 8) -> list[str]:
    """Return a start of `number` lines whose times are other ones, and a second one that counts."""
    return [*lines_of(40, elapsed=lambda i: factor * (5 + 0.001 * (i * 7 % 11)))[:number], *lines_of(40)]


def dumped(**arguments: int) -> list[str]:
    """Return lines behind a dump of arguments."""
    dump = [f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in arguments.items()]
    return ["------------------------ arguments ------------------------\n", *dump, *lines_of(40)]


LAYOUT = {
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 4,
    "data_parallel_size": 48,
    "world_size": 384,
}
FLAT = {"loss": lambda _: 9.12345}
ROUND = {"loss": lambda _: 6.93}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (lines_of(40), None),
        (without(lines_of(400), 200), (Code.MISSING_LINES, "remark", (200,), "1 of 400 lines between")),
        (without(lines_of(400), 200, 300), (Code.MISSING_LINES, "doubt", (200, 299), "2 of 400 lines between")),
        (without(lines_of(40), 20, 21), (Code.MISSING_LINES, "doubt", (20,), "2 of 40 lines between")),
        (after_a_start(1.04), None),
        (after_a_start(1.06), (Code.ATTEMPTS_DIFFER, "doubt", (1,), "takes 1.06 times as long per token")),
        (after_a_start(0.94), (Code.ATTEMPTS_DIFFER, "remark", (1,), "takes 0.94")),
        (after_a_start(2, 7), None),
        (of_two_ranks(1.009), None),
        (of_two_ranks(1.012), (Code.RANKS_DIFFER, "doubt", ANY, "for 40 of 40 iterations: the slowest one's are 1.012 times")),
        (lines_of(40, rate=lambda i: 0 if i <= 36 else 1e-5), None),
        (lines_of(40, rate=lambda i: 0 if i <= 37 else 1e-5), (Code.LEARNING_RATE_ZERO, "doubt", (), "in 37 of 40 lines")),
        (lines_of(40, rate=lambda _: 0), (Code.LEARNING_RATE_ZERO, "doubt", (), "in all 40 lines")),
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
        (lines_of(40, skipped=lambda i: int(i <= 36)), (Code.SKIPPED_UPDATES, "void", ANY, "90 % of the iterations skipped")),
        (lines_of(19, skipped=lambda _: 1), (Code.SKIPPED_UPDATES, "doubt", ANY, "every iteration skipped")),
        (lines_of(20, skipped=lambda _: 1), (Code.SKIPPED_UPDATES, "void", ANY, "every iteration skipped")),
        (lines_of(40, tokens=lambda i: 0.5 * 96 * 2048 * i), (Code.TOKENS_VS_SAMPLES, "void", (), "grow by 0.5 times the sequence length")),
        (lines_of(40, tokens=lambda i: 2 * 96 * 2048 * i), None),
        (dumped(**LAYOUT, global_batch_size=96, seq_length=2048, max_position_embeddings=2048), None),
        (dumped(global_batch_size=90), (Code.ARGUMENTS_VS_LINES, "doubt", (2,), "global batch size is 96 in the lines and 90 in the arguments")),
        (dumped(global_batch_size=64), (Code.ARGUMENTS_VS_LINES, "void", (2,), "global batch size is 96 in the lines and 64 in the arguments")),
        (dumped(global_batch_size=100), (Code.ARGUMENTS_VS_ARGUMENTS, "doubt", (), "batch is 100 and, further on, 96")),
        (dumped(**LAYOUT | {"data_parallel_size": 24}), (Code.ARGUMENTS_VS_ARGUMENTS, "doubt", (), "TP x PP x CP x DP is 192, the world 384")),
        (dumped(**LAYOUT | {"data_parallel_size": 24}, context_parallel_size=2), None),
        (dumped(**LAYOUT, micro_batch_size=2), None),
        (dumped(**LAYOUT, micro_batch_size=3), (Code.ARGUMENTS_VS_ARGUMENTS, "doubt", (), "a batch of 96 is no multiple with micro_batch_size 3")),
        (dumped(seq_length=2048, max_position_embeddings=2000),
         (Code.ARGUMENTS_VS_ARGUMENTS, "doubt", (), "2048 tokens do not fit with seq_length 2048, max_position_embeddings 2000")),
        (lines_of(400, elapsed=lambda i: 0 if i == 30 else 5 + 0.001 * (i * 7 % 11)), (Code.MISSING_LINES, "remark", (31,), "1 of 400 lines")),
    ],
)  # fmt: skip
def test_each_contradiction_at_its_border(
    lines: list[str], found: tuple[Code, str, tuple[int, ...], str] | None, tmp_path: Path
) -> None:
    (tmp_path / "job.out").write_text("".join(lines))
    (entry,) = measure_log(str(tmp_path / "job.out"), Overrides(sequence_length=2048, num_gpus=384))
    if found is None:
        assert entry.contradictions == ()
        return
    code, weight, numbers, words = found
    (said,) = entry.contradictions
    assert (said.code, said.weight.value, said.lines) == (code, weight, numbers)
    assert words in said.text
    assert entry.has_number is (weight != "void")
