"""A number format that a GPU cannot do is refused, in `plan` and in `check`, by the peaks of its entry in accelerators.toml."""

from pathlib import Path

from support.command import Cli

from nlp_bench.config import catalog


def test_microscaled_products_need_a_gpu_that_has_them(cli: Cli, tmp_path: Path) -> None:
    """By the table's peaks, as for 4 bit: before, Hopper was planned with the peak of plain 8 bit."""
    hopper = catalog.root() / "benchmark/systems/dgx-h100.toml"
    text = hopper.read_text(encoding="utf-8").replace("NVIDIA H100 80GB HBM3", "NVIDIA B200")
    text = text.replace("memory_gib = 80", "memory_gib = 180").replace("989.4", "2250").replace('"9.0"', '"10.0"')
    blackwell = tmp_path / "mine.toml"
    blackwell.write_text(text)
    asked = ("--tp", "2", "--pp", "4", "--nodes", "4", "--precision")
    said = cli("plan", "--model", "13", "--system", "dgx-h100", *asked, "mxfp8", code=2).err
    assert "no mxfp8 peak for NVIDIA H100 SXM, only fp32, tf32, bf16, fp16, fp8; plan --precision bf16" in said
    assert "no fp4 peak" in cli("plan", "--model", "13", "--system", "dgx-h100", *asked, "nvfp4", code=2).err
    assert "searched" in cli("plan", "--model", "13", "--system", blackwell, *asked, "mxfp8").out

    model = tmp_path / "model.toml"
    own = (catalog.root() / "benchmark/models/13.toml").read_text(encoding="utf-8")
    model.write_text(own.replace('precision = "bf16"', 'precision = "fp8"'))
    job = ("check", "--model", model, "--offline", "--mock-data", "--system")
    recipe = "--train-args=--fp8-recipe mxfp8"
    said = cli(*job, "dgx-h100", recipe, code=2).err
    assert "fp8_recipe: mxfp8 needs mxfp8 products" in said
    assert "no mxfp8 peak for NVIDIA H100 SXM" in said
    assert "use --fp8-recipe delayed" in said
    cli(*job, "dgx-h100")
    cli(*job, blackwell, recipe)
    assert "no fp8 peak for NVIDIA A100 SXM" in cli(*job, "dgx-a100", code=2).err
