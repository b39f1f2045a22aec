"""The folder that `--output` writes: tables, record, plots; and the data frame."""

import os
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.published import write_run

from nlp_bench.inputs.sources import read_sources
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.rows import MEANING
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.report.formats import frame
from nlp_bench.report.output import FILES, NOTHING, write_report
from nlp_bench.report.plots import PLOTS
from nlp_bench.report.report import Report

pytestmark = pytest.mark.slow

SEQUENCE = ("--sequence-length", 2048)
REPORT_PAGE = Path(__file__).parents[2] / "docs/report.md"


def written(folder: Path) -> dict[str, str]:
    assert {path.name for path in folder.iterdir()} == set(FILES)
    for key in PLOTS:
        assert (folder / f"{key}.png").read_bytes().startswith(b"\x89PNG")
        ET.parse(folder / f"{key}.svg")  # noqa: S314  # our own file
    return {name: (folder / name).read_text() for name in FILES if not name.endswith("png")}


def entry(**more: int) -> RunResult:
    return RunResult(source="x", outcome=Outcome.FAILED, reasons=(Reason("any", "it failed"),), **more)


@pytest.mark.parametrize("entries", [[], [entry()], [entry(), entry(num_records=3)]])
def test_without_a_valid_run_the_files_say_so(tmp_path: Path, entries: list[RunResult]) -> None:
    write_report(Report(entries=entries, tokens=20_000_000), tmp_path)
    texts = written(tmp_path)
    assert "no valid run" in texts["report.md"]
    assert "no valid run" in texts["report.html"]


def test_hostile_names_stay_text(tmp_path: Path, cli: Cli) -> None:
    write_run(tmp_path / "_$x^{$<b>|\U0001f600&")
    cli("report", tmp_path, "--output", tmp_path / "out")
    texts = written(tmp_path / "out")
    assert "<b>|" not in texts["report.html"]
    assert "<b>" not in texts["report.md"].replace("\\<", "")
    lines = [line.replace("\\|", "") for line in texts["report.md"].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1


def test_the_same_report_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    run = write_run(tmp_path / "run")
    for name, date in (("one", "0"), ("two", "yesterday")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", date)
        cli("report", run, "--output", tmp_path / name)
        assert os.environ["SOURCE_DATE_EPOCH"] == date
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_files_of_an_earlier_call_that_stay_are_named(log: Path, tmp_path: Path, cli: Cli) -> None:
    words = ["report", log, *SEQUENCE, "--output", tmp_path / "out"]
    assert "earlier call" not in cli(*words, "--format", "records-csv").err
    said = f"of an earlier call, and not of these logs perhaps, are in {tmp_path}/out: records.csv\n"
    assert said in cli(*words).err


def test_without_matplotlib_all_but_the_plots_is_written_and_what_brings_them_is_said_once(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "out"
    said = cli("report", log, *SEQUENCE, "--scaling", "--output", out).err
    assert said.count("no plots: they need matplotlib") == 1
    reports = {f"report.{kind}" for kind in ("csv", "md", "html", "json")}
    assert {path.name for path in out.iterdir()} == {*reports, *(f"scaling.{kind}" for kind in ("csv", "md", "json"))}
    assert "![" not in (out / "report.md").read_text()
    page = (out / "report.html").read_text()
    assert page.count("There are no plots: they need matplotlib, which is not installed here: pip install") == 1
    assert "Plots<" not in page
    assert "<img" not in page


def test_pandas_reads_the_csv_as_it_was_meant(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    write_run(tmp_path / 'runs/a, "quoted"')
    write_run(tmp_path / "runs/007", "TIMEOUT", reasons=["the limit of 00:45:00 was reached"])
    found = read_sources([str(tmp_path / "runs")], Overrides())
    report = Report(entries=found.entries, tokens=20_000_000, limit_s=560.0)
    write_report(report, tmp_path)
    text = (tmp_path / "report.csv").read_text(encoding="utf-8")
    assert text.splitlines()[0] == ",".join(report.fields)
    assert "\r" not in text
    whole = frame(report)
    read = pandas.read_csv(tmp_path / "report.csv", dtype=whole.dtypes.to_dict())
    pandas.testing.assert_frame_equal(read, whole)
    assert str(whole.dtypes["num_gpus"]) == "Int64"
    assert str(whole.dtypes["tokens_per_second_steady"]) == "Float64"
    assert list(whole["tokens_per_second_steady"].isna()) == [True, False]


def test_plots_are_where_the_names_say(log: Path, tmp_path: Path, cli: Cli) -> None:
    cli("report", log, *SEQUENCE, "--sweep", "--output", tmp_path)
    assert " ".join(re.findall(r">([^<>\n]+)</text>", (tmp_path / "sweep.svg").read_text())) == NOTHING["sweep"]
    for key in PLOTS:
        text = (tmp_path / f"{key}.svg").read_text(encoding="utf-8")
        assert text.count("<path") > 3, f"{key}.svg is empty"
        assert (tmp_path / f"{key}.png").stat().st_size > 10_000


def test_a_name_is_drawn_in_the_scripts_that_the_font_has(log: Path, tmp_path: Path, cli: Cli) -> None:
    named = log.with_name("Läufe-прогон-λ-測.log")
    named.write_bytes(log.read_bytes())
    cli("report", log, named, *SEQUENCE, "--output", tmp_path / "out")
    assert "Läufe-прогон-λ-?.log" in (tmp_path / "out" / "throughput.svg").read_text(encoding="utf-8")


def listed(mark: str) -> dict[str, str]:
    """Return the rows of a table of docs/report.md: name to meaning."""
    _, rows, _ = REPORT_PAGE.read_text(encoding="utf-8").split(f"<!-- {mark} -->\n")
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", rows, re.MULTILINE))


def test_the_documentation_explains_every_file_and_column() -> None:
    assert list(listed("files")) == list(FILES)
    assert list(listed("columns")) == list(Report(entries=[], tokens=1, limit_s=1.0).fields)
    plain = {name: text.replace("\\", "") for name, text in listed("records").items()}
    assert plain == MEANING


def test_the_lines_for_pandas_work(log: Path, here: Path, cli: Cli) -> None:
    pytest.importorskip("pandas")
    (lines,) = re.findall(r"```python\n(.*?)```", REPORT_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    cli("report", log, *SEQUENCE, "--output", here)
    found: dict[str, Any] = {}
    exec(lines, found)  # noqa: S102  # our own page
    assert len(found["runs"]) == 1
