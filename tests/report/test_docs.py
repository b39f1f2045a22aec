"""The pages of docs/ show what the program prints. After a change: NLP_BENCH_WRITE_DOCS=1 pytest tests/report/test_docs.py."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fixtures import tomllib

from nlp_bench.logs import reader
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.report.dialects import DIALECT_FORMATS

ROOT = Path(__file__).resolve().parents[2]
MARK = "<!-- dialects -->\n"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FILE = re.compile(r"^`(\S+)`:\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ nlp-bench .*$", re.MULTILINE)


def ran(command: str, folder: Path) -> str:
    """Return the command and what it prints, as a terminal shows it."""
    words = shlex.split(command)[2:]
    program = "import sys; from nlp_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1}, done.stderr
    return f"{command}\n{done.stdout.rstrip()}\n"


def as_it_is(text: str, folder: Path) -> str:
    """Return the page with the output of its commands and the dialects of today."""
    for name, content in FILE.findall(text):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.removesuffix("\n") if name == "train.log" else content)
    text = CONSOLE.sub(lambda block: "\n".join(ran(c, folder) for c in COMMAND.findall(block[1])), text)
    if MARK not in text:
        return text
    before, _, after = text.split(MARK)
    return f"{before}{MARK}\n{DIALECT_FORMATS['markdown']()}\n{MARK}{after}"


@pytest.mark.parametrize(("name", "num_commands"), [("logs.md", 3), ("number.md", 1)])
def test_the_page_shows_what_is_printed(tmp_path: Path, name: str, num_commands: int) -> None:
    page = ROOT / "docs" / name
    text = page.read_text(encoding="utf-8")
    now = as_it_is(text, tmp_path)
    if os.environ.get("NLP_BENCH_WRITE_DOCS"):
        page.write_text(now, encoding="utf-8")
    assert len(COMMAND.findall(text)) >= num_commands
    assert text == now, f"docs/{name} is not up to date: NLP_BENCH_WRITE_DOCS=1 pytest tests/report/test_docs.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_what_the_guide_tells_to_write_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs/adding-a-dialect.md").read_text(encoding="utf-8")
    module, fixture = (text.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "toml"))
    written: dict[str, Any] = {}
    exec(module, written)  # noqa: S102  # our own page
    monkeypatch.setattr(reader, "all_dialects", lambda: (*all_dialects(), *written["DIALECTS"]))
    monkeypatch.setattr(
        reader, "_first_search", reader._first_search.__wrapped__
    )  # which remembers those that are there
    asked = tomllib.loads(fixture)
    (tmp_path / "acme.log").write_text(asked["log"])
    for case in asked["case"]:
        (entry,) = measure_log(str(tmp_path / "acme.log"), Overrides(**case.get("options", {})))
        assert (entry.dialect, entry.outcome.value) == ("acme", case["outcome"]), entry.reasons
        assert all(word in " ".join(entry.reasons) for word in case.get("says", ()))
        for name in {"steady", "num_records", "num_gpus"} & set(case):
            assert getattr(entry, name) == pytest.approx(case[name], rel=1e-3)
