"""A model has one global batch, whatever machine, number of nodes and command; GAS follows from it unless it is given."""

import json
import os
from pathlib import Path

import pytest
from support.command import Cli

from nlp_bench.config import catalog

OFFLINE = ("--offline", "--mock-data")


@pytest.mark.parametrize(("model", "batch"), [("175", 96), ("13", 1024)])
@pytest.mark.parametrize("system", ["juwels-booster", "dgx-h100"])
@pytest.mark.parametrize("nodes", [(), ("--nodes", "32")])
def test_the_published_batch_stays_on_every_machine_and_number_of_nodes(
    cli: Cli, tmp_path: Path, model: str, batch: int, system: str, nodes: tuple[str, ...]
) -> None:
    """Before, 8 GPUs per node made 192 of 96 in every command, and `check --nodes` others than `plan --nodes`."""
    asked = ("--model", model, "--system", system, *nodes)
    first, *_ = cli("check", *asked, *OFFLINE, "--output", tmp_path).out.splitlines()
    assert first.endswith(f"sequence 2048, global batch {batch}")
    assert json.loads((tmp_path / "run.json").read_text())["batch"]["global_batch_size"] == batch
    first, *_ = cli("plan", *asked, "--tp", "4", "--pp", "8", "--vpp", "1", "--top", "1", code=None).out.splitlines()
    assert f"GPUs, global batch {batch}, 20M tokens" in first


def test_every_model_runs_as_it_is_on_4_and_on_8_gpus_per_node(cli: Cli) -> None:
    for model in catalog.names("models"):
        batch = catalog.load_model(model).defaults.global_batch_size
        for system in ("juwels-booster", "dgx-h100"):
            first, *_ = cli("check", "--model", model, "--system", system, *OFFLINE).out.splitlines()
            assert first.endswith(f", global batch {batch}"), model


def test_another_batch_says_so_in_the_first_line(cli: Cli) -> None:
    job = ("--model", "175", "--system", "juwels-booster")
    first, *_ = cli("check", *job, *OFFLINE, "--gas", "8").out.splitlines()
    assert first.endswith("global batch 48 (the model's is 96)")
    words = ("--global-batch-size", "192", "--tp", "8", "--pp", "8", "--vpp", "1", "--top", "1")
    first, *_ = cli("plan", *job, *words).out.splitlines()
    assert "GPUs, global batch 192 (the model's is 96), 20M tokens" in first


def test_a_batch_that_the_replicas_cannot_share_is_refused_with_what_works(cli: Cli) -> None:
    words = ("--model", "175", "--system", "juwels-booster", "--nodes", "80", *OFFLINE)
    said = cli("check", *words, code=2).err
    assert "global_batch_size = 96 is not a multiple of dp*micro_batch_size = 5*1 = 5 (remainder 1)" in said
    assert "batches that work here: 95, 100; layouts that do: nlp-bench plan; with 4 ranks per node" in said
    assert "these numbers of nodes work: 64, 96, 48, " in said
    assert "80 samples" in cli("check", *words, "--gas", "16").out


@pytest.mark.parametrize(("cores", "ranks"), [(2, 1), (4, 2), (6, 2), (8, 4)])
def test_counted_ranks_are_as_many_as_share_the_batch(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, cores: int, ranks: int
) -> None:
    """A laptop of 6 cores has 3 ranks to offer, which do not share 8 samples; before, each machine trained another batch."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    done = cli("check", "--model", "tiny", "--system", "local", *OFFLINE)
    first, _, place, *_ = done.out.splitlines()
    assert first.endswith(", global batch 8")
    assert place == f"ranks   1 node(s) x {ranks} = {ranks} CPU ranks"
    assert ("2 of 3 ranks are started: 8 samples, 1 at a time, are for no more" in done.err) == (cores == 6)
    said = cli("check", "--model", "tiny", "--system", "local", *OFFLINE, "--gpus-per-node", "3", code=2).err
    assert "8 is not a multiple of dp*micro_batch_size = 3*1" in said


def test_a_model_file_without_a_batch_of_its_own_is_refused(cli: Cli, tmp_path: Path) -> None:
    text = (catalog.root() / "benchmark/models/tiny.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.replace("global_batch_size = 8", "gradient_accumulation_steps = 2"))
    said = cli("check", "--model", tmp_path / "mine.toml", "--system", "local", *OFFLINE, code=2).err
    assert "model.defaults.gradient_accumulation_steps: unknown key" in said
    assert "global_batch_size" in said
