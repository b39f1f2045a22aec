"""Damaged and dishonest variations of one honest log: none of them proves its limit."""

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.megatron_log import dump
from support.texts import entry_of

from nlp_bench.measure.limit import PASS, verdict_of

Change = Callable[[str, int], str]  # a training line and its iteration to what is printed
NUMBER, TOKENS = 200, 20_000_000
ARGUMENTS = {
    "world_size": 256, "tensor_model_parallel_size": 8, "pipeline_model_parallel_size": 4, "data_parallel_size": 8,
    "micro_batch_size": 1, "seq_length": 2048,
}  # fmt: skip
BEGUN = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


def lines(slow: Callable[[int], float] = lambda _: 1.0, batch: int = 1024) -> list[str]:
    """Return the training lines of iterations of about 8 s, without a clock or a rate."""
    return [
        f" iteration {i:8d}/{NUMBER:8d} | consumed samples: {batch * i:12d} | elapsed time per iteration (ms): "
        f"{(8000 + 3 * (i * 7 % 11)) * slow(i):.1f} | learning rate: 1.000000E-04 | global batch size: {batch:5d} | "
        f"lm loss: {11 - 0.0213 * i:.6E} | loss scale: 1.0 | grad norm: 1.{i:03d} | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for i in range(1, NUMBER + 1)
    ]


def log(printed: list[str], *, batch: int = 1024, arguments: str = "", start: str = "", end: str = "") -> str:
    return dump(**ARGUMENTS, global_batch_size=batch).rstrip("\n") + f"\n{arguments}{start}{''.join(printed)}{end}"


def passes(tmp_path: Path, text: str, limit_s: float = 77.5) -> bool:
    return verdict_of(entry_of(tmp_path, text), TOKENS, limit_s).word == PASS


def digits(zero: str) -> Change:
    return lambda text, _: re.sub(r"\d", lambda found: chr(ord(zero) + int(found[0])), text)


def put(name: str, value: str) -> Change:
    return lambda text, _: re.sub(rf"({name}: +)[^|]+ \|", rf"\g<1>{value} |", text)


def often(change: Change, where: Callable[[int], bool]) -> str:
    """Return the log whose lines at `where` are changed, and 11 % slower than what can be read of it."""
    slow = lines(lambda i: 1.11 if where(i) else 1.0)
    return log([change(text, i) if where(i) else text for i, text in enumerate(slow, 1)])


def always(change: Change) -> str:
    return log([change(text, i) for i, text in enumerate(lines(), 1)])


def test_the_honest_log_passes(tmp_path: Path) -> None:
    ended = BEGUN + dt.timedelta(seconds=1610)
    start, end = (
        f"[{where}] datetime: {at:%F %T} \n"
        for where, at in (("before the start of training step", BEGUN), ("after training is done", ended))
    )
    honest = (
        f"setting number of microbatches to constant 128\n  train_samples .......................... {1024 * NUMBER}\n"
    )
    assert passes(tmp_path, log(lines(), arguments=honest, start=start, end=end), 80)


UNREADABLE = {
    "Arabic digits": digits("\u0660"),
    "Devanagari digits": digits("\u0966"),
    "full-width digits": digits("\uff10"),
    "Arabic digits, torn": lambda text, i: digits("\u0660")(text, i)[: len(text) * 3 // 4] + "\n",
    "of another form": lambda text, _: text.replace("/", "of"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_lines_that_cannot_be_read_prove_nothing(tmp_path: Path, name: str) -> None:
    assert not passes(tmp_path, often(UNREADABLE[name], lambda i: i % 2 == 1), 79)


def test_points_between_thousands_are_no_times(tmp_path: Path) -> None:
    printed = (f"{990 + i * 7 % 20:,}".replace(",", ".") for i in range(1, NUMBER + 1))
    text = log([put(r"per iteration \(ms\)", ms)(text, 0) for ms, text in zip(printed, lines(), strict=True)])
    assert not entry_of(tmp_path, text).has_number


@pytest.mark.parametrize(
    "change",
    [
        put("global batch size", "1024.0"), put("learning rate", "1,0E-04"), put("number of nan iterations", "zero"),
        put("grad norm", "nan"), put("grad norm", "inf"), put("grad norm", "0.000"), put("grad norm", "-1.000"),
        put("loss scale", "0.0"), put("loss scale", "nan"), put("learning rate", "nan"), put("learning rate", "-1.0E-04"),
        lambda text, _: text.replace("lm loss: ", "lm loss: -"),
        lambda text, i: put("grad norm", "nan")(text, i) if i % 2 else text,
        lambda text, i: put("loss scale", "0.0")(text, i) if i % 9 == 0 else text,
    ],
)  # fmt: skip
def test_values_that_no_training_has_prove_nothing(tmp_path: Path, change: Change) -> None:
    assert not passes(tmp_path, always(change), 80)


@pytest.mark.parametrize(
    "stated",
    [
        "setting number of micro-batches to constant 128\n",
        "setting number of microbatches to constant 128\n",
        f"  train_samples .......................... {1024 * NUMBER}\n",
    ],
)
def test_a_batch_that_something_else_contradicts(tmp_path: Path, stated: str) -> None:
    assert passes(tmp_path, log(lines(batch=1072), batch=1072), 77)
    assert not passes(tmp_path, log(lines(batch=1072), batch=1072, arguments=stated), 77)


def test_the_programs_own_dates_count(tmp_path: Path) -> None:
    """Its times are a tenth too short, and no line has a clock."""
    start = f"[before the start of training step] datetime: {BEGUN:%F %T} \n"
    end = f"[after training is done] datetime: {BEGUN + dt.timedelta(seconds=1605):%F %T} \n"
    short = lines(lambda _: 0.9)
    assert passes(tmp_path, log(short), 72)
    assert not passes(tmp_path, log(short, start=start, end=end), 72)
