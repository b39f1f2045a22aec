"""The trainer's memory: many at once are each alone, parts add up, the fullest rank is the greatest, and more is never less."""

from dataclasses import replace

import numpy as np
import pytest
from support.agreement import planned, side_by_side
from support.jobs import Case, sample

from nlp_bench.layout.rules import SHARDING
from nlp_bench.plan.configurations import RECOMPUTE, Configurations
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.forecast import peak_memory
from nlp_bench.plan.memory.trainer import end_memory, rank_memory, sizes_of
from nlp_bench.plan.work.stages import stage_of, telling_stages

CONSTANTS = read_constants()


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return sample(80, 4)


@pytest.fixture(scope="module")
def c(cases: list[Case]) -> Configurations:
    return side_by_side(cases)


def test_many_at_once_are_each_alone(cases: list[Case], c: Configurations) -> None:
    stage = stage_of(c, np.asarray([float(case.stage) for case in cases]))
    alone = [planned(case, CONSTANTS).peak_bytes for case in cases]
    assert np.allclose(sum(rank_memory(c, stage, CONSTANTS).values()), alone, rtol=1e-12)


def test_parts_add_up_and_none_is_negative(c: Configurations) -> None:
    memory = peak_memory(c, CONSTANTS)
    assert np.allclose(sum(memory.parts.values()), memory.total, rtol=1e-12)
    assert all((np.asarray(part) >= 0).all() for part in memory.parts.values())


def test_the_fullest_rank_is_the_greatest(c: Configurations) -> None:
    memory = peak_memory(c, CONSTANTS)
    ranks = [sum(rank_memory(c, stage, CONSTANTS).values()) for stage in telling_stages(c)]
    assert np.allclose(memory.total - memory.parts["overhead"], np.max(ranks, axis=0), rtol=1e-12)


def test_a_micro_batch_on_the_device_is_int64(c: Configurations) -> None:
    """Each sample with the token behind its last one, and the positions of a context-parallel rank's part."""
    n, s = c.network, c.spread
    tokens = s.micro_batch_size * (n.sequence_length + 1) + n.sequence_length / s.context
    assert np.array_equal(end_memory(c, sizes_of(c, CONSTANTS)).batch, 8 * tokens)


def test_full_recompute_keeps_less_and_sharing_the_optimizer_too(c: Configurations) -> None:
    def total(**change: int) -> np.ndarray:  # type: ignore[type-arg]
        codes = {name: np.full(len(c), code) for name, code in change.items()}
        return peak_memory(replace(c, spread=replace(c.spread, **codes)), CONSTANTS).parts[
            "optimizer" if "sharding" in change else "activations"
        ]

    assert (total(recompute=RECOMPUTE.index("full")) < total(recompute=RECOMPUTE.index("none"))).all()
    assert np.array_equal(total(recompute=RECOMPUTE.index("selective")), total(recompute=RECOMPUTE.index("none")))
    assert (total(sharding=SHARDING.index("optimizer")) <= total(sharding=SHARDING.index("none"))).all()
