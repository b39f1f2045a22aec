"""docs/scaling.md shows what the program prints. After a change: NLP_BENCH_WRITE_DOCS=1 pytest tests/scaling/test_docs.py."""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support.series import write_series_run
from support.winners_study import CASES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/scaling.md"
BLOCK = re.compile(r"(?<=^```console\n)(\$ [^\n]*\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


def test_the_page_shows_what_is_printed(
    report: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reports").symlink_to(ROOT / "reports")
    for number in range(18):
        tp, pp, repeat = 2 ** (number // 6), 1 + number // 3 % 2, number % 3
        folder = tmp_path / f"runs/tp{tp}_pp{pp}_{repeat}"
        if tp == pp == 1:
            said = ("CUDA out of memory on rank 3",)
            write_series_run(folder, nodes=2, tp=tp, pp=pp, outcome="OUT_OF_MEMORY", reasons=said)
        else:
            mean_s = {1: 1.3, 2: 1.0, 4: 1.1}[tp] + 0.002 * repeat
            write_series_run(folder, nodes=2, tp=tp, pp=pp, mean_s=mean_s, seed=number)
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")

    def printed(block: re.Match[str]) -> str:
        return block[1] + report(*shlex.split(block[1])[3:])[1]

    now = BLOCK.sub(printed, text)
    if os.environ.get("NLP_BENCH_WRITE_DOCS"):
        PAGE.write_text(now, encoding="utf-8")
    assert len(BLOCK.findall(text)) == 3
    assert text == now, "docs/scaling.md is not up to date: NLP_BENCH_WRITE_DOCS=1 pytest tests/scaling/test_docs.py"


def test_every_case_of_the_study_is_in_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| {words} | {configurations} |" in text for words, configurations, *_ in CASES)
