"""Every dialect reads what its format string writes, and says what is missing."""

from pathlib import Path
from typing import Any

import pytest
from support.fixtures import fixtures
from support.texts import entries_of

from nlp_bench.logs.dialects import all_dialects

FIXTURES = fixtures()
CASES = [pytest.param(fixture, case, id=name) for name, fixture in FIXTURES for case in fixture["case"]]


def test_every_dialect_has_a_fixture() -> None:
    assert {d.name for d in all_dialects()} - {fixture["dialect"] for _, fixture in FIXTURES} == set()


@pytest.mark.parametrize(("fixture", "case"), CASES)
def test_fixture(tmp_path: Path, fixture: dict[str, Any], case: dict[str, Any]) -> None:
    entries = entries_of(tmp_path, fixture["log"].lstrip("\n"), **case.get("options", {}))
    entry = max(entries, key=lambda e: (e.has_number, e.num_records or 0))
    assert entry.dialect == fixture["dialect"]
    assert entry.outcome.value == case["outcome"], entry.reason_texts
    for word in case.get("says", ()):
        assert word in " ".join((*entry.reason_texts, *entry.remarks))
    for key in ("num_records", "num_gpus", "global_batch_size", "sequence_length"):
        if key in case:
            assert getattr(entry, key) == case[key], key
    for key in ("steady", "reference"):
        if key in case:
            found = getattr(entry, key)
            assert found is None if case[key] is False else found == pytest.approx(case[key], rel=1e-3), key


def test_every_example_is_read_by_its_dialect(tmp_path: Path) -> None:
    for dialect in all_dialects():
        sizes = {"sequence_length": 128, "global_batch_size": 8, "num_gpus": 8}
        assert entries_of(tmp_path, dialect.example + "\n", **sizes)[0].dialect == dialect.name, dialect.name
