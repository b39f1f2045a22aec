"""The shipped machines: their accelerators are those of the table, their settings have reasons."""

import re
from pathlib import Path

import pytest

from nlp_bench.config import catalog
from nlp_bench.config.table import read_toml
from nlp_bench.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = catalog.names("systems")


def accelerators() -> list[dict[str, object]]:
    table = read_toml(ROOT / "benchmark/accelerators.toml", "nlp-bench/accelerators/3")
    return list(table["accelerator"])


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_gpu_is_one_of_the_table_with_its_peak(name: str) -> None:
    gpu = catalog.load_system(name).gpu
    if gpu is None:
        return
    found = [entry for entry in accelerators() if gpu.name in entry["logged"]]  # type: ignore[operator]
    assert len(found) == 1
    assert found[0]["peak_tflops"]["bf16"] == gpu.peak_bf16_tflops  # type: ignore[index]
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


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "[software]\n",
            '[software]\nmodules = "CUDA/12"\n',
            "system.software.modules: 'CUDA/12' is not a list in brackets",
        ),
        (
            "[slurm]\n",
            '[slurm]\nsrun_args = ["--cpu-bind none"]\n',
            "'--cpu-bind none' is no option; write option and value as one",
        ),
        (
            "[software]\n",
            '[software]\nmodules = ["CUDA/12 GCC"]\n',
            "system.software.modules: 'CUDA/12 GCC' is not one module",
        ),
        ("[gpu]\n", 'gpu = "A100"\n[software]\n', "system.gpu: 'A100' is not a table"),
    ],
)
def test_a_word_in_place_of_a_list_or_a_table_is_told_in_the_words_of_the_file(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    head = 'schema = "nlp-bench/system/1"\ndescription = "mine"\nlauncher = "local"\naccelerator = "cpu"\ngpus_per_node = 1\n'
    (tmp_path / "mine.toml").write_text((head + old).replace(old, new))
    with pytest.raises(UsageError, match=re.escape(said)):
        catalog.load_system(str(tmp_path / "mine.toml"))
