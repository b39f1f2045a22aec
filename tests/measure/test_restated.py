"""A line of a log states its time several times: a changed digit contradicts the others."""

import re
from pathlib import Path

import pytest
from support.megatron_log import line
from support.ours import log_of_ours
from support.published import published_log, write_run
from support.texts import entry_of

from nlp_bench.measure.contradiction import Code, Contradiction, Weight
from nlp_bench.measure.folder import measure_folder
from nlp_bench.measure.restated import stating


def ours(folder: Path, text: str) -> tuple[Contradiction, ...]:
    write_run(folder)
    (folder / "job.out").write_text(text)
    entry = measure_folder(folder, "run").entry
    assert entry.has_number is not any(found.weight is Weight.VOID for found in entry.contradictions)
    return entry.contradictions


def theirs(folder: Path, text: str) -> tuple[Contradiction, ...]:
    return entry_of(folder, text, sequence_length=2048, num_gpus=8).contradictions


@pytest.mark.parametrize("text", [published_log(total=50), log_of_ours()])
def test_honest_logs_agree_with_themselves(tmp_path: Path, text: str) -> None:
    assert ours(tmp_path / "run", text) == ()
    entry = entry_of(tmp_path, text, sequence_length=2048)
    assert entry.contradictions == ()
    assert {"samples_per_second", "tflops"} <= set(stating(entry.records))


@pytest.mark.parametrize(
    ("field", "place", "word"),
    [
        (r"elapsed time per iteration \(s\): ", 3, "the time per iteration"),
        ("samples per second: ", 2, "samples per second"),
        ("tokens per second: ", 4, "tokens per second"),
        ("TFLOPs: ", 5, "TFLOPs"),
        ("model TFLOP/s/GPU: ", 4, "TFLOP/s per GPU"),
        (r"consumed samples: +", 3, "consumed samples"),
    ],
)
def test_one_changed_digit_of_any_field_is_found(tmp_path: Path, field: str, place: int, word: str) -> None:
    lines = log_of_ours().splitlines(keepends=True)
    found = re.search(field + r"(\d)(\d)?", lines[place])
    other = str((int(found[1]) + 1) % 10)
    lines[place] = lines[place][: found.start(1)] + other + lines[place][found.end(1) :]
    (said, *_) = ours(tmp_path / "run", "".join(lines))
    assert (said.lines, said.weight) == ((place + 1,), Weight.VOID)
    assert word in said.text


def test_three_of_four_last_digits_of_a_time_are_found(tmp_path: Path) -> None:
    """A unit in the last place is seen by the rates, which have more digits; only what rounding hides stays."""
    found = 0
    for place in range(1, 6):
        lines = log_of_ours().splitlines(keepends=True)
        lines[place] = re.sub(r"(\(s\): \d\.\d{3})(\d)", lambda m: m[1] + str((int(m[2]) + 1) % 10), lines[place])
        found += [c.lines for c in ours(tmp_path / str(place), "".join(lines))] == [(place + 1,)]
    assert found >= 4


@pytest.mark.parametrize(("factor", "weight"), [(1.5, Weight.DOUBT), (0.9, Weight.DOUBT), (0.5, Weight.VOID)])
def test_a_rate_that_is_another_throughout(tmp_path: Path, factor: float, weight: Weight) -> None:
    """A rate above what the time gives makes the number too slow, one below makes it too fast."""
    word = "samples per second: "
    text = re.sub(rf"{word}(\d+\.\d+)", lambda m: f"{word}{factor * float(m[1]):.3f}", published_log(total=50))
    (said,) = theirs(tmp_path, text)
    assert (said.code, said.weight, said.lines) == (Code.RATES_VS_TIME, weight, ())
    assert f"are {factor:g} times what its time and sizes give" in said.text
    assert ours(tmp_path / "run", text)[0].weight is Weight.VOID


def test_milliseconds_and_batches_that_grow(tmp_path: Path) -> None:
    rows = [(10, 640, 64, 4012.3), (20, 1280, 64, 4100.9), (30, 2560, 128, 8033.1), (40, 3840, 128, 8101.7)]
    text = "".join(line(i, 500, samples=c, ms=ms, flops=1e5 * g / ms, batch=g, loss=10, nan=0) for i, c, g, ms in rows)
    assert theirs(tmp_path, text) == ()
    (said,) = theirs(tmp_path, text.replace("4100.9", "4000.9"))
    assert (said.code, said.weight, said.lines) == (Code.FLOPS_VS_TIME, Weight.DOUBT, (2,))
    assert "TFLOP/s per GPU" in said.text


def test_a_rate_that_another_clock_took_may_scatter_by_3_percent(tmp_path: Path) -> None:
    for factor, is_doubted in ((1.0, False), (1.02, False), (0.95, True)):
        rates = (factor * (1 + 0.01 * (i % 5 - 2)) * 64e3 / (4000 + i) for i in range(1, 41))
        text = "".join(line(i, 40, ms=4000 + i, batch=64, loss=10 + i / 1000, rate=r) for i, r in enumerate(rates, 1))
        assert bool(theirs(tmp_path, text)) is is_doubted


def test_a_log_that_states_its_time_once_has_nothing_to_hold_against_it(tmp_path: Path) -> None:
    text = "".join(line(10 * n, 500, ms=4000 + n / 10, batch=64, loss=10) for n in range(1, 5))
    entry = entry_of(tmp_path, text, sequence_length=2048, num_gpus=8)
    assert (entry.contradictions, stating(entry.records)) == ((), ())


def test_two_rates_of_a_log_without_times_are_held_against_each_other(tmp_path: Path) -> None:
    pattern = r"step (?P<iteration>\d+) tps (?P<tokens_per_second>\d+) gpu (?P<tokens_per_second_per_device>\d+)"
    for changed in ((), (10, 11, 12, 13)):
        rates = [(8 * (4000 + n % 7) + 4000 * (n in changed), 4000 + n % 7) for n in range(1, 41)]
        text = "".join(f"step {n} tps {whole} gpu {one}\n" for n, (whole, one) in enumerate(rates, 1))
        entry = entry_of(tmp_path, text, num_gpus=8, pattern=(pattern,))
        found = [(found.code, found.lines) for found in entry.contradictions]
        assert found == ([(Code.RATES_VS_TIME, changed)] if changed else [])
