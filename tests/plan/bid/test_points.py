"""Which published points are near, what is named as different, and what is outside of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from nlp_bench.errors import NlpBenchError
from nlp_bench.plan.neighbours import Offered, extrapolated, generation, nearest, read_points

NUMBERS = {
    "params_b": 175.0, "n_gpus": 384, "tp": 8, "pp": 8, "vpp": 1, "cp": 1, "mbs": 1, "gbs": 96, "seq": 2048,
    "gpus_per_node": 4, "internode_gbps_per_node": 800,
}  # fmt: skip
OFFER = Offered(gpu="NVIDIA A100-SXM4-40GB", precision="bf16", recompute="selective", numbers=NUMBERS)


def changed(**numbers: float) -> Offered:
    return replace(OFFER, numbers=NUMBERS | numbers)


def test_only_points_with_a_steady_time_count(points: Path) -> None:
    assert [row["id"] for row in read_points(points)] == ["J1", "K1", "K1b", "H1", "F1"]


def test_the_same_configuration_is_nearest_and_has_no_difference(points: Path) -> None:
    first, *others = nearest(OFFER, read_points(points))
    assert (first.identity, first.distance, first.differences) == ("J1", 0, ())
    assert first.iteration_s == 5.4529
    assert [point.identity for point in others] == ["H1", "K1"]  # one of twins, and no other family of frameworks
    assert [point.distance for point in others] == sorted(point.distance for point in others)


def test_every_difference_is_named(points: Path) -> None:
    near = {point.identity: point for point in nearest(changed(vpp=4, n_gpus=768), read_points(points))}
    assert near["J1"].differences == ("GPUs 384 (offer 768)", "VPP 1 (offer 4)")
    said = near["K1"].differences
    assert "GPU A100-SXM4-80GB (offer NVIDIA A100-SXM4-40GB)" in said
    assert "VPP not published" in said
    assert "fp16 (offer bf16)" in said


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        (changed(n_gpus=16384), "number of GPUs: 16384, measured on A100 are 8 to 384"),
        (changed(params_b=530), "model size in 10^9 parameters: 530, measured on A100 are 22 to 175"),
        (changed(internode_gbps_per_node=3200), "network of a node in Gbit/s: 3200, measured on A100 are 800 to 1600"),
        (changed(vpp=4), "virtual stages: 4, measured on A100 are 1 to 1"),
        (replace(OFFER, gpu="NVIDIA X900"), "GPU type: no published measurement on X900"),
        (replace(OFFER, precision="fp8"), "number format: fp8"),
        (OFFER, "tensor-parallel group over several nodes: 1 measurements on A100 have one"),
        (OFFER, "software: the measurements are of other trainers on the same libraries (Megatron-LM, NeMo)"),
    ],
)
def test_what_is_outside_is_named(points: Path, offer: Offered, words: str) -> None:
    assert any(words in sentence for sentence in extrapolated(offer, read_points(points)))


def test_what_is_inside_is_not_named(points: Path) -> None:
    said = " ".join(extrapolated(OFFER, read_points(points)))
    assert not any(
        words in said for words in ("number of GPUs", "model size", "GPU type", "sequence length", "number format")
    )


def test_what_is_not_used_is_no_extrapolation(points: Path) -> None:
    rows = [{**row, "vpp": "6", "cp": "2"} for row in read_points(points)]
    said = " ".join(extrapolated(changed(vpp=1, cp=1), rows))
    assert "virtual stages" not in said
    assert "context-parallel" not in said


def test_no_points_at_all() -> None:
    assert nearest(OFFER, []) == ()
    assert any("GPU type: no published measurement" in sentence for sentence in extrapolated(OFFER, []))


def test_generation() -> None:
    assert {generation(name) for name in ("NVIDIA A100-SXM4-40GB", "A100-SXM4-80GB", "A100")} == {"A100"}
    assert generation("") == ""


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NlpBenchError, match=r"nowhere\.csv cannot be read"):
        read_points(tmp_path / "nowhere.csv")
