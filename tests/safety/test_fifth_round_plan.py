"""Faults of a fifth round around the planner: bid sheets, tables of points, rehearsals, where answers are written."""

import json
from pathlib import Path

import pytest

from nlp_bench.cli.main import main
from nlp_bench.config import catalog

ON = ["--system", "dgx-h100", "--nodes", "4"]


def sheet_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the bid sheet for 13B on four nodes, its lines joined."""
    assert main(["plan", *ON, "--bid", *(words if "--model" in words else ("--model", "13", *words))]) == 0
    return " ".join(capsys.readouterr().out.split()).replace("nlp- bench", "nlp-bench")


def own_model(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write a 13.toml of the user's own."""
    text = (catalog.shipped() / "benchmark/models/13.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "13.toml").write_text(text)
    return folder / "13.toml"


def test_a_model_of_ones_own_under_a_shipped_name_is_told_on_the_sheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(
        own_model(tmp_path, ("vocab_size = 50257", "vocab_size = 1000"), ('precision = "bf16"', 'precision = "fp8"'))
    )
    said = sheet_of(capsys, "--model", path)
    assert "shape and training parameters of 13 unchanged" not in said
    assert 'It does not rest on what nlp-bench ships alone: see "Not as shipped"' in said
    assert "model.vocab_size: 1000 instead of 50257: not the benchmark" in said
    assert "model.precision: fp8 instead of bf16: not the benchmark" in said
    assert main(["plan", "--model", path, *ON, "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert "warning: model.vocab_size: 1000 instead of 50257: not the benchmark" in printed.err
    assert "model.vocab_size: 1000 instead of 50257" in json.loads(printed.out)["deviations"]


def test_another_family_or_recompute_is_a_difference_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = own_model(tmp_path, ('family = "gpt"', 'family = "bert"'))
    assert main(["check", "--model", str(path), "--system", "dgx-h100", "--offline"]) == 0
    assert "model.family: bert instead of gpt: not the benchmark" in capsys.readouterr().err
    assert "model.recompute: none instead of selective: not the benchmark" in sheet_of(capsys, "--recompute", "none")
    assert "shape and training parameters of 13 unchanged" in sheet_of(capsys)
