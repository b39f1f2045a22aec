"""The table of faults is whole, every test that it names is there, and the page shows it as it is."""

from faults.table import BEGIN, END, PAGE, exists, page, problems, read_table


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
