"""Published tables as configurations: what is read, what is not, which rules fill blanks."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import Cli
from support.planning import constants

from nlp_bench.layout.rules import RECOMPUTE, SHARDING
from nlp_bench.plan.configurations import GENERATIONS
from nlp_bench.plan.constants import overridden
from nlp_bench.plan.predict import OPTIONAL, REQUIRED, points_of, precision_of, predictions_of, read_rows, year_of
from nlp_bench.show.table import as_csv

POINTS = Path(__file__).parents[2] / "reports/reference/published_points/points.csv"
ROW = {
    "id": "a", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336", "gated_mlp": "1", "vocab": "128256",
    "seq": "8192", "gpu": "H100-SXM5-80GB", "n_gpus": "64", "tp": "2", "pp": "4", "mbs": "1", "gbs": "128", "precision": "bf16",
    "framework": "Megatron-LM", "software_version": "2024-07",
}  # fmt: skip


SWITCHES = ("distributed_optimizer", "sequence_parallel", "gated_mlp")


def row(**changes: Any) -> dict[str, str]:
    return {**dict.fromkeys((*REQUIRED, *OPTIONAL), ""), **ROW, **{name: str(value) for name, value in changes.items()}}


def spread(**changes: Any) -> dict[str, float]:
    c = points_of([row(**changes)], constants()).configurations
    return {name: float(np.ravel(value)[0]) for name, value in vars(c.spread).items()}


def reason(**changes: Any) -> str:
    return points_of([row(**changes)], constants()).refused["a"]


def framework(**changes: Any) -> str:
    return constants().frameworks[int(points_of([row(**changes)], constants()).configurations.framework[0])]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.slow
def test_the_table_of_predictions(cli: Cli, tmp_path: Path) -> None:
    """What was measured is not read: with other numbers there the predictions are the same."""
    shown, table = cli("plan", "predict", POINTS), rows_of(POINTS.read_text())
    measured = set(table[0]) - {*REQUIRED, *OPTIONAL}
    assert {"iter_time_s", "peak_mem_gb", "value", "tokens_per_s_per_gpu"} <= measured
    spoiled = [one | dict.fromkeys(measured, "12345") for one in table]
    (tmp_path / "points.csv").write_text(as_csv(table[0], spoiled))
    cli("plan", "predict", tmp_path / "points.csv", "--output", tmp_path / "predicted.csv")
    assert (tmp_path / "predicted.csv").read_text() == shown.out
    rows = rows_of(shown.out)
    contract = ["id", "iter_time_s", "iter_time_s_lo90", "iter_time_s_hi90", "peak_mem_gb", "fits"]
    assert list(rows[0]) == [*contract, "away", "refused"]
    assert all(bool(one["iter_time_s"]) != bool(one["refused"]) for one in rows)
    assert [one["id"] for one in rows] == [one["id"] for one in table]
    told = [one for one in rows if one["iter_time_s"]]
    assert len(told) == 659
    assert {one["fits"] for one in told} <= {"yes", "tight", "no"}
    for one in told:
        assert float(one["iter_time_s_lo90"]) < float(one["iter_time_s"]) < float(one["iter_time_s_hi90"])
    assert "gbs is blank, and no rule fills it" in shown.err
    assert "and 6 more: precision '' is no number format" in shown.err


@pytest.mark.parametrize("id_", ["-5", "=A1", "a;b"])
def test_an_id_stays_as_it_is(tmp_path: Path, cli: Cli, id_: str) -> None:
    """By it a prediction is joined with its row."""
    points = tmp_path / "points.csv"
    points.write_text(f"{','.join(row())}\n{','.join(row(id=id_).values())}\n")
    assert [one["id"] for one in rows_of(cli("plan", "predict", points).out)] == [id_]


HEAD = f"{','.join(REQUIRED)}\n".encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"id,layers,hidden\na,1,2\n", "no column heads, ffn, vocab, seq, gpu, n_gpus, tp, pp, mbs, gbs, precision"),
        (HEAD + b"x,1\nx,1\n", "id 'x' stands in 2 rows"),
        (HEAD + b"\x1b[31mx,1\n", r"id '\x1b[31mx' has a character that a terminal does not print"),
        (b"\xff\xfe\x00", "UTF-8"),
        (None, "cannot read"),
    ],
)
def test_what_is_no_table_of_points_is_refused(tmp_path: Path, cli: Cli, content: bytes | None, said: str) -> None:
    if content:
        (tmp_path / "points.csv").write_bytes(content)
    assert said in cli("plan", "predict", tmp_path / "points.csv", code=2).err


def test_a_table_may_be_empty_and_saved_by_a_spreadsheet(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_bytes("\ufeff".encode() + HEAD + b",,,\n,,,\n")
    assert read_rows(tmp_path / "points.csv") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu": "Cerebras WSE-3"}, "is not in benchmark/accelerators.toml.*\\[\\[accelerator\\]\\]"),
        ({"gpu": "TPU v5p"}, "has no generation, memory and link_gb_per_s"),
        ({"gpu": ""}, "gpu is blank"),
        ({"gpu": "A100-SXM4", "gpu_mem_gb": "40960"}, "^gpu_mem_gb = 40960 is not within 0.1 to 16384 GiB; write 80 for 80 GB"),
        ({"gpu_mem_gb": "42949672960"}, "^gpu_mem_gb = 42949672960 is not within"),
        ({"gpu": "A100-SXM4-40GB", "gpu_mem_gb": "80"}, "^gpu_mem_gb = 80, but gpu = 'A100-SXM4-40GB' has 40"),
        ({"tp": ""}, "tp is blank, and no rule fills it"),
        ({"gbs": "many"}, "gbs = 'many' is not a number above 0"),
        ({"layers": "-1"}, "layers = '-1' is not"),
        ({"layers": "0.5"}, "layers = '0.5' is not a whole number"),
        ({"hidden": "1e300"}, "hidden = '1e300' is not a whole number up to 1e"),
        ({"seq": "nan"}, "seq = 'nan' is not"),
        ({"precision": "posit8"}, "'posit8' is no number format"),
        ({"tp": "32", "pp": "64"}, "n_gpus: nodes\\*gpus_per_node = 64 is not a multiple of tp\\*pp = 2048"),
        ({"tp": "3", "pp": "1"}, "n_gpus: nodes\\*gpus_per_node = 64 is not a multiple of tp\\*pp = 3"),
        ({"dp": "4"}, "dp = 4 is not n_gpus / \\(tp x pp x cp\\) = 64 / 8"),
        ({"tp": "64", "pp": "1"}, "tp: num_attention_heads = 32 is not a multiple of tp = 64"),
        ({"heads": "30", "tp": "2"}, "hidden = 4096 is not a multiple of heads = 30 \\(remainder 16\\)"),
        ({"head_dim": "64"}, "head_dim = 64 is not hidden / heads = 128"),
        ({"fabric": "token ring"}, "fabric = 'token ring' is none of nvlink-domain, infiniband, efa, slingshot, omni-path, ethernet, unknown"),
        ({"ep": "8"}, "ep = '8': expert parallelism is not predicted"),
        ({"ep": "many"}, "ep = 'many': expert parallelism"),
        ({"ep": "\x1b[31m8"}, r"ep = '\\x1b\[31m8': expert"),
        ({"num_experts": "128", "ep": "1"}, "num_experts = '128': a mixture of experts is not predicted"),
        ({"expert_ffn": "768"}, "expert_ffn = '768': a mixture"),
        ({"attention": "mla 1536/512/128/64/128"}, "attention = 'mla 1536/512/128/64/128' is not predicted"),
        ({"sliding_window": "128"}, "sliding_window = '128' below seq = 8192 is not predicted"),
        ({"sharding": "banana"}, "sharding = 'banana': unknown word 'banana'; known are none, ddp, .*hsdp"),
        ({"sharding": "FSDPx8"}, "unknown word 'fsdpx8'"),
        ({"precision": "xfp8y"}, "'xfp8y' is no number format; known are bf16,"),
        ({"gpu": "A100-SXM4-80GB", "precision": "fp8"}, "has no fp8 peak"),
        *(({"recompute": word}, f"recompute = '{word}' is none of none, selective, full") for word in ("yes", "uniform", "1")),
        ({"vpp": "7"}, "^vpp: num_layers = 32 is not a multiple of pp\\*vpp = 4\\*7"),
        ({"vpp": "2", "pp": "1"}, "^vpp: vpp = 2 needs pp above 1"),
        ({"kv_heads": "7"}, "^heads = 32 is not a multiple of kv_heads = 7"),
        ({"kv_heads": "4", "tp": "8"}, "^tp: num_query_groups = 4 is not a multiple of tp = 8"),
        ({"layers": "33"}, "^pp: num_layers = 33 is not a multiple of pp = 4"),
        ({"gbs": "95"}, "^gbs: global_batch_size = 95 is not a multiple of dp\\*micro_batch_size = 8\\*1"),
        ({"mbs": "64", "gbs": "96"}, "^gbs: global_batch_size = 96 is not a multiple of dp\\*micro_batch_size = 8\\*64"),
        ({"params_b": "13"}, "^params_b = 13, but layers, hidden, heads, kv_heads, ffn, gated_mlp and vocab make 7.505 to 8.03"),
        ({"params_b": "175B"}, "^params_b = '175B' is not a number above 0"),
        *(({name: "FALSCH"}, f"^{name} = 'FALSCH' is neither yes .1, true, on. nor no .0, false, off.") for name in SWITCHES),
    ],
)  # fmt: skip
def test_rows_that_no_rule_completes_are_refused(changes: dict[str, Any], words: str) -> None:
    assert re.search(words, reason(**changes), re.DOTALL)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_table_says_yes_and_no_in_any_case(name: str) -> None:
    words = (("0", "FALSE", "False", "No", "off", "n", "0.0"), ("1", "TRUE", "Yes", "ON", "y", "true", "1.0"))
    found = [predictions_of([row(id=one, **{name: one}) for one in group], constants())[0] for group in words]
    figures = [{(one["iter_time_s"], one["peak_mem_gb"]) for one in rows} for rows in found]
    assert [len(group) for group in figures] == [1, 1]
    assert figures[0] != figures[1]


def test_what_says_nothing_more_is_no_reason() -> None:
    said = {"ep": 1, "num_experts": 0, "topk": 1, "head_dim": 128, "attention": "GQA", "sliding_window": 8192, "dp": 8}
    assert spread(**said) == spread()


@pytest.mark.parametrize(
    ("gpu", "cell"),
    [("H100-SXM5-80GB", "79.6"), ("H100-SXM5-80GB", "85.9"), ("GH200 480GB", "96"), ("A100-SXM-64GB", "64")],
)
def test_the_memory_of_a_gpu_may_be_said_in_another_way_than_by_its_name(gpu: str, cell: str) -> None:
    assert points_of([row(gpu=gpu, gpu_mem_gb=cell)], constants()).refused == {}


def test_a_name_with_the_memory_of_the_cpu_says_nothing_of_the_gpus() -> None:
    found = points_of([row(gpu="GH200 480GB", gpu_mem_gb=""), row(gpu="GH200", gpu_mem_gb="")], constants())
    assert len(set(found.configurations.machines.memory_bytes)) == 1


def test_blank_cells_follow_their_rules() -> None:
    assert spread()["data"] == 8
    assert spread()["virtual"] == 1
    assert spread(framework="NeMo")["virtual"] == 8  # one layer per chunk
    assert spread(vpp="2", framework="NeMo")["virtual"] == 2
    assert spread(mbs="")["micro_batch_size"] == 1
    assert spread(cp="")["context"] == 1
    assert spread(layers=33, framework="Megatron-DeepSpeed")["pipeline"] == 4  # DeepSpeed shares out layers unevenly
    assert spread(recompute="")["recompute"] == RECOMPUTE.index("none")
    assert spread(recompute="full (uniform)")["recompute"] == RECOMPUTE.index("full")
    assert spread(recompute="Selective")["recompute"] == RECOMPUTE.index("selective")
    huge = {"recompute": "", "mbs": 16, "gbs": 1024, "tp": 1, "pp": 1}
    assert spread(**huge)["recompute"] == RECOMPUTE.index("full")  # 8B with 131072 tokens on 80 GB
    assert spread(**{**huge, "recompute": "none"})["recompute"] == RECOMPUTE.index("none")  # what is stated stands
    ends = spread(layers="126", pp="8", vpp="8", tp="8")
    assert (ends["first_layers"], ends["last_layers"]) == (15, 15)


@pytest.mark.parametrize(
    ("words", "changes", "expected", "group"),
    [
        ("", {}, "none", 1),
        ("", {"distributed_optimizer": "1"}, "optimizer", 8),
        ("ZeRO-1 over 4", {"distributed_optimizer": "1"}, "optimizer", 4),
        ("FSDP", {"pp": "1"}, "parameters", 32),
        ("FSDP=8", {"pp": "1"}, "parameters", 8),
        ("ZeRO-3", {"pp": "1"}, "parameters", 32),
        ("FSDP SHARD_GRAD_OP", {"pp": "1"}, "gradients", 32),
        ("HSDP", {"pp": "1"}, "parameters", 8),  # a node
        ("hybrid_shard", {"pp": "1"}, "parameters", 8),
        ("HSDP=16", {"pp": "1"}, "parameters", 16),
        ("FSDP+DP", {"pp": "1", "n_gpus": "256"}, "parameters", 8),  # 8B: half the memory of one node holds the state
        ("FSDP+DP", {"pp": "1", "n_gpus": "256", "layers": "128"}, "parameters", 16),
        ("ZeRO-2", {}, "gradients", 8),
        ("ZeRO-1 over all-DP", {"distributed_optimizer": "1"}, "optimizer", 8),
        ("DDP", {"framework": "PyTorch"}, "none", 1),
        ("FSDP2", {}, "gradients", 8),  # with a pipeline parameters stay gathered
    ],
)
def test_sharding_is_read_from_its_words(words: str, changes: dict[str, Any], expected: str, group: int) -> None:
    found = spread(sharding=words, **changes)
    assert (SHARDING[int(found["sharding"])], found["shard_group"]) == (expected, group)


@pytest.mark.parametrize(
    ("name", "version", "sharding", "expected"),
    [
        ("Megatron-LM", "2021", "", "Megatron-LM of 2021"),
        ("Megatron-LM", "2022", "", "Megatron-LM before flash attention"),
        ("Megatron-LM", "2024-07", "", "Megatron-LM with userbuffers"),
        ("Megatron-LM", "2023-07", "", "Megatron-LM"),
        ("Megatron-LM", "", "", "Megatron-LM"),
        ("Megatron-LM 0.14", "TE 2.11", "", "Megatron-LM"),
        ("MegaScale", "2024", "", "MegaScale"),
        ("GPT-NeoX", "2022", "ZeRO-1", "Megatron-DeepSpeed"),
        ("DeepSpeed", "2021", "ZeRO-3", "DeepSpeed ZeRO-3"),
        *(("DeepSpeed", "2022", words, "Megatron-DeepSpeed") for words in ("ZeRO-1", "ZeRO-1 over 32", "ZeRO-2=32")),
        ("fms-fsdp", "2024", "FSDP", "PyTorch FSDP"),
        ("somebody's own", "", "FSDP", "PyTorch FSDP"),
        ("somebody's own", "", "HSDP", "PyTorch FSDP"),
        ("somebody's own", "", "", "Megatron-LM"),
        ("MaxText", "25.04", "FSDP=128", "MaxText (XLA)"),
        ("NeMo", "25.04", "", "NeMo"),
        ("NeMo-Megatron", "bignlp 22.08", "", "NeMo-Megatron"),
        ("nanotron", "2024", "", "Megatron-LM"),
        ("Metaseq", "2021", "FSDP", "Metaseq (FSDP)"),
        ("Meta internal", "2024", "FSDP", "Llama 3 (Meta)"),
    ],
)
def test_frameworks_fall_to_their_family(name: str, version: str, sharding: str, expected: str) -> None:
    assert framework(framework=name, software_version=version, sharding=sharding, pp="1") == expected


def test_overlap_by_userbuffers_is_not_taken_for_granted_on_ampere() -> None:
    assert framework(framework="Megatron-LM", software_version="2024-07", gpu="A100-SXM4-40GB") == "Megatron-LM"


def seconds(**changes: Any) -> float:
    return float(predictions_of([row(**changes)], constants())[0][0]["iter_time_s"])


def test_ethernet_reaches_less_of_its_adapters_than_the_other_fabrics() -> None:
    """The published rows on RoCE, of two sources; nothing in them tells the others apart from each other."""
    infiniband = seconds(fabric="infiniband")
    assert seconds(fabric="Ethernet") > infiniband
    assert {seconds(fabric=one) for one in ("", "unknown", "efa", "slingshot", "omni-path")} == {infiniband}
    assert seconds(fabric="ethernet", n_gpus=8, pp=1) == seconds(fabric="infiniband", n_gpus=8, pp=1)  # a single node


def told(**changes: Any) -> tuple[float, float, str]:
    """Return the interval's ends as factors on the time, and in what the row is away from what was fitted."""
    ((found,), _) = predictions_of([row(**changes)], constants())
    seconds = float(found["iter_time_s"])
    return float(found["iter_time_s_lo90"]) / seconds, float(found["iter_time_s_hi90"]) / seconds, found["away"]


ALONE = {"pp": "1", "tp": "1"}
FAMILY_OF = {"torchtitan": "eager", "MaxText": "xla"}


@pytest.mark.parametrize(
    ("changes", "words", "width"),
    [
        ({}, "", 1.575),
        ({"gpu": "MI300X"}, "GPU: none of this maker was fitted", 5.71),
        ({"gpu": "B200", "framework": "torchtitan", **ALONE}, "none of this kind (eager) was fitted on blackwell", 3.635),
        ({"framework": "MaxText", **ALONE}, "its kind (xla) was fitted on hopper of one source only", 1.60),
        ({"framework": "nanotron"}, "framework: none that is known", 1.60),
        ({"gpu": "GB200", "precision": "fp32"}, "number format: fp32 was not fitted on blackwell", 1.65),
        ({"seq": "131072"}, "sequence length: 131072, fitted are 2048 to 8192", 1.71),
        ({"cp": "8", "pp": "1", "tp": "8"}, "context-parallel size: 8, fitted are 1 to 2", 1.645),
        ({"mbs": "16"}, "micro batch size: 16, fitted are 1 to 4", 1.645),
        ({"fabric": "efa"}, "fabric: efa was not fitted, predicted as InfiniBand", 1.583),
        ({"fabric": "infiniband"}, "", 1.575),
        ({"fabric": "efa", "n_gpus": "8", "pp": "1"}, "", 1.575),  # a single node has no other fabric than NVLink
        ({"internode_gbps_per_node": "100"}, "network of a GPU in Gbit/s: 12.5, fitted are 400 to 400", 1.74),
    ],
)  # fmt: skip
def test_the_interval_is_wider_away_from_what_was_fitted(changes: dict[str, Any], words: str, width: float) -> None:
    low, high, away = told(**changes)
    assert words in away if words else away == ""
    assert high / low == pytest.approx(width, rel=0.02)
    own = constants().ends[FAMILY_OF.get(changes.get("framework", ""), "megatron")]
    assert low <= own[0] + 1e-5
    assert high >= own[1] - 1e-5


def extrapolated(cli: Cli, system: str, nodes: int = 8) -> list[str]:
    shown = cli("plan", "--model", "13", "--system", system, "--nodes", nodes, "--format", "json").out
    return [one for one in json.loads(shown)["extrapolated"] if one.startswith("fabric: ")]


@pytest.mark.parametrize(
    ("system", "other", "said"),
    [
        ("aws-p5", "dgx-h100", "fabric: efa, which no measurement on H100 names; predicted as InfiniBand"),
        ("slingshot11-gh200", "jupiter-booster", "fabric: slingshot, which no measurement on any GPU names; predicted as InfiniBand"),
    ],
)  # fmt: skip
def test_a_fabric_without_measurements_is_named(cli: Cli, system: str, other: str, said: str) -> None:
    """Both machines of a pair have the same GPUs and the same rate per GPU."""
    assert extrapolated(cli, system) == [said]
    assert extrapolated(cli, other) == []
    assert extrapolated(cli, system, nodes=1) == []


def test_an_own_machine_has_its_own_interval() -> None:
    own = overridden(constants(), {"interval": {"source": "mine", "megatron": {"low": 0.95, "high": 1.1}}}, "mine.toml")
    ((found,), _) = predictions_of([row(gpu="MI300X")], own)
    assert float(found["iter_time_s_hi90"]) / float(found["iter_time_s"]) == pytest.approx(1.1, rel=1e-4)
    assert found["away"] == ""


@pytest.mark.parametrize(
    ("version", "year"),
    [
        ("2022-02-25", 2022.125), ("25.04", 2025.29), ("MLPerf v3.1", 2023.9), ("v24.11.1", 2024.87), ("2021", 2021.5),
        ("TE 2.11", None), ("", None),
    ],
)  # fmt: skip
def test_years_of_versions(version: str, year: float | None) -> None:
    found = year_of(version)
    assert found == (None if year is None else pytest.approx(year, abs=0.01))


def test_number_formats() -> None:
    words = {"bf16(jube)/fp16(sbatch)": "bf16", "fp8 (current scaling)": "fp8", "mxfp8/blockwise fp8": "mxfp8", "float8 rowwise": "fp8-rowwise", "amp_bf16": "bf16", "nvfp4": "fp4", "FP16": "fp16"}  # fmt: skip
    assert {one: precision_of(one) for one in words} == words
    # It is not fp32: its products are seven times as fast on an H100.
    assert reason(precision="tf32").startswith("precision 'tf32' is no number format")


@pytest.mark.parametrize("framework", ["Megatron-LM", "InternEvo", "torchtitan"])
def test_fp32_needs_more_memory_than_16_bits(framework: str, tmp_path: Path, cli: Cli) -> None:
    """Twice the activations, and weights of 4 bytes without a copy."""
    table = [row(id=word, precision=word, framework=framework) for word in ("bf16", "fp32")]
    (tmp_path / "points.csv").write_text(as_csv(list(table[0]), table))
    bf16, fp32 = (float(one["peak_mem_gb"]) for one in rows_of(cli("plan", "predict", tmp_path / "points.csv").out))
    assert 1.2 * bf16 < fp32 < 2 * bf16


def test_variants_of_gpus_fall_to_their_data_sheet() -> None:
    names = "H200-SXM-141GB,H200,GH200,A100-SXM4-40GB,A100-SXM4-80GB,H100-SXM-96GB-HBM2e-500W,H100 PCIe,GB300,MI300X"
    found = points_of([row(id=name, gpu=name) for name in names.split(",")], constants())
    assert not found.refused
    machines = {
        name: {field: float(value[place]) for field, value in vars(found.configurations.machines).items()}
        for place, name in enumerate(found.ids)
    }
    assert machines["H200"]["memory_bytes_per_s"] == machines["H200-SXM-141GB"]["memory_bytes_per_s"] == 4.8e12
    assert machines["A100-SXM4-40GB"]["memory_bytes_per_s"] == 1.555e12
    assert machines["A100-SXM4-80GB"]["memory_bytes_per_s"] == 2.039e12
    assert machines["GB300"]["domain"] == 72
    assert machines["GH200"]["gpus_per_node"] == 4
    assert machines["H100 PCIe"]["domain"] == 2
    capped = machines["H100-SXM-96GB-HBM2e-500W"]
    assert capped["peak_flops"] == pytest.approx(989.4e12 * (500 / 700) ** 0.4)
    assert (capped["memory_bytes_per_s"], capped["memory_bytes"]) == (2.4e12, 96 * 2**30)
    assert GENERATIONS[int(machines["MI300X"]["gpu"])] == "other"
    assert np.all(found.configurations.machines.half_flops > 0)


def test_columns_that_are_not_read_are_named(tmp_path: Path, cli: Cli) -> None:
    table = tmp_path / "points.csv"
    # The first column, without a name, is the index of a data frame.
    table.write_text(f",{','.join(ROW)},recompute_granularity\n0,{','.join(ROW.values())},full\n")
    assert f"{table}: columns that are not read: recompute_granularity\n" in cli("plan", "predict", table).err
