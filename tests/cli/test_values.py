"""Counts, sizes and times with units, wherever one is taken."""

import argparse

import pytest
from support.command import Cli

from nlp_bench.cli.parser import parser_of
from nlp_bench.config.values import clock, count, duration, percent_below_100, seconds_of, size, time_limit


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20000000", 20_000_000), ("20_000_000", 20_000_000), ("20M", 20_000_000), ("20 M", 20_000_000), ("300B", 300 * 10**9),
        ("300G", 300 * 10**9), ("1.5T", 1_500_000_000_000), ("2k", 2000), ("2Ki", 2048), ("2ki", 2048), ("1.5Ki", 1536),
        ("4Gi", 2**32), ("2e7", 20_000_000), ("0.5k", 500), ("1_000B", 10**12), ("0.3b", 3 * 10**8), ("1000000000B", 10**18),
    ],
)  # fmt: skip
def test_counts(text: str, value: int) -> None:
    assert count(text) == value


@pytest.mark.parametrize(
    "text",
    ["20Mio", "20 million", "20M tokens", "20,000,000", "0", "-1", "1.5", "0.0001k", "", "k", "\uff11", "1e99", "2000000000B", "nan"],
)  # fmt: skip
def test_what_is_no_count_is_said_with_the_forms(text: str, cli: Cli) -> None:
    said = cli("report", "x.log", f"--tokens={text}", code=2).err
    assert f"--tokens: {text!r} is " in said
    assert "write 20000000, 20_000_000, 20M" in said or "is more than" in said


@pytest.mark.parametrize(
    ("text", "values"),
    [("2k", "2000 or 2048"), ("8K", "8000 or 8192"), ("1M", "1000000 or 1048576"), ("1.5k", "1500 or 1536")],
)
@pytest.mark.parametrize("words", ["check --seq-length", "report x.log --sequence-length", "plan --sequence-length"])
def test_a_length_of_2k_is_not_guessed(words: str, text: str, values: str, cli: Cli) -> None:
    assert f"{text!r} may mean {values}; write all digits, or 2Ki for 2048" in cli(*words.split(), text, code=2).err


def test_sizes() -> None:
    assert [size(text) for text in ("2048", "2_048", "2Ki", "999999999")] == [2048, 2048, 2048, 999_999_999]
    for text in ("1000000000", "1.5", "0", "2.5B"):
        with pytest.raises(argparse.ArgumentTypeError):
            size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("560", 560), ("560s", 560), ("560 s", 560), ("10min", 600), ("10m", 600), ("1.5h", 5400), ("1h30min", 5400),
        ("1h 30min", 5400), ("2d", 172_800), ("00:09:20", 560), ("1-00:00:01", 86_401), ("5.6e2", 560), (".5", 0.5),
    ],
)  # fmt: skip
def test_times(text: str, seconds: float) -> None:
    assert duration("s")(text) == seconds


def test_a_number_without_a_unit_has_that_of_the_option() -> None:
    read = (duration("h")("1.5"), duration("h")("90min"), duration("d")("12h"), duration("min")("90s"))
    assert read == (1.5, 1.5, 0.5, 1.5)
    assert duration("s", least=0)("0") == 0


@pytest.mark.parametrize(
    ("text", "limit"),
    [("90min", "01:30:00"), ("2h", "02:00:00"), ("1.5d", "1-12:00:00"), ("1-00:30:00", "1-00:30:00"), ("00:20:00", "00:20:00")],
)  # fmt: skip
def test_time_limits_of_jobs(text: str, limit: str) -> None:
    assert time_limit(text) == limit
    assert clock(round(seconds_of(limit) or 0)) == limit


@pytest.mark.parametrize(
    "text",
    ["90", "90:00", "1:30", "UNLIMITED", "9999d", "1e99h", "inf", "0h", "00:00:00", "0-00:00:00", "0s", "0min", "0d"],
)
def test_a_bare_number_is_no_time_limit_and_zero_is_none_to_slurm(text: str, cli: Cli) -> None:
    """To Slurm it is minutes, to a person often seconds."""
    said = cli("check", "--time", text, code=2).err
    assert f"--time: {text!r} is not a time limit; write HH:MM:SS, D-HH:MM:SS, 90min or 2h" in said
    assert ("90min or 2h above zero, which is no limit to Slurm" in said) is text.startswith("0")


def test_percentages() -> None:
    assert [percent_below_100(text) for text in ("3", "3%", "0.5 %", "1e-1")] == [3, 3, 0.5, 0.1]
    assert parser_of("plan").read(["--margin", "10%"]).margin == parser_of("plan").read(["--margin", "10"]).margin == 10
