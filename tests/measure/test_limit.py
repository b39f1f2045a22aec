"""The verdict on a limit, and the words for it."""

from pathlib import Path

import numpy as np
import pytest
from support.megatron_log import line
from support.published import published_log
from support.simulated import SEQUENCE, Kind, measured

from nlp_bench.cli.main import main
from nlp_bench.measure.limit import FAIL, NOT_PROVEN, PASS, verdict_of
from nlp_bench.measure.result import RunResult
from nlp_bench.outcome import Outcome
from nlp_bench.report.explain import run_lines
from nlp_bench.report.report import Report

TOKENS = 20_000_000


def entry(**kind: object) -> RunResult:
    throughput = measured(Kind(name="one", **kind), np.random.default_rng(2))
    return RunResult(source="job.out", outcome=Outcome.VALID, throughput=throughput)


@pytest.fixture
def five(tmp_path: Path) -> Path:
    """Write the five lines of the published description."""
    path = tmp_path / "five.log"
    path.write_text(published_log())
    return path


def test_the_five_published_lines_prove_nothing_against_560_s(five: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(five), "--sequence-length", str(SEQUENCE), "--limit", "560"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for words in (
        "34063.43 587.14",
        "36361.59",
        "550.03",
        "NOT PROVEN: the run neither keeps nor misses the limit for certain; its time is 1.8 % below the limit of 560 s",
        "At the steady speed of iterations 11 to 50, 20,000,000 tokens take 550.03 s. Not counted: iterations 1-10 (warm-up).",
        "The verdict depends on the window: of 7 usual windows 5 give a time within the limit and 2 one above it",
        "36923.77 541.66 1 within the last line (llm-foundry, Primus)",
        "This is one run",
    ):
        assert words in said


def test_what_has_no_interval_or_no_number_proves_nothing() -> None:
    published = RunResult(source="table", outcome=Outcome.MEASURED, published_tokens_per_second=36055.39)
    failed = RunResult(source="job.out", outcome=Outcome.FAILED)
    short = entry(iterations=2)
    assert "published value" in verdict_of(published, TOKENS, 560).reasons[0]
    assert verdict_of(published, TOKENS, 560).margin == pytest.approx(1 - 554.70 / 560, abs=1e-5)
    assert verdict_of(failed, TOKENS, 560).reasons == ("the run has no number: its outcome is FAILED",)
    assert verdict_of(short, TOKENS, 5600).word == NOT_PROVEN


@pytest.mark.parametrize("text", ["560x", "9:20", "nan", "inf", "0", "-560", "", "20M"])
def test_a_limit_that_is_no_time_is_refused(five: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(five), f"--limit={text}"]) == 2
    assert f"--limit: {text!r} is not a time above 0; write 560s, 10min" in capsys.readouterr().err


def test_one_is_told_in_the_singular(five: Path, capsys: pytest.CaptureFixture[str]) -> None:
    five.write_text("".join(line(i, 9, s=5, batch=96) for i in (1, 2)))
    main(["report", str(five), "--sequence-length", str(SEQUENCE), "--limit", "560"])
    said = capsys.readouterr().out
    assert (
        "At the steady speed of iteration 2, 20,000,000 tokens take 508.63 s. Not counted: iteration 1 (warm-up)."
        in said
    )
    assert "the window has 1 logged interval, 3 are needed" in said


@pytest.mark.parametrize(
    ("limit", "said"),
    [("1e-9", "its time is 5.5e+11 times the limit of 1e-09 s"), ("9.33", "(is that limit in seconds?)")],
)
def test_a_limit_far_from_the_time(five: Path, capsys: pytest.CaptureFixture[str], limit: str, said: str) -> None:
    main(["report", str(five), "--sequence-length", "2048", "--limit", limit])
    assert said in capsys.readouterr().out


def test_a_csv_has_the_margins(five: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(five), "--sequence-length", "2048", "--limit", "560", "--format", "csv"])
    names, row = capsys.readouterr().out.splitlines()
    found = dict(zip(names.split(","), row.split(","), strict=True))
    assert (found["limit"], found["limit_s"]) == (NOT_PROVEN, "560.0")
    assert float(found["limit_margin"]) == pytest.approx(0.0178, abs=1e-4)
    assert float(found["limit_worst_margin"]) < 0


def test_words_without_a_limit_judge_nothing() -> None:
    said = "\n".join(run_lines(entry(), Report(entries=[], tokens=TOKENS)))
    assert "within 1 %: the run is long enough" in said
    assert not any(word in said for word in (PASS, FAIL, NOT_PROVEN, "limit"))
