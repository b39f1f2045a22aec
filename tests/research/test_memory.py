"""The fit of the memory's constants, and the committed ones on the published points: what docs/memory.md prints."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from support.framework_runs import constants, run

from nlp_bench.config import catalog
from nlp_bench.errors import UsageError
from nlp_bench.plan.constants import FITTED, Constants, read_constants
from nlp_bench.plan.memory.fits import Memory
from nlp_bench.plan.memory.published import published_memory
from nlp_bench.plan.neighbours import POINTS
from nlp_bench.plan.predict import Points
from research.planner.memory import Peaks, cross_validate, fit_memory, relative_errors
from research.planner.memory_accuracy import Row, peaks_of, read_points

TRUE = {"deepspeed_bf16_gradient_bytes": 8.5, "deepspeed_buffer_bytes": 5e9, "internevo_state_bytes": 24.0}
K = constants()
MADE = replace(K, memory=replace(K.memory, **TRUE))


def made_peaks(framework: str, layers: Sequence[int] = (8, 16, 24, 32, 40, 48), made: Constants = MADE) -> Peaks:
    layers = list(layers)
    c = run(
        framework, hidden_size=4096, ffn_hidden_size=16384, num_layers=layers, recompute="full", sharding="optimizer"
    )
    return Peaks(configurations=c, peak_bytes=published_memory(c, made).published, groups=np.arange(len(layers)))


@pytest.mark.slow
def test_constants_are_found_again() -> None:
    for framework in ("Megatron-DeepSpeed", "InternEvo"):
        some = made_peaks(framework)
        found = fit_memory(some, K)
        assert np.abs(relative_errors(some, found)).max() < 1e-4
        own = [name for name in FITTED if name.startswith(framework.lower().removeprefix("megatron-"))]
        for name in own:
            assert getattr(found.memory, name) == pytest.approx(TRUE[name], rel=1e-3)


def test_one_wild_figure_moves_little() -> None:
    some = made_peaks("InternEvo")
    wild = replace(some, peak_bytes=some.peak_bytes * np.array([1, 1, 3, 1, 1, 1]))
    assert fit_memory(wild, K).memory.internevo_state_bytes == pytest.approx(24, rel=0.05)


def test_what_no_row_depends_on_stays_at_its_prior_not_at_an_older_fit() -> None:
    found = fit_memory(made_peaks("Megatron-LM"), MADE).memory
    by_hand = {
        "deepspeed_bf16_gradient_bytes": 2 + 4,  # bf16, fp32
        "deepspeed_buffer_bytes": 2 * 5e8 * 2,  # two buckets of 16 bits
        "internevo_state_bytes": 2 + 2 + 4 + 12,  # weights, gradients, fp32 gradients, Adam's
    }
    assert {name: getattr(found, name) for name in FITTED} == by_hand
    assert found.context_bytes == K.memory.context_bytes


@pytest.mark.slow
def test_a_group_does_not_see_its_own_figures() -> None:
    odd = made_peaks("InternEvo")
    odd = replace(odd, peak_bytes=odd.peak_bytes * np.array([2, 1, 1, 1, 1, 1]))
    errors = cross_validate(odd, K, num_seeds=2)
    assert errors.shape == (2, 6)
    assert errors[:, 0] == pytest.approx(-0.5, abs=0.02)
    together = replace(odd, groups=np.array([0, 0, 0, 1, 1, 1]))
    assert np.abs(cross_validate(together, K, num_seeds=1)).max() > 0.3


def test_nothing_to_fit() -> None:
    with pytest.raises(UsageError, match="no published peaks"):
        fit_memory(made_peaks("InternEvo").take(np.zeros(6, dtype=bool)), K)


@cache
def published() -> tuple[Points, list[Row]]:
    return read_points(catalog.root() / POINTS, read_constants())


def answers(status: str) -> tuple[list[str], Memory]:
    points, rows = published()
    places = np.array([row["status"] == status and bool(row["recompute"]) for row in rows])
    found = published_memory(points.configurations.take(places), read_constants())
    return found.words.tolist(), found


@pytest.mark.parametrize(
    ("source", "number", "at_most"),
    [
        ("", 82, 0.030),
        ("BLOOM", 47, 0.027),
        ("INTERNEVO", 10, 0.030),
        ("KORTHMEM", 3, 0.040),
        ("SIMUMAX", 12, 0.006),
        ("TITAN", 10, 0.085),
    ],
)
def test_median_errors_are_those_of_the_page(source: str, number: int, at_most: float) -> None:
    some, rows = peaks_of(*published())
    errors = np.abs(relative_errors(some, read_constants()))
    chosen = errors[[row["source_id"].startswith(source) for row in rows]]
    assert len(chosen) == number
    assert np.median(chosen) <= at_most


def test_committed_constants_are_what_the_fit_finds() -> None:
    constants = read_constants()
    found = fit_memory(peaks_of(*published())[0], constants)
    for name in FITTED:
        assert getattr(constants.memory, name) == pytest.approx(getattr(found.memory, name), rel=0.01)


def test_no_run_that_failed_was_said_to_fit_and_none_that_ran_was_said_not_to() -> None:
    failed, _ = answers("OOM")
    assert len(failed) == 4
    assert "yes" not in failed
    ran, found = answers("ok")
    assert len(ran) > 400
    assert "no" not in ran
    assert ran.count("yes") > len(ran) / 2
    assert np.allclose(sum(found.parts.values()), found.total)
