"""The pages on logs list what there is, links lead somewhere, and `nlp-bench report --dialects`. After a change: NLP_BENCH_WRITE_DOCS=1 pytest tests/report/test_docs.py."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.fixtures import tomllib
from support.pages import ROOT, check_part

from nlp_bench.logs import reader
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.report.dialects import DIALECT_FORMATS, MAX_EXAMPLE, excerpt

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_page_lists_the_dialects() -> None:
    check_part(ROOT / "docs/logs.md", "dialects", f"\n{DIALECT_FORMATS['markdown']()}\n")


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
    # without its memory of those that are there
    monkeypatch.setattr(reader, "_first_search", reader._first_search.__wrapped__)
    asked = tomllib.loads(fixture)
    (tmp_path / "acme.log").write_text(asked["log"])
    for case in asked["case"]:
        (entry,) = measure_log(str(tmp_path / "acme.log"), Overrides(**case.get("options", {})))
        assert (entry.dialect, entry.outcome.value) == ("acme", case["outcome"]), entry.reason_texts
        assert all(word in " ".join(entry.reason_texts) for word in case.get("says", ()))
        for name in {"steady", "num_records", "num_gpus"} & set(case):
            assert getattr(entry, name) == pytest.approx(case[name], rel=1e-3)


def test_the_table_has_every_dialect(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ("80", "120", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        out = cli("report", "--dialects").out
        assert {d.name for d in all_dialects()} <= {line.split(" ")[0] for line in out.splitlines()}
        assert max(map(len, out.splitlines())) <= min(int(columns), 160)
        assert out.endswith(f"\n{len(all_dialects())} dialects\n")


def test_the_data_has_the_whole_example(cli: Cli) -> None:
    record = cli("report", "--dialects", "--format", "json").json
    assert record["schema"] == "nlp-bench/dialects/1"
    assert [d["name"] for d in record["dialects"]] == sorted(d.name for d in all_dialects())
    assert {d["example"] for d in record["dialects"]} == {d.example for d in all_dialects()}
    assert all(set(d) == {"name", "programs", "example", "trap", "source"} for d in record["dialects"])


@pytest.mark.parametrize(
    ("example", "text"),
    [("a\n\x1b[36m b\tc ", "a [36m b c"), ("word " * 100, "word " * 31 + "..."), ("x" * 500, " ...")],
)
def test_examples_are_cut_between_words(example: str, text: str) -> None:
    assert excerpt(example) == text
    assert len(excerpt(example)) <= MAX_EXAMPLE
