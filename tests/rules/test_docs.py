"""The page on rules: its files are read, its output is what is printed, its tables name all that there is."""

import dataclasses
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from nlp_bench.rules.checks import CHECKS
from nlp_bench.rules.file import Head
from nlp_bench.rules.rule import Rule

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"
FILE = re.compile(r"^`(\S+)`:\n\n```(?:text|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ nlp-bench .*$", re.MULTILINE)


def ran(command: str, folder: Path) -> str:
    program = "import sys; from nlp_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", program, *shlex.split(command)[2:]]
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return f"{command}\n{done.stdout.rstrip()}\n"


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, content in FILE.findall(text):
        (tmp_path / name).write_text(content)
    now = CONSOLE.sub(lambda block: "\n".join(ran(c, tmp_path) for c in COMMAND.findall(block[1])), text)
    if os.environ.get("NLP_BENCH_WRITE_DOCS"):
        PAGE.write_text(now, encoding="utf-8")
    assert len(COMMAND.findall(text)) == 2
    assert text == now, "docs/rules.md is not up to date: NLP_BENCH_WRITE_DOCS=1 pytest tests/rules/test_docs.py"


def test_the_tables_name_every_check_and_every_key() -> None:
    text = PAGE.read_text(encoding="utf-8")
    common = {field.name for field in dataclasses.fields(Rule)}
    for name in {*common, *(field.name for field in dataclasses.fields(Head))}:
        assert f"`{name}`" in text, name
    for check, kind in CHECKS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{check}` |"))
        for field in dataclasses.fields(kind):
            assert field.name in common or f"`{field.name}`" in row, (check, field.name)
