"""docs/planning.md shows what is printed. After a change: NLP_BENCH_WRITE_DOCS=1 pytest tests/plan/test_docs.py."""

import os
import re
import shlex
from pathlib import Path

import pytest

from nlp_bench.cli.main import main

PAGE = Path(__file__).resolve().parents[2] / "docs/planning.md"
BLOCK = re.compile(r"(?<=^```console\n)\$ nlp-bench (plan [^\n]*)\n(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


def test_the_page_shows_what_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")

    def printed(block: re.Match[str]) -> str:
        if "--learn" in block[1]:  # runs of a machine, which the tests do not have
            return block[0]
        main(shlex.split(block[1]))
        said = capsys.readouterr()
        return f"$ nlp-bench {block[1]}\n{said.out or said.err}"

    now = BLOCK.sub(printed, text)
    if os.environ.get("NLP_BENCH_WRITE_DOCS"):
        PAGE.write_text(now, encoding="utf-8")
    assert len(BLOCK.findall(text)) == 8
    assert text == now, "docs/planning.md is not up to date: NLP_BENCH_WRITE_DOCS=1 pytest tests/plan/test_docs.py"
