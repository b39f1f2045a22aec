"""Seconds of an iteration: the parts add up, and what the rankings of tests/golden do not show."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from support.planning import constants, problem

from nlp_bench.plan.configurations import Configurations
from nlp_bench.plan.iteration import Seconds, step_seconds

JUWELS = {
    "tp": 4, "pp": 8, "vpp": 1, "cp": 1, "micro_batch_size": 1, "first_layers": 0, "last_layers": 0, "recompute": 0,
    "sequence_parallel": True, "distributed_optimizer": True, "overlap_grad_reduce": False, "overlap_param_gather": False,
}  # fmt: skip


def case(**changes: Any) -> Configurations:
    """Configurations of 175B on 384 GPUs; a list is one configuration per value."""
    columns = np.broadcast_arrays([0], *map(np.asarray, (JUWELS | changes).values()))[1:]
    return problem(nodes=96).configurations(dict(zip(JUWELS | changes, columns, strict=True)))


def seconds(**changes: Any) -> Seconds:
    return step_seconds(case(**changes), constants())


def random_cases(count: int = 500) -> Configurations:
    chance = np.random.default_rng(1)
    return case(
        tp=chance.choice([1, 2, 4, 8], count).tolist(),
        pp=chance.choice([1, 2, 4, 8, 12], count).tolist(),
        vpp=chance.choice([1, 2, 4], count).tolist(),
        cp=chance.choice([1, 2], count).tolist(),
        micro_batch_size=chance.choice([1, 2, 4], count).tolist(),
        recompute=chance.choice([0, 1, 2], count).tolist(),
        sequence_parallel=(chance.random(count) > 0.5).tolist(),
        distributed_optimizer=(chance.random(count) > 0.5).tolist(),
        overlap_grad_reduce=(chance.random(count) > 0.5).tolist(),
    )


def test_parts_add_up_and_none_is_negative() -> None:
    found = step_seconds(random_cases(), constants())
    assert np.all(np.isfinite(found.total))
    assert np.all(found.total > 0)
    np.testing.assert_allclose(sum(found.parts.values()), found.total, rtol=1e-12)
    assert all(np.all(part >= -1e-12) and part.shape == found.total.shape for part in found.parts.values())


def test_one_at_a_time_is_what_all_together_are() -> None:
    c = random_cases(40)
    together = step_seconds(c, constants()).total
    alone = [float(step_seconds(c.take(np.array([place])), constants()).total[0]) for place in range(40)]
    np.testing.assert_allclose(alone, together, rtol=1e-12)


def test_fields_of_shape_nothing_do_as_well() -> None:
    c = case(tp=[2, 4])
    spread = {one.name: getattr(c.spread, one.name) for one in fields(c.spread)}
    single = replace(c, spread=replace(c.spread, **{name: value[0] for name, value in spread.items() if value.ndim}))
    first = float(step_seconds(c, constants()).total[0])
    assert step_seconds(single, constants()).total == pytest.approx(first, rel=1e-12)


def test_micro_batches_that_are_no_multiple_of_the_stages_are_not_interleaved() -> None:
    four, one = (seconds(pp=8, vpp=size, micro_batch_size=2).parts["pipeline bubble"][0] for size in (4, 1))
    assert four == one > 0  # 96 / 12 / 2 = 4 micro-batches in 8 stages


def test_gradients_that_every_rank_gets_are_sent_twice() -> None:
    whole, sharded = (seconds(distributed_optimizer=one).parts["data parallel"][0] for one in (False, True))
    assert whole / sharded == pytest.approx((4 + 4) / (4 + 2), rel=0.01)  # fp32 gradients, 16-bit parameters


def test_the_fullest_stage_reduces_and_updates_the_longest() -> None:
    found = seconds(first_layers=[0, 6], last_layers=[0, 6])  # the other stages have 12 layers, and 14
    for name in ("data parallel", "optimizer"):
        even, uneven = found.parts[name]
        assert even < uneven < 14 / 12 * even


def test_factors_of_what_was_learned_scale_their_part() -> None:
    slow = constants().with_values({"scale_compute": 2.0})
    before, after = step_seconds(case(), constants()), step_seconds(case(), slow)
    for name in ("matrix products", "attention", "memory-bound", "output layer", "optimizer"):
        assert after.parts[name][0] == pytest.approx(2 * before.parts[name][0])
    assert after.parts["tensor parallel"][0] == before.parts["tensor parallel"][0]
    network = step_seconds(case(), constants().with_values({"scale_network": 3.0}))
    for name in ("tensor parallel", "data parallel", "pipeline transfers"):
        assert network.parts[name][0] == pytest.approx(3 * before.parts[name][0])
