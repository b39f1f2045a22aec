"""The folder that `--output` writes: tables, record, plots."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from nlp_bench.cli.main import main
from nlp_bench.measure.entry import RunEntry
from nlp_bench.outcome import Outcome
from nlp_bench.report import output
from nlp_bench.report.output import write_report
from nlp_bench.report.table import Report

Make = Callable[..., Path]
FILES = {"report.csv", "report.md", "report.html", "report.json", "throughput.png", "throughput.svg"}


def written(folder: Path) -> dict[str, str]:
    assert {path.name for path in folder.iterdir()} == FILES
    assert (folder / "throughput.png").read_bytes().startswith(b"\x89PNG")
    ET.parse(folder / "throughput.svg")  # noqa: S314  # our own file
    return {name: (folder / name).read_text() for name in FILES if not name.endswith("png")}


def test_one_good_and_one_failed_run(make_run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "runs/a_good")
    make_run(tmp_path / "runs/b_bad", "TIMEOUT", reasons=["the limit of 00:45:00 was reached"])
    assert main(["report", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]) == 1
    assert "wrote" in capsys.readouterr().err
    texts = written(tmp_path / "out")
    assert "34063.43" in texts["report.md"]
    assert "34063.43" in texts["report.html"]
    assert "TIMEOUT" in texts["report.csv"]
    assert len(json.loads(texts["report.json"])["runs"]) == 2
    assert "no valid run" not in texts["report.html"]


def entry(**more: int) -> RunEntry:
    return RunEntry(source="x", outcome=Outcome.FAILED, reasons=("it failed",), **more)


@pytest.mark.parametrize("entries", [[], [entry()], [entry(), entry(num_records=3)]])
def test_without_a_valid_run_the_files_say_so(tmp_path: Path, entries: list[RunEntry]) -> None:
    write_report(Report(entries=entries, tokens=20_000_000), tmp_path)
    texts = written(tmp_path)
    assert "no valid run" in texts["report.md"]
    assert "no valid run" in texts["report.html"]


def test_published_values_alone(tmp_path: Path) -> None:
    published = RunEntry(source="table", outcome=Outcome.VALID, published_tokens_per_second=36055.39)
    write_report(Report(entries=[published], tokens=20_000_000), tmp_path)
    texts = written(tmp_path)
    assert "554.70" in texts["report.md"]
    assert "no valid run" not in texts["report.md"]


def test_hostile_names_stay_text(make_run: Make, tmp_path: Path) -> None:
    make_run(tmp_path / "_$x^{$<b>|\U0001f600&")
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "out")]) == 0
    texts = written(tmp_path / "out")
    assert "<b>" not in texts["report.html"]
    assert "<b>" not in texts["report.md"].replace("\\<", "")
    lines = [line.replace("\\|", "") for line in texts["report.md"].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1


def test_the_same_report_gives_the_same_bytes(make_run: Make, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for name in ("one", "two"):
        assert main(["report", str(run), "--output", str(tmp_path / name)]) == 0
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_many_runs(make_run: Make, tmp_path: Path) -> None:
    for number in range(14):
        make_run(tmp_path / f"runs/{number:02d}")
    assert main(["report", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]) == 0


def test_without_pandas_the_remedy_is_named(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output.importlib.util, "find_spec", lambda _: None)
    assert main(["report", str(log), "--output", str(tmp_path / "out")]) == 1
    assert "pip install 'nlp-bench[report]'" in capsys.readouterr().err
