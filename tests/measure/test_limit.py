"""The verdict on a limit, and the words for it."""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.command import Cli
from support.megatron_log import line
from support.simulated import SEQUENCE, Kind, measured

from nlp_bench.measure.contradiction import SlowerStatement
from nlp_bench.measure.limit import FAIL, NOT_PROVEN, PASS, VERDICTS, verdict_of
from nlp_bench.measure.result import RunResult
from nlp_bench.outcome import Outcome
from nlp_bench.report.explain import run_lines
from nlp_bench.report.report import Report

TOKENS = 20_000_000
LENGTH = ("--sequence-length", SEQUENCE)


def entry(**kind: object) -> RunResult:
    throughput = measured(Kind(name="one", **kind), np.random.default_rng(2))
    return RunResult(source="job.out", outcome=Outcome.VALID, throughput=throughput)


def test_what_has_no_interval_or_no_number_proves_nothing() -> None:
    published = RunResult(source="table", outcome=Outcome.MEASURED, published_tokens_per_second=36055.39)
    failed = RunResult(source="job.out", outcome=Outcome.FAILED)
    short = entry(iterations=2)
    assert "published value" in verdict_of(published, TOKENS, 560).reasons[0]
    assert verdict_of(published, TOKENS, 560).margin == pytest.approx(1 - 554.70 / 560, abs=1e-5)
    assert verdict_of(failed, TOKENS, 560).reasons == ("the run has no number: its outcome is FAILED",)
    assert verdict_of(short, TOKENS, 5600).word == NOT_PROVEN


def test_a_new_word_that_keeps_a_limit_is_held_to_what_a_pass_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sustained time passed by any other word than PASS, whatever the log's clock said."""
    monkeypatch.setitem(VERDICTS, "NARROW", VERDICTS[PASS])
    for word in (PASS, "NARROW"):
        monkeypatch.setattr(sys.modules[verdict_of.__module__], "word_of", lambda *_, word=word: word)
        plain = entry()
        assert verdict_of(plain, TOKENS, 1e4).sustained == word
        clock = SlowerStatement(source="its clock", slower=1e6)
        assert verdict_of(replace(plain, slower_statements=(clock,)), TOKENS, 1e4).sustained == NOT_PROVEN


@pytest.mark.parametrize("text", ["560x", "9:20", "nan", "inf", "0", "-560", "", "20M"])
def test_a_limit_that_is_no_time_is_refused(log: Path, text: str, report: Cli) -> None:
    said = report(log, f"--limit={text}", code=2).err
    assert f"--limit: {text!r} is not a time above 0; write 560s, 10min" in said


def test_one_is_told_in_the_singular(log: Path, report: Cli) -> None:
    log.write_text("".join(line(i, 9, s=5, batch=96) for i in (1, 2)))
    said = report(log, *LENGTH, "--limit", 560, "--explain").out
    steady = "At the steady speed of iteration 2, 20,000,000 tokens take 508.63 s. Not counted: iteration 1 (warm-up)."
    assert steady in said
    assert "the window has 1 logged interval, 3 are needed" in said


@pytest.mark.parametrize(
    ("limit", "said"),
    [("1e-9", "the limit of 1e-09 s, 5.5e+11 times above it"), ("9.33", "(is that limit in seconds?)")],
)
def test_a_limit_far_from_the_time(log: Path, report: Cli, limit: str, said: str) -> None:
    assert said in report(log, *LENGTH, "--limit", limit).flat


def test_no_time_keeps_a_limit_that_is_not_in_seconds(log: Path, report: Cli) -> None:
    said = report(log, *LENGTH, "--limit", "1e9", "--format", "json").json["runs"][0]["verdict"]
    assert (said["verdict"], said["sustained"]) == (NOT_PROVEN, NOT_PROVEN)


def test_a_csv_has_the_margins(log: Path, report: Cli) -> None:
    (found,) = csv.DictReader(report(log, *LENGTH, "--limit", 560, "--format", "csv").out.splitlines())
    assert (found["limit"], found["limit_s"]) == (NOT_PROVEN, "560.0")
    assert float(found["limit_margin"]) == pytest.approx(0.0178, abs=1e-4)
    assert float(found["limit_worst_margin"]) < 0


def test_words_without_a_limit_judge_nothing() -> None:
    said = "\n".join(run_lines(entry(), Report(entries=[], tokens=TOKENS)))
    assert "within 1 %: the run is long enough" in said
    assert not any(word in said for word in (PASS, FAIL, NOT_PROVEN, "limit"))
