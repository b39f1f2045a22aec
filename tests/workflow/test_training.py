"""Every family of models and every way of spreading one, trained on CPU ranks through JUBE: one table each, losses that fall or agree."""

import pytest
from support.jube import SMALL, Jube

pytestmark = [pytest.mark.jube, pytest.mark.torchrun]

FAMILIES = ("tiny_llama", "tiny_mt5", "tiny_bert")
"""tiny itself is trained by every other file here; to the trainer an mT5 is a T5, this one with heads of a width of its own."""
LAYOUTS = {
    "gpus_per_node": (1, 4, 2),
    "tp_size": (1, 2, 1),
    "pp_size": (1, 1, 2),
    "num_layers_per_virtual_pipeline_stage": ("default", "default", 1),
    "context_parallel_size": (1, 2, 1),
    "recompute_granularity": ("none", "full", "selective"),
}
"""Each switch once through JUBE; their combinations are trained in tests/train/test_parallel.py."""


def test_each_family_learns(jube: Jube) -> None:
    jube.set(nlp_model_size=",".join(FAMILIES), gpus_per_node="1", iterations="20", **SMALL)
    jube.run("local")
    assert jube.status() == "FINISHED", jube.log()
    rows = {row["Model"]: row for row in jube.table()}
    assert sorted(rows) == sorted(FAMILIES)
    assert {row["Outcome"] for row in rows.values()} == {"VALID"}, jube.log()
    for name, row in rows.items():
        assert float(row["Last_Loss"]) < float(row["First_Loss"]) - 0.2, (name, row)
        assert float(row["Tokens/sec"]) > 0


def test_no_layout_changes_the_loss(jube: Jube) -> None:
    count = len(LAYOUTS["tp_size"])
    columns = {name: f"[{','.join(map(repr, column))}][$point]" for name, column in LAYOUTS.items()}
    points = ",".join(map(str, range(count)))
    batch = {"global_batch_size": "4", "micro_batch_size": "1", "iterations": "4"}
    jube.set(point=points, **batch, **SMALL, **columns)
    jube.run("local")
    assert jube.status() == "FINISHED", jube.log()
    rows = jube.table()
    assert [row["Outcome"] for row in rows] == ["VALID"] * count, jube.log()
    layouts = {
        (
            row["Tensor_Parallel"],
            row["Pipeline_Parallel"],
            row["Virtual_Pipeline"],
            row["Context_Parallel"],
            row["Recompute"],
        )
        for row in rows
    }
    assert len(layouts) == count
    assert {row["Virtual_Pipeline"] for row in rows} == {"", "2"}
    for column in ("First_Loss", "Last_Loss"):
        losses = [float(row[column]) for row in rows]
        assert losses == pytest.approx([losses[0]] * count, abs=1e-4)
