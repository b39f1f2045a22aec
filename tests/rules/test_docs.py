"""The page on rules: its tables name all that there is."""

import dataclasses
from pathlib import Path

from nlp_bench.rules.file import Head
from nlp_bench.rules.rule import CHECKS, Rule

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"


def test_the_tables_name_every_check_and_every_key() -> None:
    text = PAGE.read_text(encoding="utf-8")
    common = {field.name for field in dataclasses.fields(Rule)}
    for name in {*common, *(field.name for field in dataclasses.fields(Head))}:
        assert f"`{name}`" in text, name
    for check, kind in CHECKS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{check}` |"))
        for field in dataclasses.fields(kind):
            assert field.name in common or f"`{field.name}`" in row, (check, field.name)
