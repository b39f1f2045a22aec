"""The table of faults and the threat model are whole, every test that they name is there, and the page shows the table as it is."""

import re

from faults.table import BEGIN, END, PAGE, exists, page, problems, read_table

THREATS = PAGE.with_name("threat-model.md")
TEST = re.compile("`(tests/[^`]+)`")


def test_every_row_names_tests_that_exist() -> None:
    assert problems(read_table()) == []


def test_a_test_that_is_not_there_is_found() -> None:
    own = "tests/house/test_faults.py::test_a_test_that_is_not_there_is_found"
    assert exists(own)
    assert not exists(own + "_here")
    assert not exists(own + "[no" + " case]")


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert page(read_table(), text) == text, "run: python tests/faults/table.py --write"


def test_the_threat_model_names_tests_that_exist() -> None:
    rows = [
        line for line in THREATS.read_text(encoding="utf-8").splitlines() if line.startswith("|") and "---" not in line
    ][1:]
    assert len(rows) > 20
    missing = [test for row in rows for test in TEST.findall(row) or [row] if not exists(test)]
    assert missing == []
