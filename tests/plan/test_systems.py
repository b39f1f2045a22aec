"""`nlp-bench plan --system A B C`: one table on equal work; a machine without a configuration is a row with its reason."""

import csv

import pytest
from support.command import Cli

CASE = ("plan", "--model", "13", "--tp", "2", "--pp", "4", "--system")
THREE = ("juwels-booster", "dgx-h100", "local")


def test_every_form_has_a_row_of_each_system_on_the_same_work(cli: Cli) -> None:
    record = cli(*CASE, *THREE, "--nodes", "8", "--format", "json").json
    assert (record["kind"], record["model"], record["global_batch_size"]) == ("systems", "13", 1024)
    assert (record["sequence_length"], record["tokens"], record["precision"]) == (2048, 20_000_000, "bf16")
    sides = {side["system"]: side for side in record["systems"]}
    assert list(sides) == ["dgx-h100", "juwels-booster", "local"], "the fastest first, what is refused last"
    assert [side["num_gpus"] for side in sides.values()] == [64, 32, None]
    assert {side["configuration"]["global_batch_size"] for side in [*sides.values()][:2]} == {1024}
    assert sides["local"]["configuration"] is None
    assert "[gpu] name, memory_gib" in sides["local"]["reason"]

    rows = list(csv.DictReader(cli(*CASE, *THREE, "--nodes", "8", "--format", "csv").out.splitlines()))
    assert [row["system"] for row in rows] == [*sides]
    assert float(rows[0]["report_s"]) == sides["dgx-h100"]["configuration"]["report_s"]
    assert rows[2]["report_s"] == ""
    assert "[gpu] name" in rows[2]["reason"]

    text = cli(*CASE, *THREE, "--nodes", "8").out
    assert text.startswith("13 on 3 systems, equal work: global batch 1024 x 2048 tokens, 20M tokens, bf16: predicted")
    assert "they have 32 and 64 GPUs; --gpus N takes the same number on each" in text
    assert (
        "| dgx-h100 | NVIDIA H100 80GB HBM3 | 8 | 64 |"
        in cli(*CASE, *THREE, "--nodes", "8", "--format", "markdown").out
    )


def test_one_of_several_says_what_it_says_alone(cli: Cli) -> None:
    both = cli(*CASE, *THREE[:2], "--gpus", "32", "--format", "json").json["systems"]
    assert {(side["system"], side["nodes"], side["num_gpus"]) for side in both} == {
        ("dgx-h100", 4, 32),
        ("juwels-booster", 8, 32),
    }
    for side in both:
        alone = cli(*CASE, side["system"], "--gpus", "32", "--top", "1", "--format", "json").json
        assert side["configuration"] == alone["configurations"][0]


def test_what_does_not_fit_anywhere_is_exit_code_1(cli: Cli) -> None:
    record = cli(*CASE, *THREE[:2], "--gpus", "36", "--format", "json", code=1).json
    assert (record["kind"], record["model"]) == ("systems", None)
    sides = {side["system"]: side["reason"] for side in record["systems"]}
    assert "--gpus: 36 are no whole number of nodes of dgx-h100 with 8 GPUs; 32 and 40 are" in sides["dgx-h100"]
    assert "the number of GPUs = 36 is not a multiple of tp*pp = 8" in sides["juwels-booster"]
    words = ("plan", "--model", "175", "--system", *THREE[:2], "--nodes", "1", "--format", "json")
    side, *_ = cli(*words, code=1).json["systems"]
    assert side["reason"].startswith("none surely fits: the least memory is ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["juwels-booster", "nowhere"], "nowhere"),
        (["juwels-booster", "dgx-h100", "--bid"], "--bid goes with one --system, not with 2"),
        (["juwels-booster", "dgx-h100", "--time", "500"], "--time goes with one --system"),
        (["juwels-booster", "dgx-h100", "--emit-jube", "a.yaml"], "--emit-jube goes with one --system"),
        (["juwels-booster", "--nodes", "4", "--gpus", "16"], "--nodes and --gpus exclude each other"),
    ],
)
def test_what_goes_with_one_system_is_refused(cli: Cli, words: list[str], said: str) -> None:
    assert said in cli(*CASE, *words, code=2).err
