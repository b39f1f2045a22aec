"""Every shipped model and system can be read, and wrong ones are refused by name."""

import re
from pathlib import Path

import pytest

from nlp_bench.config import catalog
from nlp_bench.config.machine import settle
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.errors import UsageError
from nlp_bench.launch.arguments import check_arguments


@pytest.mark.parametrize("name", catalog.names("models"))
def test_the_trainer_takes_every_model_in_its_default_layout(name: str) -> None:
    check_arguments(resolve(Request(model=name, system="juwels-booster", data_path="mock"), ask_scheduler=False))


@pytest.mark.parametrize("name", catalog.names("systems"))
def test_system_is_readable(name: str) -> None:
    accelerator, ranks = settle(catalog.load_system(name))
    assert accelerator in {"cpu", "cuda"}
    assert ranks >= 1


@pytest.mark.parametrize(
    ("visible", "settled"),
    [(None, ("cuda", 4)), ("2", ("cuda", 1)), ("GPU-0,GPU-1,GPU-1", ("cuda", 2)), ("1,9,2", ("cuda", 1)), ("", ("cpu", 1))],
)  # fmt: skip
def test_auto_counts_the_gpus_that_are_visible(
    visible: str | None, settled: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text('#!/bin/sh\nfor i in 0 1 2 3; do echo "GPU $i: NVIDIA A100"; done\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("nlp_bench.config.machine.cpu_ranks", lambda: 1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert settle(catalog.load_system("local")) == settled


@pytest.mark.parametrize("name", ["13", "175"])
def test_the_benchmarks_have_the_published_shapes(name: str) -> None:
    shape = catalog.load_model(name).architecture
    published = (shape.num_layers, shape.hidden_size, shape.num_attention_heads, shape.sequence_length)
    assert published == {"13": (40, 5120, 32, 2048), "175": (96, 12288, 96, 2048)}[name]


def changed(tmp_path: Path, old: str, new: str) -> str:
    text = (catalog.root() / "benchmark/models/tiny.toml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "odd.toml"
    path.write_text(text.replace(old, new))
    return str(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hidden_size = 256", 'hidden_size = "256"', "model.architecture.hidden_size: '256' is not a whole number"),
        (
            "\nhidden_size = 256",
            "\nhiden_size = 256",
            "model.architecture.hiden_size: unknown key; did you mean hidden_size?",
        ),
        ("vocab_size = 4096\n", "", "model.architecture.vocab_size: missing"),
        (
            "num_attention_heads = 8",
            "num_attention_heads = 7",
            "hidden_size = 256 is not a multiple of num_attention_heads = 7 (remainder 4)",
        ),
        ('precision = "bf16"', 'precision = "fp4"', "training.precision: 'fp4' is not one of bf16, fp16, fp32, fp8"),
        ("num_layers = 4", "num_layers = -4", "model.num_layers: -4 must be greater than 0"),
        ("nlp-bench/model/1", "nlp-bench/model/9", "schema is 'nlp-bench/model/9'"),
        ("iterations = 40", "iterations = ", "is not valid TOML"),
        ('precision = "bf16"', "precision = \u201cbf16\u201d", "; the line reads 'precision = \\u201cbf16\\u201d'"),
        ('"00:10:00"', '"600"', "model.defaults.timelimit: '600' is not HH:MM:SS"),
    ],
)
def test_odd_model_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError, match=r".*") as caught:
        catalog.load_model(changed(tmp_path, old, new))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gpus_per_node = 4", 'gpus_per_node = "4"', "'4' is not one of auto, and no whole number, which stands without quotes"),
        ("\n[environment]", '\n[environment]\nqueue = "gpu"', "environment.queue: is no variable but a key of [slurm]; move its line"),
    ],
)  # fmt: skip
def test_odd_system_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    """A line behind the last one of a file belongs to its last table."""
    text = (catalog.root() / "benchmark/systems/juwels-booster.toml").read_text(encoding="utf-8")
    (tmp_path / "odd.toml").write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=re.escape(message)):
        catalog.load_system(str(tmp_path / "odd.toml"))


def test_unknown_names_list_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"'17' is not a file of benchmark/models; did you mean 175"):
        catalog.load_model("17")
    with pytest.raises(UsageError, match=r"known: .*juwels-booster.*local.*slurm-sandbox"):
        catalog.load_system("nowhere")
