"""The shipped machines: their accelerators are those of the table, their settings have reasons."""

import re
from pathlib import Path

import pytest

from nlp_bench.config import catalog
from nlp_bench.config.accelerators import accelerators

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = catalog.names("systems")


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_gpu_is_one_of_the_table_with_its_peak(name: str) -> None:
    if gpu := catalog.load_system(name).gpu:
        (found,) = (entry for entry in accelerators() if gpu.name in entry.logged)
        assert found.peak_tflops["bf16"] == gpu.peak_bf16_tflops
        assert gpu.compute_capability


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_variable_has_a_reason(name: str) -> None:
    text = (ROOT / f"benchmark/systems/{name}.toml").read_text(encoding="utf-8")
    table = re.split(r"^\[", text.partition("\n[environment]\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in table.splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.search(r'"\s+# \w', line)] == []
    assert len(lines) == len(catalog.load_system(name).environment)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_machine_of_gpus_binds_its_ranks(name: str) -> None:
    system = catalog.load_system(name)
    accelerator = "cuda" if system.accelerator == "auto" else system.accelerator
    assert system.binding.mode_for(accelerator) == ("unique_contiguous" if accelerator == "cuda" else "none")
