"""Sentences by a rule: where they end, where they do not, and in what time."""

import pytest

from nlp_bench.data.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He said "No." Then he left.', ['He said "No."', "Then he left."]),
        ("Dr. Who met J. R. Ewing at 3.5 m. It rained.", ["Dr. Who met J. R. Ewing at 3.5 m.", "It rained."]),
        ("See fig. 3, e.g. there. 5 remain.", ["See fig. 3, e.g. there.", "5 remain."]),
        ("what? never mind... said he. (Yes.) Good", ["what? never mind... said he.", "(Yes.)", "Good"]),
        ("A heading\n\nA text over\ntwo lines", ["A heading", "A text over\ntwo lines"]),
        ("\u4f60\u597d\u3002\u518d\u89c1\uff01", ["\u4f60\u597d\u3002", "\u518d\u89c1\uff01"]),
        ("\u00dcber Nacht. \u00c4pfel fielen.", ["\u00dcber Nacht.", "\u00c4pfel fielen."]),
        ("no end", ["no end"]),
        (" \n\n . \n", ["."]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


def test_no_letter_is_lost() -> None:
    text = "A. b. C! \n\n D... e.g. F? (G.) h." * 20
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("row", [".", ". ", "\n", "\n ", '."', "!?\u2026", "A. "])
def test_long_rows_of_marks_take_no_square_of_their_length(row: str) -> None:
    split_sentences(row * 200_000 + "x")  # the square would take hours
