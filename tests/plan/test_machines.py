"""System files as machines: data sheets, what calibration measured, and what is refused."""

from dataclasses import replace

import pytest
from support.planning import constants

from nlp_bench.config.catalog import load_system
from nlp_bench.config.catalog import names as catalog_names
from nlp_bench.config.system import Network, System
from nlp_bench.errors import UsageError
from nlp_bench.plan.configurations import GENERATIONS
from nlp_bench.plan.constants import Measured
from nlp_bench.plan.machines import doubts_of, machine_of


def system(**changes: object) -> System:
    return replace(load_system("juwels-booster"), **changes)  # type: ignore[arg-type]


def gpu(name: str) -> System:
    return system(gpu=replace(load_system("juwels-booster").gpu, name=name))  # type: ignore[type-var]


CPU = Measured(
    name="EPYC", peak_tflops={"bf16": 1.5, "fp32": 1.0}, memory_gb_per_s=100.0, link_gb_per_s=10.0, memory_gib=64.0
)


def test_every_shipped_gpu_system_is_a_machine() -> None:
    for name in catalog_names("systems"):
        one = load_system(name)
        if one.gpu is not None:
            found = machine_of(one, constants(), "bf16")
            assert float(found.peak_flops) == one.gpu.peak_bf16_tflops * 1e12
            assert float(found.half_flops) == float(found.peak_flops)


def test_juwels_booster() -> None:
    found = machine_of(system(), constants(), "bf16")
    assert (float(found.memory_bytes_per_s), float(found.link_bytes_per_s)) == (1.555e12, 300e9)
    assert (float(found.fabric_bytes_per_s), float(found.domain), float(found.memory_bytes)) == (100e9, 4, 40 * 2**30)
    assert GENERATIONS[int(found.gpu)] == "ampere"


def test_8_bit_products_have_their_own_peak() -> None:
    found = machine_of(load_system("dgx-h100"), constants(), "fp8")
    assert (float(found.peak_flops), float(found.half_flops)) == (1978.9e12, 989.4e12)


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (gpu("NVIDIA X900"), r"'NVIDIA X900' is not in benchmark/accelerators.toml(.|\n)*link_gb_per_s = 0"),
        (gpu("NVIDIA A100-SXM4-80GB MIG 3g.40gb"), "MIG 3g.40gb' is not in benchmark/accelerators.toml"),  # a slice
        (gpu("NVIDIA L40S"), "NVIDIA L40S has no generation, memory and link_gb_per_s"),
        (system(network=Network()), r"system.network: juwels-booster has no bandwidth(.|\n)*links_per_node"),
        (system(gpu=None), r"has no .gpu.*plan calibrate --output cpu.toml"),
        (load_system("local"), "gpus_per_node"),
    ],
)
def test_what_a_machine_lacks_is_said_with_the_remedy(machine: System, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        machine_of(machine, constants(), "bf16")


def test_a_gpu_without_bf16_is_not_planned_with_its_fp16() -> None:
    """A V100 does bf16 at the speed of fp32, an eighth of its fp16."""
    v100 = gpu("Tesla V100-SXM2-32GB")
    with pytest.raises(
        UsageError,
        match=r"has no bf16 peak for NVIDIA V100 SXM2, only fp32, fp16; plan --precision fp16, or fp16 in the column",
    ):
        machine_of(v100, constants(), "bf16")
    found = machine_of(v100, constants(), "fp16")
    assert (float(found.peak_flops), float(found.half_flops)) == (125e12, 125e12)
    assert any("NVIDIA V100 SXM2 has 125 in" in said for said in doubts_of(v100, constants()))


def test_a_measured_machine_stands_in_for_the_data_sheet() -> None:
    told = replace(constants(), machine=CPU)
    found = machine_of(system(gpu=None, network=Network()), told, "fp32")
    assert (float(found.peak_flops), float(found.half_flops), float(found.memory_bytes)) == (1e12, 1e12, 64 * 2**30)
    assert float(found.fabric_bytes_per_s) == 10e9
    with pytest.raises(UsageError, match="fp16 was not measured, only bf16, fp32"):
        machine_of(system(gpu=None), told, "fp16")
    other = machine_of(system(), told, "bf16")  # the measured CPU is not this GPU
    assert float(other.peak_flops) == 312e12
    same = machine_of(system(), replace(told, machine=replace(CPU, name="NVIDIA A100-SXM4-40GB")), "bf16")
    assert float(same.peak_flops) == 1.5e12
