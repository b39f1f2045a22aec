"""benchmark/plan.toml and what a person's own file changes of it."""

from pathlib import Path

import numpy as np
import pytest
from support.planning import constants, problem

from nlp_bench.errors import UsageError
from nlp_bench.plan.constants import FITTED, Constants, read_constants


def own(tmp_path: Path, text: str) -> Constants:
    path = tmp_path / "own.toml"
    path.write_text(f'schema = "nlp-bench/plan/1"\n{text}\n')
    return read_constants(path)


def test_at_most_forty_constants_are_fitted_and_each_has_a_source() -> None:
    found = constants()
    assert 20 <= len(found.fitted()) + len(FITTED) <= 40
    for name, one in found.time.items():
        assert one.source, name
        assert one.about, name
        assert "PRIOR" not in one.source
        if one.fitted:
            assert abs(np.log(one.value / one.prior)) < 4 * one.spread, f"{name} is no longer credible"
    assert found.frameworks[0] == "nlp-bench"
    assert all(one.source for one in found.traits)


def test_every_constant_is_used() -> None:
    source = "".join(path.read_text() for path in (Path(__file__).parents[2] / "src/nlp_bench/plan").rglob("*.py"))
    prefixes = ("products", "products_8bit", "attention", "stream", "fabric_share")
    for name in constants().time:
        assert f'"{name}"' in source or any(name.startswith(f"{one}_") for one in prefixes), name


def test_an_own_file_changes_what_it_names(tmp_path: Path) -> None:
    time = '[time]\nlink_share = { value = 0.5, source = "measured" }'
    found = own(tmp_path, f'{time}\n[interval]\nsource = "mine"\nmegatron = {{ low = 0.9, high = 1.1 }}')
    assert (found["link_share"], found["fabric_share"]) == (0.5, constants()["fabric_share"])
    assert not found.time["link_share"].fitted
    assert found.ends["megatron"] == (0.9, 1.1)
    assert found.ends["xla"] == constants().ends["xla"]


MACHINE = "[machine]\nlink_gb_per_s = 1\nmemory_gib = 1\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[time]\nlink_shar = { value = 1, source = "x" }', r"\[time\] link_shar: no such constant.*link_share"),
        ("[time]\nlink_share = { value = 1 }", r"needs link_share = \{ value = NUMBER, source"),
        ('[time]\nlink_share = { value = -1, source = "x" }', "value = -1 is not a number above 0"),
        ('[time]\nlink_share = { value = inf, source = "x" }', "value = inf is not a number above 0"),
        ('[time]\nlink_share = { value = true, source = "x" }', "value = True is not a number above 0"),
        ('[time]\nlink_share = { value = 1e300, source = "x" }', "not a number above 0 and below 1e"),
        ("time = [1]", r"time = \[1\] is no table"),
        ('machine = "CPU"', "machine = 'CPU' is no table"),
        (f'{MACHINE}name = "CPU"\npeak_tflops = {{ bf16 = -5 }}\nmemory_gb_per_s = 1', "peak_tflops.bf16 = -5.0 is not a number above 0"),
        (f'{MACHINE}name = ""\npeak_tflops = {{ bf16 = 5 }}\nmemory_gb_per_s = 1', "name is empty"),
        (f'{MACHINE}name = "CPU"\npeak_tflops = {{ bf16 = 1 }}\nmemory_gb_per_s = 0', "memory_gb_per_s = 0.0 is not a number above 0"),
        ("[memori]\nx = 1", r"\[memori\]: unknown table"),
        ("[interval]\nmegatron = { low = 1.2, high = 1.1 }", "needs low and high with 0 < low <= 1 <= high"),
        ("[interval]\nalpaca = { low = 0.9, high = 1.1 }", "alpaca: no such framework family"),
        ('[machine]\nname = "CPU"', r"\[machine\].*missing"),
    ],
)  # fmt: skip
def test_an_own_file_with_a_mistake_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        own(tmp_path, text)


def test_cold_constants_are_the_priors() -> None:
    cold = constants().cold()
    assert all(cold[name] == one.prior for name, one in constants().time.items() if one.fitted)
    assert cold["memory_share"] == constants()["memory_share"]


def test_the_interval_is_of_the_family() -> None:
    sizes = {"tp": 4, "pp": 8, "vpp": 1, "cp": 1, "micro_batch_size": 1, "first_layers": 0, "last_layers": 0}
    switches = {"recompute": 0, "sequence_parallel": True, "distributed_optimizer": True}
    overlap = {"overlap_grad_reduce": False, "overlap_param_gather": False}
    c = problem(nodes=96).configurations({**sizes, **switches, **overlap})
    assert tuple(map(float, constants().interval(c))) == constants().ends["megatron"]
