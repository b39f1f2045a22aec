"""`nlp-bench report report.json`: what to give in place of a record of our own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nlp_bench.cli.main import main

Make = Callable[..., Path]


def test_a_record_names_what_it_was_made_from(
    log: Path, make_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("a run"))
    main(["measure", "a run"])
    Path("two words.log").write_bytes(log.read_bytes())
    capsys.readouterr()
    main(["report", "two words.log", "a run", "--sequence-length", "2048", "--format", "json"])
    Path("report.json").write_text(capsys.readouterr().out)
    Path("report.html").write_text("the page")
    Path("other.json").write_text('{"by": "nlp-bench/report/1"}')  # somebody else's: read as a log
    assert main(["report", "report.json", "a run/result.json", "other.json", "--format", "csv"]) == 1
    ours, result, other = capsys.readouterr().out.splitlines()[1:]
    assert ours.startswith("report.json,,REFUSED,")
    assert "(nlp-bench/report/1)" in ours
    assert "nlp-bench report 'two words.log' 'a run'; its table is in report.html" in ours
    assert "(nlp-bench/result/1)" in result
    assert "nlp-bench report 'a run'" in result
    assert "no whole training line" in other


@pytest.mark.parametrize("form", ["table", "html"])
def test_a_report_that_quotes_lines_is_no_log(
    log: Path, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log.rename("a.log")
    words = ["--sequence-length", "2048"]
    assert main(["report", "a.log", *words, "--explain", "--format", form]) == 0
    Path("explained.txt").write_text(capsys.readouterr().out)
    assert main(["report", ".", *words, "--format", "csv"]) == 0
    found = capsys.readouterr()
    assert [line.split(",")[0] for line in found.out.splitlines()] == ["source", "a.log"]
    assert "1 file(s) hold no training line: explained.txt" in found.err
    assert main(["report", "explained.txt", *words, "--format", "csv"]) == 1
    assert "explained.txt,,REFUSED," in (text := capsys.readouterr().out)
    assert "a report of nlp-bench, which quotes lines of the logs" in text
