"""The bid sheet and what it rests on: the commitment, the command that runs the offer, the nearest published points, what lies outside of them."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.browsing import NEEDS_BROWSER, browser, contrast, looked_at
from support.command import Cli
from support.planning import problem

from nlp_bench.cli.parser import parser_of
from nlp_bench.cli.plan.bid import FORMATS
from nlp_bench.config.request import from_options
from nlp_bench.config.resolve import resolve
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.plan.bid import bid
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.neighbours import (
    Offered,
    extrapolated,
    known_points,
    measured_by_others,
    nearest,
    offered,
    read_points,
)
from nlp_bench.plan.problem import configuration_of, sizes_of
from nlp_bench.plan.ranking import Answer, beyond_published, configuration, rows_of

COLUMNS = (
    "id,source_id,grade,model,params_b,seq,gpu,gpus_per_node,internode_gbps_per_node,n_gpus,tp,pp,vpp,cp,mbs,gbs,recompute,"
    "precision,framework,iter_time_s,tokens_per_s_per_gpu,source"
)
ROWS = (
    "J1,JSC,A,GPT3-175B,175,2048,A100-SXM4-40GB,4,800,384,8,8,1,1,1,96,selective,bf16,Megatron-LM,5.4529,93.9,paper a",
    "J2,JSC,C,GPT3-175B,175,2048,A100-SXM4-40GB,4,800,192,8,8,1,1,1,48,selective,bf16,Megatron-LM,6.7236,76.1,paper a",
    "K1,KORTH,A,GPT-22B,22,2048,A100-SXM4-80GB,8,1600,8,8,1,,1,4,4,selective,fp16,Megatron-LM,1.10,931,paper b",
    "K1b,KORTH,A,GPT-22B,22,2048,A100-SXM4-80GB,8,1600,8,8,1,,1,4,4,selective,fp16,Megatron-LM,1.12,914,paper b",
    "H1,NEMO,A,GPT3-175B,175,2048,H100-SXM5-80GB,8,3200,512,4,8,6,1,1,2048,none,bf16,NeMo,15.3,535,paper c",
    "F1,MPT,A,MPT-70B,70,2048,A100-SXM4-40GB,8,1600,384,1,1,1,1,1,96,full,bf16,llm-foundry/Composer,9.0,100,paper d",
    "N1,NONE,A,GPT3-175B,175,2048,A100-SXM4-40GB,4,800,384,8,8,1,1,1,96,selective,bf16,Megatron-LM,,93.9,paper a",
)


@pytest.fixture
def points(tmp_path: Path) -> Path:
    path = tmp_path / "points.csv"
    path.write_text("\n".join((COLUMNS, *ROWS)) + "\n", encoding="utf-8")
    return path


def test_a_margin_is_added_and_held_against_the_interval(answered: Answer, points: Path) -> None:
    row = answered.rows[0]
    for margin, committed_s, basis in (
        (None, row.high_s, "upper end of the 90 % interval"),
        (0.5, row.report_s * 1.005, "0.5 % margin, below the upper end"),
        (900.0, row.report_s * 10, "900 % margin, at or above the upper end"),
    ):
        made = bid(answered, points=points, margin=margin)
        assert made.commitment_s == pytest.approx(committed_s)
        assert basis in made.basis


def test_what_cannot_be_offered_is_refused(answered: Answer, points: Path) -> None:
    for margin in (-1.0, float("nan"), 5000.0):
        with pytest.raises(UsageError, match="--margin"):
            bid(answered, points=points, margin=margin)
    with pytest.raises(NlpBenchError, match="nothing to offer"):
        bid(replace(answered, rows=()), points=points)
    other = replace(answered, problem=replace(answered.problem, precision="fp16"))
    with pytest.raises(UsageError, match="--bid: planned in fp16, but a run trains in bf16; leave --precision out"):
        bid(other, points=points)


def test_the_command_runs_what_is_offered(answered: Answer, points: Path) -> None:
    """The options go through the command line, the resolver and back into the planner: same sizes, same prediction."""
    made = bid(answered, points=points)
    words = shlex.split(made.commands["submit"])
    assert words[:2] == ["nlp-bench", "submit"]
    run = resolve(from_options(parser_of("check").read(words[2:])), ask_scheduler=False)
    again = configuration_of(run, read_constants())
    assert sizes_of(again, 0) == made.row.sizes
    (row,) = rows_of(again, answered.problem)
    assert (row.report_s, row.memory_gib) == pytest.approx((made.row.report_s, made.row.memory_gib))


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_the_sheet_says_everything(answered: Answer, points: Path, form: str) -> None:
    text = FORMATS[form](bid(answered, points=points))
    row = answered.rows[0]
    plain = re.sub(r"\\(.)", r"\1", text)
    figures = (f"{row.report_s:.1f} s", f"{row.memory_gib:.1f} of 40 GiB")
    for words in (*figures, "J1", "JUPITER suite", "Not measured", "plan.toml"):
        assert words in plain
    assert "It is a prediction, not a measurement." in re.sub(r"\s+", " ", plain)
    assert "For the buyer" in plain


def test_predicted_stands_at_every_figure_of_the_offer(answered: Answer, points: Path) -> None:
    """Each line with a figure that the planner made says so, in every form for people."""
    row, made = answered.rows[0], bid(answered, points=points, margin=3.0)
    figures = (row.report_s, row.low_s, row.high_s, made.commitment_s)
    words = [*(f"{value:.1f} s" for value in figures), f"{row.tokens_per_second:,.0f}", f"{row.memory_gib:.1f} of"]
    lines = [line for line in FORMATS["markdown"](made).splitlines() if any(word in line for word in words)]
    assert len(lines) >= 4
    for line in lines:
        assert "predicted" in line, line


def test_the_record_is_json_with_a_schema(answered: Answer, points: Path) -> None:
    record = json.loads(FORMATS["json"](bid(answered, points=points)))
    assert record["schema"] == "nlp-bench/bid/1"
    assert record["predicted"]["report_time_s"] == answered.rows[0].report_s
    assert record["nearest_measurements"][0]["identity"] == "J1"
    assert record["configuration"]["tp"] == answered.rows[0].sizes.tp


def test_text_of_strangers_is_inert(answered: Answer, points: Path) -> None:
    text = points.read_text().replace("GPT3-175B", "<script>alert(1)</script>|`x`")
    points.write_text(text)
    made = bid(answered, points=points)
    assert "<script>" not in FORMATS["html"](made)
    assert "\\<script\\>" in FORMATS["markdown"](made)


NUMBERS = {
    "params_b": 175.0, "n_gpus": 384, "tp": 8, "pp": 8, "vpp": 1, "cp": 1, "mbs": 1, "gbs": 96, "seq": 2048,
    "gpus_per_node": 4, "internode_gbps_per_node": 800,
}  # fmt: skip
OFFER = Offered(gpu="NVIDIA A100-SXM4-40GB", precision="bf16", recompute="selective", numbers=NUMBERS)


def changed(**numbers: float) -> Offered:
    return replace(OFFER, numbers=NUMBERS | numbers)


def test_the_same_configuration_is_nearest_and_has_no_difference(points: Path) -> None:
    rows = read_points(points)
    assert [row["id"] for row in rows] == ["J1", "K1", "K1b", "H1", "F1"], "only those with a steady time count"
    first, *others = nearest(OFFER, rows)
    assert (first.identity, first.distance, first.differences) == ("J1", 0, ())
    assert first.iteration_s == 5.4529
    assert [point.identity for point in others] == ["H1", "K1"]  # one of twins, and no other family of frameworks
    assert [point.distance for point in others] == sorted(point.distance for point in others)


def test_what_is_not_published_counts_half_a_factor_of_two(points: Path) -> None:
    (row,) = [one for one in read_points(points) if one["id"] == "J1"]
    distances = [
        nearest(OFFER, [{**row, **change}])[0].distance for change in ({"vpp": ""}, {"n_gpus": "768"}, {"gpu": "A100"})
    ]
    assert distances == [0.25, 1.0, 0.5]


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
        *(
            (replace(OFFER, gpu=f"{maker} X900"), "GPU type: no published measurement on X900")
            for maker in ("NVIDIA", "AMD Instinct", "Tesla")
        ),
        (replace(OFFER, precision="fp8"), "number format: fp8"),
        (OFFER, "tensor-parallel group over several nodes: 1 measurements on A100 have one"),
        (OFFER, "software: the measurements are of other trainers on the same libraries (Megatron-LM, NeMo)"),
    ],
)
def test_what_is_outside_is_named(points: Path, offer: Offered, words: str) -> None:
    assert any(words in sentence for sentence in extrapolated(offer, read_points(points)))


def test_what_is_inside_or_not_used_is_not_named(points: Path) -> None:
    rows = [{**row, "vpp": "6", "cp": "2"} for row in read_points(points)]
    said = " ".join(extrapolated(OFFER, rows))
    used = ("number of GPUs", "model size", "GPU type", "sequence length", "number format")
    assert not any(words in said for words in (*used, "virtual stages", "context-parallel"))


def test_the_name_of_a_data_sheet_is_that_of_its_points(points: Path) -> None:
    rows = [{**row, "gpu": "MI325X"} for row in read_points(points)]
    assert nearest(replace(OFFER, gpu="AMD Instinct MI325X"), rows)[0].differences == ()


H100, SXM = "NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"


@pytest.mark.parametrize(
    ("offer", "other", "is_one"),
    [
        (H100, SXM, True),
        (H100, "H100-SXM-96GB-HBM2e-500W", False),
        (H100, "NVIDIA H100 PCIe", False),
        ("NVIDIA H200", "H200-SXM-141GB", True),
        ("NVIDIA B200", "B200-SXM", True),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-80GB", False),
        ("NVIDIA A100-SXM4-40GB", "A100", False),  # of 40 or of 80 GB
    ],
)
def test_one_product_in_two_spellings_is_no_difference(points: Path, offer: str, other: str, is_one: bool) -> None:
    rows = [{**row, "gpu": other} for row in read_points(points)]
    found = nearest(replace(OFFER, gpu=offer), rows)[0]
    assert found.differences == (() if is_one else (f"GPU {other} (offer {offer})",))
    assert found.distance == (0 if is_one else 0.5)


def test_an_h100_can_be_measured_by_others(points: Path) -> None:
    asked = problem("175", "dgx-h100", nodes=48)
    (row,) = rows_of(configuration(asked, asked.published), asked)
    same = {name: f"{value:g}" for name, value in offered(asked, row.sizes).numbers.items()}
    rows = [{**read_points(points)[0], **same, "gpu": gpu} for gpu in (SXM, "H100-SXM-96GB-HBM2e-500W")]
    (said,) = measured_by_others(asked, row.sizes, row.report_s, rows)
    assert said.startswith("554.7 s (J1: GPT3-175B, Megatron-LM, bf16)")


def test_a_sheet_of_an_h100_has_no_difference_of_its_name(cli: Cli) -> None:
    words = ("--model", "175", "--system", "dgx-h100", "--nodes", "64", "--tp", "4", "--pp", "8", "--vpp", "6")
    near = cli("plan", *words, "--bid", "--format", "json").json["nearest_measurements"]
    assert any(f" x {SXM}, " in point["what"] for point in near)
    assert not [said for point in near for said in point["differences"] if said.startswith(f"GPU {SXM}")]


def test_without_points_nothing_is_near(tmp_path: Path) -> None:
    assert nearest(OFFER, []) == ()
    assert any("GPU type: no published measurement" in sentence for sentence in extrapolated(OFFER, []))
    with pytest.raises(NlpBenchError, match=r"nowhere\.csv cannot be read"):
        read_points(tmp_path / "nowhere.csv")


def test_the_published_run_of_the_reference_machine_is_found(answered: Answer) -> None:
    row, points = answered.published, known_points()
    (text,) = measured_by_others(answered.problem, row.sizes, row.report_s, points)
    assert text.startswith("554.7 s (JSC-001: GPT3-175B, Megatron-LM, ")
    assert f"{100 * abs(row.report_s / 554.7 - 1):.0f} %" in text
    for word, number in (("bf16", 1), ("fp32", 0)):  # what was measured in 16 bit is no run in 32
        other = replace(answered.problem, precision=word)
        assert len(measured_by_others(other, row.sizes, row.report_s, points)) == number


def test_a_format_that_no_run_trains_in_is_named_and_hides_nothing(answered: Answer) -> None:
    own = beyond_published(answered, known_points())
    other = beyond_published(replace(answered, problem=replace(answered.problem, precision="fp16")), known_points())
    assert any("software: " in text for text in own)
    assert other[0] == "number format: planned in fp16, but a run trains in bf16"
    assert other[1:] == own
    assert beyond_published(replace(answered, rows=()), known_points()) == ()


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    pytest.importorskip("playwright", reason="the browser is driven by the package playwright (extra `test`)")
    with browser() as found:
        yield found


def colour(page: Any, selector: str, name: str) -> tuple[int, ...]:
    text = page.eval_on_selector(selector, f"(e) => getComputedStyle(e).{name}")
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


@pytest.mark.parametrize(
    ("width", "scheme"), [pytest.param(*size, marks=NEEDS_BROWSER) for size in ((1280, "light"), (390, "dark"))]
)
def test_it_is_quiet_and_readable(
    started: Any, answered: Answer, points: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "bid.html"
    path.write_text(FORMATS["html"](bid(answered, points=points)), encoding="utf-8")
    with looked_at(started, path, width=width, height=900, scheme=scheme) as seen:
        assert seen.said == []
        assert seen.requests == [path.as_uri()]
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        paper = colour(seen.page, ".verdict", "backgroundColor")
        assert (sum(paper) < 300) is (scheme == "dark")
        assert contrast(colour(seen.page, ".verdict", "color"), paper) > 7
        printed = seen.page.pdf(prefer_css_page_size=True)
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
