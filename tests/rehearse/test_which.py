"""Which ranks are rehearsed."""

import pytest

from nlp_bench.errors import UsageError
from nlp_bench.rehearse.ranks import chosen_ranks


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("0", [0]),
        ("last", [383]),
        ("0,last", [0, 383]),
        ("5-7, 6,0", [0, 5, 6, 7]),
        ("stages", [0, 48, 96, 144, 192, 240, 288, 336]),
        ("fullest", [0, 48, 336]),
    ],
)
def test_words(words: str, ranks: list[int]) -> None:
    assert chosen_ranks(words, num_ranks=384, num_stages=8) == ranks


def test_all_and_a_single_stage() -> None:
    assert chosen_ranks("all", num_ranks=4, num_stages=2) == [0, 1, 2, 3]
    assert chosen_ranks("fullest", num_ranks=4, num_stages=1) == [0]


@pytest.mark.parametrize("words", ["", "x", "-1", "1.5", "0-", "384", "0-384", "7-5", "0,,1", "9" * 5000])
def test_other_words_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match="--ranks"):
        chosen_ranks(words, num_ranks=384, num_stages=8)
