"""What a GPU needs beyond tensors, the three-way answer, and the constants' file."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from support.framework_runs import constants, run

from nlp_bench.config.catalog import root
from nlp_bench.config.table import read_toml
from nlp_bench.errors import UsageError
from nlp_bench.plan.constants import FITTED, memory_constants
from nlp_bench.plan.forecast import peak_memory
from nlp_bench.plan.memory.fits import Memory, num_communicators, overhead_bytes
from nlp_bench.plan.memory.published import published_memory

K = constants()
TABLE = read_toml(root() / "benchmark" / "plan.toml", "nlp-bench/plan/1")["memory"]


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({}, 0),
        ({"num_gpus": 2, "data": 2}, 2),
        ({"num_gpus": 2, "tensor": 2}, 2),
        ({"num_gpus": 2, "pipeline": 2}, 3),
        ({"num_gpus": 2, "context": 2}, 3),
        ({"num_gpus": 64, "tensor": 4, "pipeline": 4, "context": 2, "data": 2}, 6),
    ],
)
def test_communicators_are_those_of_groups_with_more_than_one_rank(changes: dict[str, Any], number: int) -> None:
    assert num_communicators(run(**changes))[0] == number


def test_one_gpu_needs_its_context_and_what_the_allocator_rounds() -> None:
    assert overhead_bytes(run(), K)[0] == K.memory.context_bytes
    assert overhead_bytes(run(), K, 1e10)[0] == K.memory.context_bytes + K.memory.allocator_share * 1e10


def test_communicators_do_not_grow_with_the_ranks() -> None:
    few, many = (overhead_bytes(run(num_gpus=n, data=n, tensor=1), K)[0] for n in (16, 4096))
    assert few == many


def test_three_answers() -> None:
    answer = Memory(
        total=np.array([70.0, 75.0, 76.0, 105.0, 106.0]),
        parts={},
        capacity=np.array(100.0),
        fits_below=0.75,
        fails_above=1.05,
    )
    words = np.select([answer.fits, answer.tight], ["yes", "tight"], "no")
    assert words.tolist() == ["yes", "yes", "tight", "tight", "no"]


def test_other_frameworks_need_more_room_than_the_trainer_whose_tensors_are_counted() -> None:
    found = published_memory(run(), K)
    assert found.fits_below == K.memory.published_fits_below < K.memory.fits_below < 1 < found.fails_above


def test_every_constant_has_a_source() -> None:
    assert all(len(entry["source"]) > 10 for entry in TABLE.values())
    assert set(asdict(memory_constants(TABLE))) == set(TABLE)
    assert set(FITTED) < set(TABLE)


@pytest.mark.parametrize(
    ("name", "entry", "words"),
    [
        ("context_bytes", None, "needs context_bytes"),
        ("context_bytes", 5e8, "needs context_bytes"),
        ("context_bytes", {"value": 5e8}, "source"),
        ("context_bytes", {"value": "5e8", "source": "a page"}, "'5e8' is not a number"),
        ("context_bytes", {"value": True, "source": "a page"}, "True is not a number"),
        ("context_bytes", {"value": -1, "source": "a page"}, "-1 is not a number"),
        ("context_bytes", {"value": float("nan"), "source": "a page"}, "nan is not a number"),
        ("context_bytes", {"value": float("inf"), "source": "a page"}, "inf is not a number"),
        ("contxt_bytes", {"value": 1, "source": "a page"}, "no constant 'contxt_bytes'"),
    ],
)
def test_a_bad_table_is_named(name: str, entry: object, words: str) -> None:
    with pytest.raises(UsageError, match=r"my\.toml: \[memory\]") as raised:
        memory_constants({**TABLE, name: entry}, "my.toml")
    assert words in str(raised.value)


def test_rows_of_the_trainer_and_of_other_frameworks_side_by_side() -> None:
    ours, theirs = run("nlp-bench"), run("Megatron-DeepSpeed")
    mixed = replace(run(tensor=[1, 1]), framework=np.array([ours.framework[0], theirs.framework[0]]))
    found, alone = peak_memory(mixed, K), [peak_memory(one, K) for one in (ours, theirs)]
    assert found.total.tolist() == [float(np.asarray(one.total).reshape(-1)[0]) for one in alone]
    assert found.published.tolist() == [float(np.asarray(one.published).reshape(-1)[0]) for one in alone]
    assert np.allclose(sum(found.parts.values()), found.total)
    assert found.fits.tolist() == [bool(np.all(one.fits)) for one in alone]
