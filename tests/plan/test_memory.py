"""The trainer's memory, tensor by tensor; what a GPU needs beyond tensors, and the three-way answer."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.agreement import planned, side_by_side
from support.command import Cli
from support.framework_runs import constants, run
from support.jobs import Case, sample
from support.planning import problem

from nlp_bench.config.catalog import root
from nlp_bench.config.table import read_toml
from nlp_bench.errors import UsageError
from nlp_bench.layout.rules import METHODS, RECOMPUTE, SHARDING
from nlp_bench.plan.configurations import Configurations
from nlp_bench.plan.constants import FITTED, memory_constants, read_constants
from nlp_bench.plan.forecast import peak_memory
from nlp_bench.plan.memory.fits import Memory, num_communicators, overhead_bytes
from nlp_bench.plan.memory.published import published_memory
from nlp_bench.plan.memory.trainer import EndMemory, LayerBytes, rank_memory
from nlp_bench.plan.problem import Fixed
from nlp_bench.plan.search import search
from nlp_bench.plan.work import fullest_stages, stage_of

CONSTANTS = read_constants()


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return sample(80, 4)


@pytest.fixture(scope="module")
def c(cases: list[Case]) -> Configurations:
    return side_by_side(cases)


def test_many_at_once_are_each_alone(cases: list[Case], c: Configurations) -> None:
    stage = stage_of(c, np.asarray([float(case.stage) for case in cases]))
    alone = [planned(case).peak_bytes for case in cases]
    assert np.allclose(sum(rank_memory(c, stage).values()), alone, rtol=1e-12)


def test_parts_add_up_and_none_is_negative(c: Configurations) -> None:
    memory = peak_memory(c, CONSTANTS)
    assert np.allclose(sum(memory.parts.values()), memory.total, rtol=1e-12)
    assert all((np.asarray(part) >= 0).all() for part in memory.parts.values())


def test_the_fullest_rank_is_the_greatest(c: Configurations) -> None:
    memory = peak_memory(c, CONSTANTS)
    ranks = [sum(rank_memory(c, stage).values()) for stage in fullest_stages(c)]
    assert np.allclose(memory.total - memory.parts["overhead"], np.max(ranks, axis=0), rtol=1e-12)


def test_a_micro_batch_on_the_device_is_int64(c: Configurations) -> None:
    """Each sample with the token behind its last one, and the positions of a context-parallel rank's part."""
    n, s = c.network, c.spread
    tokens = s.micro_batch_size * (n.sequence_length + 1) + n.sequence_length / s.context
    assert np.array_equal(EndMemory(c, LayerBytes(c)).batch, 8 * tokens)


def test_full_recompute_keeps_less_and_sharing_the_optimizer_too(c: Configurations) -> None:
    def total(**change: int) -> np.ndarray:  # type: ignore[type-arg]
        codes = {name: np.full(len(c), code) for name, code in change.items()}
        return peak_memory(replace(c, spread=replace(c.spread, **codes)), CONSTANTS).parts[
            "optimizer" if "sharding" in change else "activations"
        ]

    assert (total(recompute=RECOMPUTE.index("full")) < total(recompute=RECOMPUTE.index("none"))).all()
    assert np.array_equal(total(recompute=RECOMPUTE.index("selective")), total(recompute=RECOMPUTE.index("none")))
    assert (total(sharding=SHARDING.index("optimizer")) <= total(sharding=SHARDING.index("none"))).all()


K = constants()
TABLE = read_toml(root() / "benchmark" / "plan.toml", "nlp-bench/plan/1")["memory"]


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({}, 0),
        *(({"num_gpus": ranks, "data": ranks}, 2) for ranks in (2, 4096)),
        ({"num_gpus": 2, "tensor": 2}, 2),
        ({"num_gpus": 2, "pipeline": 2}, 3),
        ({"num_gpus": 2, "context": 2}, 3),
        ({"num_gpus": 64, "tensor": 4, "pipeline": 4, "context": 2, "data": 2}, 6),
    ],
)
def test_communicators_are_those_of_groups_with_more_than_one_rank(changes: dict[str, Any], number: int) -> None:
    assert num_communicators(run(**changes))[0] == number


def test_one_gpu_needs_its_context_and_what_the_allocator_rounds() -> None:
    for dynamic in (0, 1e10):
        expected = K.memory.context_bytes + K.memory.allocator_share * dynamic
        assert overhead_bytes(K, num_communicators(run()), dynamic)[0] == expected


def test_three_answers() -> None:
    total, capacity = np.array([70.0, 75.0, 76.0, 105.0, 106.0]), np.array(100.0)
    answer = Memory(total=total, parts={}, capacity=capacity, fits_below=0.75, fails_above=1.05)
    assert answer.words.tolist() == ["yes", "yes", "tight", "tight", "no"]


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


LARGE = "plan --model gpt_20b --system juwels-booster --nodes 8 --tp 4 --pp 4 --vpp 1 --cp 1 --micro-batch-size 8 --format json"


def test_any_recompute_finds_the_fewest_layers_that_fit(cli: Cli, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.yaml"
    best = cli(*LARGE.split(), "--recompute", "any", "--top", "1", "--emit-jube", sweep).json["configurations"][0]
    assert (best["recompute"], best["recompute_method"]) == ("full", "block")
    layers = best["recompute_num_layers"]
    assert 1 < layers < 11, "of 11 layers of a stage"
    block = (*LARGE.split(), "--recompute", "full", "--recompute-method", "block")
    assert cli(*block, "--top", "1").json["configurations"][0] == best, "a number that is not given is searched"
    why = cli(*block, "--recompute-num-layers", layers, "--why").json["configuration"]
    assert (why["memory_gib"], why["fits"]) == (best["memory_gib"], "yes")
    fewer = cli(*block, "--recompute-num-layers", layers - 1, "--why", code=1).json["configuration"]
    assert fewer["fits"] != "yes"
    assert fewer["report_s"] < why["report_s"]
    sets = yaml.safe_load(sweep.read_text(encoding="utf-8"))["parameterset"]
    of_point = {one["name"]: str(one["_"]) for own in sets for one in own.get("parameter", ())}
    assert "block" in of_point["recompute_method"]
    assert str(layers) in of_point["recompute_num_layers"]


def test_groups_of_layers_where_each_alone_does_not_fit() -> None:
    """Groups keep fewer inputs, and more of a layer while one of them runs."""
    asked = problem(nodes=96, fixed=Fixed(tp=8, pp=8, vpp=1, cp=1, recompute="any"), global_batch_size=384)
    legal = search(asked).space.legal.spread
    grouped = (legal.recompute == RECOMPUTE.index("full")) & (legal.recompute_num_layers > 1)
    assert (grouped & (legal.recompute_method == METHODS.index("uniform"))).any()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--recompute-method block", "--recompute-method needs --recompute full"),
        ("--recompute any --recompute-num-layers 2", "--recompute-num-layers needs --recompute full"),
        ("--recompute full --recompute-modules mlp", "--recompute-modules needs --recompute selective"),
        ("--recompute selective --recompute-modules moe", "--recompute-modules: moe is none of core_attn, mlp, layernorm"),
        ("--recompute full --recompute-method block --recompute-num-layers 12", "12 is more than the 11 layers of a"),
    ],
)  # fmt: skip
def test_parts_that_there_are_not_are_refused(cli: Cli, words: str, said: str) -> None:
    done = cli(*LARGE.split(), *words.split(), "--why", code=None)
    assert done.code in {1, 2}
    assert said in done.out + done.err
