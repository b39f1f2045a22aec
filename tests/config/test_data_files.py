"""Every shipped model and system can be read and has reasons for what it says; wrong ones are refused by name."""

import re
from pathlib import Path

import pytest
from support.following import offline, program

from nlp_bench.config import catalog
from nlp_bench.config.accelerators import accelerators
from nlp_bench.config.machine import settle
from nlp_bench.errors import UsageError
from nlp_bench.launch.arguments import check_arguments

SYSTEMS = catalog.names("systems")


@pytest.mark.parametrize("name", catalog.names("models"))
def test_the_trainer_takes_every_model_in_its_default_layout(name: str) -> None:
    check_arguments(offline(name, "juwels-booster", data_path="mock"))


@pytest.mark.parametrize(
    ("visible", "settled"),
    [(None, ("cuda", 4)), ("2", ("cuda", 1)), ("GPU-0,GPU-1,GPU-1", ("cuda", 2)), ("1,9,2", ("cuda", 1)), ("", ("cpu", 1))],
)  # fmt: skip
def test_auto_counts_the_gpus_that_are_visible(
    visible: str | None, settled: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "nvidia-smi", 'for i in 0 1 2 3; do echo "GPU $i: NVIDIA A100"; done')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("nlp_bench.config.machine.cpu_ranks", lambda: 1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert settle(catalog.load_system("local")) == settled


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_gpu_is_one_of_the_table_with_its_peak(name: str) -> None:
    if gpu := catalog.load_system(name).gpu:
        (found,) = (entry for entry in accelerators() if gpu.name in entry.logged)
        assert found.peak_tflops["bf16"] == gpu.peak_bf16_tflops
        assert gpu.compute_capability


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_variable_has_a_reason(name: str) -> None:
    text = catalog.find("systems", name).read_text(encoding="utf-8")
    table = re.split(r"^\[", text.partition("\n[environment]\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in table.splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.search(r'"\s+# \w', line)] == []
    assert len(lines) == len(catalog.load_system(name).environment)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_machine_of_gpus_binds_its_ranks(name: str) -> None:
    system = catalog.load_system(name)
    accelerator = "cuda" if system.accelerator == "auto" else system.accelerator
    assert system.binding.mode_for(accelerator) == ("unique_contiguous" if accelerator == "cuda" else "none")


@pytest.mark.parametrize("name", ["13", "175"])
def test_the_benchmarks_have_the_published_shapes(name: str) -> None:
    shape = catalog.load_model(name).architecture
    published = (shape.num_layers, shape.hidden_size, shape.num_attention_heads, shape.sequence_length)
    assert published == {"13": (40, 5120, 32, 2048), "175": (96, 12288, 96, 2048)}[name]


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("models/tiny", "hidden_size = 256", 'hidden_size = "256"', "model.architecture.hidden_size: '256' is not a whole number"),
        ("models/tiny", "\nhidden_size = 256", "\nhiden_size = 256", "model.architecture.hiden_size: unknown key; did you mean hidden_size?"),
        ("models/tiny", "vocab_size = 4096\n", "", "model.architecture.vocab_size: missing"),
        ("models/tiny", "num_attention_heads = 8", "num_attention_heads = 7",
         "hidden_size = 256 is not a multiple of num_attention_heads = 7 (remainder 4)"),
        ("models/tiny", 'precision = "bf16"', 'precision = "fp4"', "training.precision: 'fp4' is not one of bf16, fp16, fp32, fp8"),
        ("models/tiny", "num_layers = 4", "num_layers = -4", "model.num_layers: -4 must be greater than 0"),
        ("models/tiny", "nlp-bench/model/1", "nlp-bench/model/9", "schema is 'nlp-bench/model/9'"),
        ("models/tiny", "iterations = 40", "iterations = ", "is not valid TOML"),
        ("models/tiny", 'precision = "bf16"', "precision = \u201cbf16\u201d", "; the line reads 'precision = \\u201cbf16\\u201d'"),
        ("models/tiny", '"00:10:00"', '"600"', "model.defaults.timelimit: '600' is not HH:MM:SS"),
        ("models/175", "num_layers = 96", "num_layers = 48", "parameters_billion: 175, but the architecture has 87.59 billion"),
        ("systems/juwels-booster", "gpus_per_node = 4", 'gpus_per_node = "4"',
         "'4' is not one of auto, and no whole number, which stands without quotes"),
        # A line behind the last one of a file belongs to its last table.
        ("systems/juwels-booster", "\n[environment]", '\n[environment]\nqueue = "gpu"',
         "environment.queue: is no variable but a key of [slurm]; move its line"),
        ("systems/juwels-booster", "memory_gib = 40", "memory_gib = -1", "system.gpu.memory_gib: -1 is not within 0.1 to 16384 GiB"),
        ("systems/juwels-booster", "peak_bf16_tflops = 312", "peak_bf16_tflops = 1e308",
         "system.gpu.peak_bf16_tflops: 1e+308 is not within 0.001 to 100000 TFLOP/s"),
        ("systems/juwels-booster", "link_gbit_per_s = 200", "link_gbit_per_s = 1e-300",
         "system.network.link_gbit_per_s: 1e-300 is not within 0.01 to 100000 Gbit/s"),
        ("systems/juwels-booster", "links_per_node = 4", "links_per_node = 0", "system.network.links_per_node: 0 is not within 1 to 1024 adapters"),
        ("systems/local", "", '[software]\nmodules = "CUDA/12"\n', "system.software.modules: 'CUDA/12' is not a list in brackets"),
        ("systems/local", "", '[slurm]\nsrun_args = ["--cpu-bind none"]\n', "'--cpu-bind none' is no option; write option and value as one"),
        ("systems/local", "", '[software]\nmodules = ["CUDA/12 GCC"]\n', "system.software.modules: 'CUDA/12 GCC' is not one module"),
        ("systems/local", "", 'gpu = "A100"\n', "system.gpu: 'A100' is not a table"),
    ],
)  # fmt: skip
def test_an_odd_data_file_is_refused_by_the_name_of_its_field(
    tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    text = (catalog.root() / "benchmark" / f"{name}.toml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "odd.toml"
    path.write_text(text.replace(old, new) if old else f"{text}\n{new}")
    with pytest.raises(UsageError, match=re.escape(message)):
        (catalog.load_model if name.startswith("models") else catalog.load_system)(str(path))
