"""Which ranks are rehearsed, and whether each fits."""

import pytest

from nlp_bench.errors import UsageError
from nlp_bench.plan.constants import read_constants
from nlp_bench.rehearse.ranks import chosen_ranks
from nlp_bench.rehearse.report import Collective, MemoryHeadroom, Place, RankReport, headroom_of, worst


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


@pytest.mark.parametrize(("share", "word"), [(0.5, "yes"), (1.0, "tight"), (1.2, "no")])
def test_the_answer(share: float, word: str) -> None:
    capacity = 10**12
    assert headroom_of(report(round(share * capacity), 0), capacity, read_constants()).fits == word


def test_without_a_gpu_there_is_no_answer() -> None:
    headroom = headroom_of(report(1, 0), None, read_constants())
    assert (headroom.fits, headroom.needed_bytes) == (None, None)
    assert worst([headroom]) is None


def test_the_worst_rank_decides() -> None:
    headrooms = [MemoryHeadroom(overhead_bytes=0, needed_bytes=0, fits=word) for word in ("yes", "no", "tight")]
    assert worst(headrooms) == "no"
    assert worst(headrooms[:1]) == "yes"
