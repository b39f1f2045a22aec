"""A line of a log states its time several times: a changed digit contradicts the others."""

import re
from pathlib import Path

import pytest
from support.ours import log_of_ours
from support.published import published_log

from nlp_bench.bundle.crosscheck import CrossCheck, cross_check
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides


def checked(folder: Path, text: str, *, is_ours: bool = True) -> CrossCheck:
    path = folder / "job.out"
    path.write_text(text)
    (entry,) = measure_log(str(path), Overrides(sequence_length=2048))
    return cross_check(path, entry, is_ours=is_ours)


@pytest.mark.parametrize("text", [published_log(), log_of_ours()])
def test_honest_logs_agree_with_themselves(tmp_path: Path, text: str) -> None:
    found = checked(tmp_path, text)
    assert (found.num_lines, list(found.contradictions)) == (5, [])
    assert {"samples per second", "TFLOPs", "consumed samples"} <= set(found.fields)


@pytest.mark.parametrize(
    ("field", "line"),
    [
        (r"elapsed time per iteration \(s\): ", 3),
        ("samples per second: ", 2),
        ("tokens per second: ", 4),
        ("TFLOPs: ", 5),
        ("model TFLOP/s/GPU: ", 4),
        (r"consumed samples: +", 3),
    ],
)
def test_one_changed_digit_of_any_field_is_found(tmp_path: Path, field: str, line: int) -> None:
    lines = log_of_ours().splitlines(keepends=True)
    found = re.search(field + r"(\d)(\d)?", lines[line])
    assert found
    digit = lines[line][found.start(1)]
    other = str((int(digit) + 1) % 10)
    lines[line] = lines[line][: found.start(1)] + other + lines[line][found.end(1) :]
    contradictions = checked(tmp_path, "".join(lines)).contradictions
    assert [c.line for c in contradictions] == [line + 1]
    assert field.strip(": +").replace("\\", "").split(" (")[0] in contradictions[0].why


def test_three_of_four_last_digits_of_a_time_are_found(tmp_path: Path) -> None:
    """A unit in the last place is seen by the rates, which have more digits; only what rounding hides stays."""
    found = 0
    for line in range(1, 6):
        lines = log_of_ours().splitlines(keepends=True)
        lines[line] = re.sub(r"(\(s\): \d\.\d{3})(\d)", lambda m: m[1] + str((int(m[2]) + 1) % 10), lines[line])
        found += [c.line for c in checked(tmp_path, "".join(lines)).contradictions] == [line + 1]
    assert found >= 4


def test_another_definition_is_a_remark_in_a_log_of_others_and_a_fault_in_ours(tmp_path: Path) -> None:
    text = re.sub(
        r"samples per second: (\d+\.\d+)", lambda m: f"samples per second: {2 * float(m[1]):.3f}", published_log()
    )
    others = checked(tmp_path, text, is_ours=False)
    assert not others.contradictions
    assert "samples per second disagrees" in others.remarks[0]
    assert len(checked(tmp_path, text).contradictions) == 5


def test_milliseconds_and_batches_that_grow(tmp_path: Path) -> None:
    line = (
        " iteration {i:8d}/     500 | consumed samples: {c:12d} | elapsed time per iteration (ms): {ms:.1f} | throughput per GPU "
        "(TFLOP/s/GPU): {f:.1f} | global batch size: {g:5d} | lm loss: 1.0E+01 | number of nan iterations:   0 |\n"
    )
    rows = [(10, 640, 64, 4012.3), (20, 1280, 64, 4100.9), (30, 2560, 128, 8033.1), (40, 3840, 128, 8101.7)]
    text = "".join(line.format(i=i, c=c, g=g, ms=ms, f=100 * g / ms * 1000) for i, c, g, ms in rows)
    found = checked(tmp_path, text, is_ours=False)
    assert not found.contradictions
    text = text.replace("4100.9", "4000.9")
    (said,) = checked(tmp_path, text, is_ours=False).contradictions
    assert said.line == 2
    assert "throughput per GPU" in said.why


def test_a_log_that_states_its_time_once_has_nothing_to_hold_against_it(tmp_path: Path) -> None:
    line = " iteration {i:8d}/  500 | elapsed time per iteration (ms): 4000.{i} | global batch size:    64 | lm loss: 1.0E+01 |\n"
    found = checked(tmp_path, "".join(line.format(i=10 * n) for n in range(1, 5)))
    assert found.fields == ()
    assert not found.contradictions
