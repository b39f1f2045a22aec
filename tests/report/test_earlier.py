"""`nlp-bench report report.json`: what to give in place of a record of our own."""

from pathlib import Path

import pytest
from support.command import Cli
from support.published import write_run


@pytest.mark.usefixtures("here")
def test_a_record_names_what_it_was_made_from(log: Path, cli: Cli) -> None:
    write_run(Path("a run"))
    cli("measure", "a run")
    Path("two words.log").write_bytes(log.read_bytes())
    said = cli("report", "two words.log", "a run", "--sequence-length", "2048", "--format", "json")
    Path("report.json").write_text(said.out)
    Path("report.html").write_text("the page")
    Path("other.json").write_text('{"by": "nlp-bench/report/1"}')  # somebody else's: read as a log
    said = cli("report", "report.json", "a run/result.json", "other.json", "--format", "csv", code=1).out
    ours, result, other = said.splitlines()[1:]
    assert ours.startswith("report.json,,REFUSED,")
    assert "(nlp-bench/report/1)" in ours
    assert "nlp-bench report 'two words.log' 'a run'; its table is in report.html" in ours
    assert "(nlp-bench/result/1)" in result
    assert "nlp-bench report 'a run'" in result
    assert "no whole training line" in other


@pytest.mark.parametrize("name", ["out", "out/report.csv", "out/report.md", "out/report.html", "out/report.json"])
@pytest.mark.usefixtures("here")
def test_the_files_of_a_report_name_what_they_were_made_from(log: Path, name: str, cli: Cli) -> None:
    log.rename("a.log")
    cli("report", "a.log", "--sequence-length", "2048", "--output", "out")
    said = cli("report", name, "--format", "csv", code=1).out.splitlines()
    assert len(said) == 2
    assert ",REFUSED," in said[1]
    assert "nlp-bench report a.log; its table is in out/report.html" in said[1]
    assert "nlp-bench report a.log" in cli("compare", name, "a.log", code=2).err


@pytest.mark.parametrize("name", ["report.csv", "report.md"])
@pytest.mark.usefixtures("here")
def test_a_table_that_was_sent_alone_is_no_log(log: Path, name: str, cli: Cli) -> None:
    log.rename("a.log")
    cli("report", "a.log", "--sequence-length", "2048", "--output", "out")
    Path("out", name).rename(name)
    assert "a report of nlp-bench, which quotes" in cli("report", name, "--format", "csv", code=1).out


@pytest.mark.parametrize("options", ["", "--scaling", "--sweep", "--format html", "--format csv"])
@pytest.mark.usefixtures("here")
def test_a_report_that_quotes_lines_is_no_log(log: Path, options: str, cli: Cli) -> None:
    log.rename("a.log")
    words = ["--sequence-length", "2048"]
    explained = cli("report", "a.log", *words, "--explain", *options.split())
    Path("explained.txt").write_text(explained.err if "csv" in options else explained.out)
    found = cli("report", ".", *words, "--format", "csv")
    assert [line.split(",")[0] for line in found.out.splitlines()] == ["source", "a.log"]
    assert "1 file(s) hold no training line: explained.txt" in found.err
    assert "explained.txt,,REFUSED," in (text := cli("report", "explained.txt", *words, "--format", "csv", code=1).out)
    assert "a report of nlp-bench, which quotes lines of the logs" in text
