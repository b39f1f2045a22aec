"""`nlp-bench report --dialects`."""

import pytest
from support.command import Ask

from nlp_bench.logs.dialects import all_dialects
from nlp_bench.report.dialects import MAX_EXAMPLE, excerpt


def test_the_table_has_every_dialect(told: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ("80", "120", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        out = told("report", "--dialects").out
        assert {d.name for d in all_dialects()} <= {line.split(" ")[0] for line in out.splitlines()}
        assert max(map(len, out.splitlines())) <= min(int(columns), 160)
        assert out.endswith(f"\n{len(all_dialects())} dialects\n")


def test_the_data_has_the_whole_example(told: Ask) -> None:
    record = told("report", "--dialects", "--format", "json").json
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
