"""NVIDIA's and JUWELS Booster's published tables come out to the printed digit, and where they contradict themselves."""

import csv
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli

from nlp_bench.analysis.scaling import agrees
from nlp_bench.inputs.reference import COLUMNS, is_reference_table, read_reference_table

REFERENCE = Path(__file__).parents[2] / "reports/reference"
BIGNLP = REFERENCE / "bignlp"
SPEED_UPS = {
    "gpt3_5b": ("1", "2", "4.93", "8.71", "9.7", "16.95", "18.51"),
    "gpt3_175b": ("1", "1.84", "6.85"),
    "t5_3b": ("1", "1.95", "3.77", "4.65", "8.64", "14.68"),
    "mt5_3b": ("1", "1.97", "3.8", "4.71", "8.76", "14.3"),
}


def curves_of(report: Cli, *words: object) -> list[dict[str, Any]]:
    record = report(*words, "--scaling", "--format", "json", code=0).json
    assert record["schema"] == "nlp-bench/scaling/1"
    return list(record["curves"])


def notes_of(curves: list[dict[str, Any]]) -> str:
    return "\n".join(note for curve in curves for note in curve["notes"])


@pytest.mark.parametrize(("name", "printed"), SPEED_UPS.items())
def test_every_speed_up_is_the_printed_one(report: Cli, name: str, printed: tuple[str, ...]) -> None:
    (curve,) = curves_of(report, BIGNLP / f"{name}.csv")
    for point, digits in zip(curve["points"], printed, strict=True):
        decimals = len(digits.partition(".")[2])
        assert f"{point['speed_up']:.{decimals}f}" == digits
        assert point["published_speed_up"] == float(digits)
        assert point["efficiency"] == pytest.approx(
            point["speed_up"] * curve["points"][0]["num_gpus"] / point["num_gpus"]
        )
    out = report(BIGNLP / f"{name}.csv", "--scaling").out
    assert all(f" {digits}x " in out for digits in printed)


def test_perfect_linear_rates_are_the_printed_ones(report: Cli) -> None:
    (curve,) = curves_of(report, BIGNLP / "gpt3_5b.csv")
    linear = [39543, 79086, 197715, 355887, 395430, 711774, 790860]
    assert [point["perfect_linear_tokens_per_second"] for point in curve["points"]] == linear
    (curve,) = curves_of(report, BIGNLP / "gpt3_175b.csv")
    # The publication multiplied an unrounded rate: 20642.5 x 8.
    assert [point["perfect_linear_tokens_per_second"] for point in curve["points"]] == [20642, 41284, 165136]
    assert [point["published_perfect_linear_tokens_per_second"] for point in curve["points"]] == [20642, 41285, 165140]
    assert "perfect linear" not in notes_of([curve])


def test_a_perfect_linear_rate_beyond_the_rounding_is_a_contradiction(report: Cli, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text((BIGNLP / "gpt3_175b.csv").read_text().replace("165140", "165150"))
    assert "published perfect linear rate 165150, recomputed 165136" in notes_of(curves_of(report, tmp_path / "t.csv"))


def test_the_text_of_the_publication_is_held_against_its_rates(report: Cli) -> None:
    curves = curves_of(report, BIGNLP)
    notes = notes_of(curves)
    assert "says 16.38x, its rates give 14.68x (BigNLP-Scripts README section 7.2.2)" in notes
    assert "says 14.87x, its rates give 14.30x (BigNLP-Scripts README section 7.3.2)" in notes
    assert "the table of the publication says" not in notes
    assert notes.count("x, its rates give") == 2
    assert "the text says 6.5 days, 300,000,000,000 tokens at the published rate take 4.78" in notes
    assert "table and text say 11 days" in notes
    assert notes.count(" days would be ") == 5  # T5 220M's 4 days are right


def test_days_of_training(report: Cli) -> None:
    points = [point for curve in curves_of(report, BIGNLP / "time_to_train.csv") for point in curve["points"]]
    assert [round(point["train_days"], 2) for point in points] == [4.78, 3.54, 8.30, 2.81, 3.09, 12.70]
    assert agrees(points[0]["train_days"], "4.8")
    out = report(BIGNLP / "time_to_train.csv", "--scaling").out
    assert "300B" in out
    assert "1T" in out


@pytest.mark.parametrize("written", ["300B", "0.3T", "300000M", "300_000_000_000"])
def test_the_tokens_of_a_training_may_be_written_short(report: Cli, written: str) -> None:
    out = report(BIGNLP / "time_to_train.csv", "--scaling", "--tokens", written, "--format", "csv").out
    first = next(csv.DictReader(out.splitlines()))
    assert f"{float(first['time_to_train_days']):.1f}" == "4.8"


@pytest.mark.parametrize("written", ["B", "1.5", "-3B", "1.2345678M", "3 billion", "0B"])
def test_other_ways_to_write_tokens_are_refused(report: Cli, written: str) -> None:
    assert "whole number" in report(BIGNLP, f"--tokens={written}", code=2).err


def test_a_table_of_before_is_still_read(tmp_path: Path, report: Cli) -> None:
    rows = list(csv.reader((REFERENCE / "juwels_booster/results.csv").read_text().splitlines()))
    (tmp_path / "old.csv").write_text("".join(",".join(row[: len(COLUMNS)]) + "\n" for row in rows))
    assert is_reference_table(tmp_path / "old.csv")
    _, curve = curves_of(report, tmp_path / "old.csv")
    assert curve["points"][2]["flags"] == ["one sample"]
    entries = read_reference_table(tmp_path / "old.csv")
    assert [entry.published.log_interval for entry in entries if entry.published] == [None] * 4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("published_speed_up", "published_speedup", "column 'published_speedup'; did you mean published_speed_up?"),
        ("14.68,", "fast,", "line 7: published_speed_up is 'fast', expected a number above 0"),
        (",20,160,", ",20,160.5,", "line 7: num_gpus is '160.5', expected a whole number"),
        ("80GB,110769", "80GB,nan", "line 2: published_perfect_linear_tokens_per_second is 'nan'"),
        (",1,8,", ",1,8,1,", "line 2: it has more cells than the header"),  # a comma in a number
        (",", ";", "line 1: it is not the header of a reference table"),
        ("", "Results of March,,,\r\n,,,\r\n", "line 1: it is not the header of a reference table"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(tmp_path: Path, report: Cli, old: str, new: str, said: str) -> None:
    text = (BIGNLP / "t5_3b.csv").read_text()
    (tmp_path / "t.csv").write_text(text.replace(old, new, -1 if old == "," else 1))
    for words in ([], ["--scaling"]):
        assert said in report(tmp_path / "t.csv", *words, code=2).err


def test_empty_rows_that_a_spreadsheet_left_are_no_results(tmp_path: Path, report: Cli) -> None:
    text = (BIGNLP / "t5_3b.csv").read_text()
    (tmp_path / "t.csv").write_text(text + ",,,,\r\n" * 3)
    assert "REFUSED" not in report(tmp_path / "t.csv", code=0).out


def test_another_baseline_is_not_held_against_the_published_speed_ups(report: Cli) -> None:
    (curve,) = curves_of(report, BIGNLP / "t5_3b.csv", "--baseline-gpus", 16)
    assert curve["points"][1]["flags"] == ["baseline"]
    assert curve["points"][1]["speed_up"] == 1
    assert "its rates give" not in notes_of([curve])


def test_two_published_tables_never_share_a_curve(report: Cli, tmp_path: Path) -> None:
    text = (BIGNLP / "t5_3b.csv").read_text()
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "b.csv").write_text(text)
    assert len(curves_of(report, tmp_path)) == 2


@pytest.mark.parametrize(
    ("computed", "printed", "expected"),
    [
        (1.845, "1.84", True),
        (1.846, "1.84", False),
        (0.96, "1", True),
        (4.78, "4.8", True),
        (4.74, "4.8", False),
        (1.0, "1.10", False),
    ],
)
def test_printed_digits(computed: float, printed: str, expected: bool) -> None:
    assert agrees(computed, printed) is expected
