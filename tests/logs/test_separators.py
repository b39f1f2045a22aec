"""Numbers with separators: read by the evidence of their line and log, in every convention, and said."""

from pathlib import Path

import numpy as np
import pytest
from support import megatron_log

from nlp_bench.logs.reader import read_log
from nlp_bench.logs.separators import plain_numbers
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome

NBSP, NARROW, THIN = "\u00a0", "\u202f", "\u2009"
# Thousands, decimals: what Python's {:,} and locales of C write.
CONVENTIONS = {
    "English": (",", "."),
    "German": (".", ","),
    "Swiss": ("'", "."),
    "Swiss, typographic": ("\u2019", "."),
    "French": (NARROW, ","),
    "Norwegian": (NBSP, ","),
    "ISO 31-0": (THIN, "."),
    "blanks": (" ", "."),
    "blanks and commas": (" ", ","),
    "Python's underscore": ("_", "."),
}


def line(i: int, ms: str, **other: str) -> str:
    usual = {"samples": 8 * i, "lr": 4.438e-7, "batch": 8, "loss": 10.10967, "skipped": 0, "nan": 0}
    return megatron_log.line(i, 500, "[default3]: ", ms=ms, **usual | other)


def written(value: float, convention: str, digits: int = 1) -> str:
    thousands, decimal = CONVENTIONS[convention]
    return f"{value:,.{digits}f}".translate({ord(","): thousands, ord("."): decimal})


def times_ms(count: int = 60) -> list[float]:
    """On both sides of a second, so that only some of the lines have a separator between thousands."""
    return [940.0 + 20 * (i % 9) for i in range(count)]


def write(path: Path, convention: str, *, is_everywhere: bool, encoding: str = "utf-8") -> list[float]:
    decimal = CONVENTIONS[convention][1] if is_everywhere else "."
    with path.open("w", encoding=encoding) as stream:
        for i, ms in enumerate(times_ms(), 1):
            samples = written(8 * i, convention, 0) if is_everywhere else str(8 * i)
            loss, rate = (text.replace(".", decimal) for text in ("1.010967E+01", "4.438E-07"))
            stream.write(line(i, written(ms, convention), samples=samples, lr=rate, loss=loss))
    return [ms / 1000 for ms in times_ms()]


@pytest.mark.parametrize("is_everywhere", [True, False])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_megatron(tmp_path: Path, convention: str, is_everywhere: bool) -> None:
    path = tmp_path / "log"
    seconds = write(path, convention, is_everywhere=is_everywhere)
    log = read_log(str(path))
    (attempt,) = log.attempts
    assert attempt.records.column("elapsed_s") == pytest.approx(seconds)
    assert attempt.records.column("consumed_samples").tolist() == [8 * i for i in range(1, 61)]
    assert (log.num_torn, log.num_impossible) == (0, 0)
    assert any("is read as 1000.0" in remark or "is read as 940.0" in remark for remark in log.remarks)
    (entry,) = measure_log(str(path), Overrides(sequence_length=128, num_gpus=1))
    assert entry.outcome is not Outcome.REFUSED
    assert entry.reference == pytest.approx(8 * 128 / np.mean(seconds))


def test_no_break_spaces_of_iso_8859_1(tmp_path: Path) -> None:
    path = tmp_path / "log"
    seconds = write(path, "Norwegian", is_everywhere=True, encoding="iso-8859-1")
    assert read_log(str(path)).attempts[0].records.column("elapsed_s") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("template", "name", "factor"),
    [
        ("[rank0]:[titan] 2026-01-01 10:00:00,123 - root - INFO - step: {i}  loss: {loss}  memory: {mem}GiB(52{d}28%)  tps: {v}  mfu: 34{d}29%\n",
         "tokens_per_second_per_device", 1.0),
        ("completed step: {i}, seconds: {v}, TFLOP/s/device: {mem}, Tokens/s/device: 8192, total_weights: 196608, loss: {loss}\n",
         "elapsed_s", 1.0),
        ("Epoch 1 | iter {i} step {i} | loss train: {loss}, val: n/a | iter time: {v} ms (step)\n", "elapsed_s", 1e-3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("convention", ["German", "Swiss", "French"])
def test_other_dialects(tmp_path: Path, template: str, name: str, factor: float, convention: str) -> None:
    decimal = CONVENTIONS[convention][1]
    path = tmp_path / "log"
    with path.open("w") as stream:
        for i, value in enumerate(times_ms(), 1):
            text = template.format(
                i=i, v=written(value, convention, 2), loss=f"7{decimal}4370", mem=f"49{decimal}66", d=decimal
            )
            stream.write(text)
    found = read_log(str(path)).attempts[0].records.column(name)
    assert found[:40] == pytest.approx([value * factor for value in times_ms()][:40])


def test_commas_where_they_are_usual_are_not_worth_a_word(tmp_path: Path) -> None:
    path = tmp_path / "log"
    titan = "[rank0]:[titan] 2026-01-01 10:00:00,123 - root - INFO - step: {}  loss: 7.4370  memory: 49.66GiB(52.28%)  tps: 1,{:03d}  mfu: 34.29%\n"
    path.write_text("".join(titan.format(i, i) for i in range(1, 20)))
    log = read_log(str(path))
    assert log.attempts[0].records.column("tokens_per_second_per_device")[0] == 1001
    assert log.remarks == ()


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("ms: 1,012 | loss: 3.25", "ms: 1012 | loss: 3.25"),  # the other number decides
        ("ms: 1,012 | loss: 3,25", "ms: 1.012 | loss: 3.25"),
        ("ms: 1.012 | loss: 3,25", "ms: 1012 | loss: 3.25"),
        ("ms: 1.500,0 | rate: 4.438E-07", "ms: 1500.0 | rate: 4.438E-07"),
        ("ms: 1,012E+01 | loss: 3", "ms: 1.012E+01 | loss: 3"),
        ("n: 1,234,567", "n: 1234567"),
        ("ms: -1'012.5", "ms: -1012.5"),
        ("ms=1,012.5, loss=3.25", "ms=1012.5, loss=3.25"),
    ],
)
def test_a_number_is_read_by_its_line(text: str, plain: str) -> None:
    found, numbers = plain_numbers(text.encode())
    assert found.decode() == plain
    assert numbers


@pytest.mark.parametrize(
    "text",
    [
        "ms: 1,012", "ms: 1.012", "ms: 1012.5 | loss: 3.25", "2026-01-01 10:00:00,123 loss: 3.25", "CUDA_VISIBLE_DEVICES=0,1,2,3",
        "betas (0.9, 0.95)", "[1,3]<stdout>: loss: 2.5", "step 10,loss 2.5", "1'012.5", "version 1.2.3", "12,34,56.7", "ms: 1,01,2",
        "ms: 7 241.7", "a: 1 | 100 | 200", "10.140.1.110:8476",
    ],
)  # fmt: skip
def test_what_is_no_such_number_stays(text: str) -> None:
    assert plain_numbers(text.encode()) == (text.encode(), [])


def test_a_log_with_decimal_commas_decides_for_its_other_lines() -> None:
    assert plain_numbers(b"ms: 1,012", has_decimal_commas=True)[0] == b"ms: 1.012"
    assert plain_numbers(b"ms: 1.012", has_decimal_commas=True)[0] == b"ms: 1012"
    assert plain_numbers(b"ms: 1,012 | loss: 3.25", has_decimal_commas=True)[0] == b"ms: 1,012 | loss: 3.25"


@pytest.mark.parametrize("unit", ["(ms)", "(s)"])
def test_points_that_nothing_else_explains(tmp_path: Path, unit: str) -> None:
    path = tmp_path / "log"
    times = [written(ms, "German", 0) for ms in times_ms()]
    path.write_text("".join(line(i, ms).replace("(ms)", unit) for i, ms in enumerate(times, 1)))
    (entry,) = measure_log(str(path), Overrides(sequence_length=128, num_gpus=1))
    assert entry.outcome is Outcome.REFUSED
    assert "elapsed time per iteration: 39 of 60 lines" in entry.reason_texts[0]
    assert "line 4)" in entry.reason_texts[0]


@pytest.mark.parametrize(
    "times", [["950", "1.012"] * 2, ["950.5", "1.012"] * 30, ["2", "2000"] * 30, ["1012", "1.5"] * 30, ["987"] * 60]
)
def test_times_that_are_no_such_numbers(tmp_path: Path, times: list[str]) -> None:
    path = tmp_path / "log"
    path.write_text("".join(line(i, ms) for i, ms in enumerate(times, 1)))
    assert read_log(str(path)).refusal is None
