"""Which ranks are rehearsed, and whether each fits."""

import pytest

from nlp_bench.errors import UsageError
from nlp_bench.plan.constants import read_constants
from nlp_bench.rehearse.ranks import chosen_ranks
from nlp_bench.rehearse.report import Collective, Place, RankReport, headroom_of, worst


@pytest.mark.parametrize(
    ("words", "stages", "ranks"),
    [
        ("0,last", 8, [0, 383]),
        ("5-7, 6,0", 8, [0, 5, 6, 7]),
        ("stages", 8, [0, 48, 96, 144, 192, 240, 288, 336]),
        ("fullest", 8, [0, 48, 336]),
        ("fullest", 1, [0]),
        ("all", 8, list(range(384))),
    ],
)
def test_words(words: str, stages: int, ranks: list[int]) -> None:
    assert chosen_ranks(words, num_ranks=384, num_stages=stages) == ranks


@pytest.mark.parametrize("words", ["", "x", "-1", "1.5", "0-", "384", "0-384", "7-5", "0,,1", "9" * 5000])
def test_other_words_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match="--ranks"):
        chosen_ranks(words, num_ranks=384, num_stages=8)


def report(peak_bytes: int, groups: int) -> RankReport:
    sent = tuple(
        Collective(kind="all_reduce", group=f"group {number}", group_size=1 + number, num_bytes=4, count=1)
        for number in range(groups)
    )
    return RankReport(
        rank=0, place=Place(tensor=0, pipeline=0, data=0, context=0), parameters=1, static_bytes={"weights": peak_bytes},
        peak_bytes=peak_bytes, peak_split={}, activations={}, flops={}, collectives=sent,
    )  # fmt: skip


def test_each_communicator_takes_memory_and_a_group_of_one_rank_none() -> None:
    memory = read_constants().memory
    few, many = (headroom_of(report(0, groups), 10**12, read_constants()) for groups in (1, 3))
    assert few.overhead_bytes == memory.context_bytes
    assert many.overhead_bytes == memory.context_bytes + 2 * memory.communicator_bytes


def test_the_answer_is_the_worst_rank_s_and_there_is_none_without_a_gpu() -> None:
    found = {share: headroom_of(report(share * 10**10, 0), 10**12, read_constants()) for share in (50, 100, 120)}
    assert [one.fits for one in found.values()] == ["yes", "tight", "no"]
    assert (worst([found[50], found[120], found[100]]), worst([found[50]])) == ("no", "yes")
    headroom = headroom_of(report(1, 0), None, read_constants())
    assert (headroom.fits, headroom.needed_bytes, worst([headroom])) == (None, None, None)
