"""The words of --data-path: what megatron-core understands we understand alike, and a slip is named."""

import warnings

import pytest

from nlp_bench.data.blend import parse_blend
from nlp_bench.errors import UsageError
from nlp_bench.packages import import_megatron


@pytest.mark.parametrize(
    "words",
    [["A"], ["A", "B"], ["A", "B", "C"], ["0.7", "A", "0.3", "B"], ["30", " A ", "70", "A"], ["1e-3", "my data/A"]],
)
def test_it_is_what_megatron_core_reads(words: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_megatron(lambda function: function)  # twice as quick as without it
        from megatron.core.datasets.utils import get_blend_from_list
    blend = parse_blend(words)
    assert (list(blend.prefixes), blend.weights and list(blend.weights)) == get_blend_from_list(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], r"data_path: empty; give --data-path 0.7 A 0.3 B"),
        (["0.5"], r"last word, '0.5', is a weight without a dataset"),
        (["0.7", "A", "B"], r"'B' \(word 3\) stands where a weight must be"),
        (["0.7", "A", "0.3"], r"last word, '0.3', is a weight without a dataset"),
        (["0.7", "A", "B", "0.3"], r"'B' \(word 3\) stands where a weight must be"),
        (["A", "0.7", "B", "0.3"], r"'A' \(word 1\) stands where a weight must be"),
        (["0.7", "A", "0.3", "5"], r"'5' \(word 4\) stands where a prefix \(write ./5 if a dataset has this name\)"),
        (["0", "A", "1", "B"], r"weight 0 of A is not above 0"),
        (["-1", "A"], r"weight -1 of A is not above 0"),
        (["nan", "A"], r"weight nan of A is not above 0"),
        (["inf", "A"], r"weight inf of A is not above 0"),
        (["1", ""], r"an empty prefix"),
        (["A.bin"], r"A.bin names one file of a pair; give the prefix without .bin and .idx: A$"),
    ],
)
def test_a_slip_is_named(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_blend(words)
