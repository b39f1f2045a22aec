"""No text of a record or a log reaches a terminal, a table or a page as it is: it may hold escapes and reordering characters."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.ours import write_our_run

from nlp_bench.cli.main import main

EVIL = "\x1b[31mred\x07\x9b31m\u202eback\u2028"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
KEPT = {"schema", "created", "launcher", "timelimit", "ended"}
"""Fields that are read, so that another word is refused before it is shown."""


def _spoiled(record: dict[str, Any]) -> dict[str, Any]:
    def value(key: str, found: Any) -> Any:
        if isinstance(found, dict):
            return _spoiled(found)
        return f"{found}{EVIL}" if isinstance(found, str) and key not in KEPT else found

    return {key: value(key, found) for key, found in record.items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("run", "run2"):
        path = write_our_run(tmp_path / name) / "run.json"
        path.write_text(json.dumps(_spoiled(json.loads(path.read_text()))))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NLP_BENCH_ROOT", str(tmp_path))
    return tmp_path


COMMANDS = [
    *(f"report run --explain --limit 500 --format {form}" for form in ("table", "csv", "markdown", "html", "records-csv")),
    "report run run2 --scaling", "report run run2 --sweep", "report run run2 --repeats", "report run --rules jupiter-nlp --explain",
    "compare run run2", "compare run run2 --format markdown", "history add run && history trend && history list",
    "bundle run --output e.tar.gz && verify e.tar.gz", "measure run2", "sync run2", "watch run2 --max-hours 0.001",
]  # fmt: skip


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_raw_is_printed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for one in command.split(" && "):
        main(one.split())
    said = capsys.readouterr()
    assert said.out + said.err
    assert RAW.findall(re.sub("\r?\n|\t", "", said.out + said.err)) == []


@pytest.mark.slow
def test_nothing_raw_is_written(folder: Path) -> None:
    main(["report", "run", "run2", "--output", "out"])
    for path in (folder / "out").rglob("*"):
        if path.suffix in {".csv", ".md", ".html", ".svg", ".txt"}:
            assert RAW.findall(re.sub("\r?\n|\t", "", path.read_text(encoding="utf-8"))) == [], path.name
