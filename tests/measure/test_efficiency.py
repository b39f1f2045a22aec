"""FLOP/s and utilisation of runs: from dumps of arguments, run folders and published tables; what is missing is said."""

from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.megatron_log import dump
from support.published import change_record, published_log, write_run
from support.repeated import write_log

from nlp_bench.errors import UsageError
from nlp_bench.inputs.reference import read_reference_table
from nlp_bench.layout.shape import BertShape, T5Shape
from nlp_bench.measure.efficiency import COLUMNS, NOTHING_GIVEN, Efficiency, Given, with_given
from nlp_bench.measure.folder import measure_folder
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.shape import shaped
from nlp_bench.measure.sizes import Overrides
from nlp_bench.measure.workload import Setting, Value, Workload, workload_of
from nlp_bench.report.explain import efficiency_facts

REFERENCE = Path(__file__).resolve().parents[2] / "reports" / "reference" / "juwels_booster" / "results.csv"
A100 = Given(gpu="NVIDIA A100-SXM4-40GB")
DUMP = {
    "hidden_size": 12288, "num_layers": 96, "num_attention_heads": 96, "ffn_hidden_size": 49152, "kv_channels": 128, "seq_length": 2048,
    "padded_vocab_size": 51200, "world_size": 384, "bf16": True, "sequence_parallel": True, "recompute_granularity": "selective",
    "use_flash_attn": True, "swiglu": False,
}  # fmt: skip


def measured(folder: Path, given: Given = NOTHING_GIVEN, num_gpus: int | None = 384, **changes: Any) -> RunResult:
    """A log of Megatron-LM with its dump of arguments and the five published lines; None leaves an argument out."""
    values = {name: value for name, value in (DUMP | changes).items() if value is not None}
    path = folder / "job.log"
    path.write_text(dump(**values) + published_log())
    (entry,) = with_given(measure_log(str(path), Overrides(num_gpus=num_gpus)), given)
    return entry


def efficiency(entry: RunResult) -> Efficiency:
    assert entry.efficiency
    return entry.efficiency


def test_the_four_counts_of_the_published_lines(tmp_path: Path) -> None:
    entry = measured(tmp_path, A100)
    found, rate = efficiency(entry), (entry.steady or 0) / 384 / 1e12
    flops = (1061947441152, 1076442955776, 1064363360256, 1433998983168)
    counted = [found.cells()[name] for name in COLUMNS[:4]]
    assert counted == pytest.approx([value * rate for value in flops], rel=1e-9)
    shares = [counted[0] or 0, counted[2] or 0, counted[1] or 0]
    assert [found.mfu, found.hfu, found.mfu_full_attention] == pytest.approx([value / 312 for value in shares])
    assert (found.rate, found.why_not) == ("steady", ())
    assert found.stated == (
        "the log's TFLOPs 137.89 (line 19) is the count: legacy x4/3 count of the published tables; it differs by 0.00 %",
    )


def test_the_explanation_has_every_count_with_formula_peak_and_source(tmp_path: Path) -> None:
    text = "\n".join(" ".join(fact) for fact in efficiency_facts(measured(tmp_path, A100)))
    formulas = ("1/2 4 s q", "24 x 4 l h^2", "l core/4", "HFU")
    for words in (*formulas, "NVIDIA A100 data sheet", "174,590,681,088 parameters"):
        assert words in text
    assert text.count("MFU ") == 2


@pytest.mark.parametrize(
    ("changes", "hardware", "legacy"),
    [
        ({"recompute_granularity": None}, "(no recompute was asked for)", 3),
        ({"recompute_granularity": None, "recompute_activations": True}, "(selective", 4),
        ({"transformer_impl": "transformer_engine"}, "l core/2 (selective recompute)", 4),
        ({"use_flash_attn": False}, "model, full attention + l core (selective recompute)", 4),
        ({"recompute_granularity": "full", "recompute_method": "uniform"}, "96 of 96 layers", 4),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 3, "pipeline_model_parallel_size": 8,
          "virtual_pipeline_model_parallel_size": 2}, "48 of 96 layers", 4),
    ],
)  # fmt: skip
def test_the_recompute_that_ran(tmp_path: Path, changes: dict[str, Any], hardware: str, legacy: int) -> None:
    text = "\n".join(" ".join(fact) for fact in efficiency_facts(measured(tmp_path, **changes)))
    assert hardware in text
    assert f"24 x {legacy} l h^2" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(({name: value}, f"no FLOPs: {name} is {value}, and only whole dense transformers with full attention") for name, value in (
            ("num_experts", 8), ("multi_latent_attention", True), ("window_size", "(128, 0)"), ("is_hybrid_model", True),
            ("hybrid_override_pattern", "M-M*-"), ("mtp_num_layers", 1), ("lora_r", 16), ("vision_model_type", "internvit"),
            ("freeze_LM", True), ("freeze_ViT", True), ("experimental_attention_variant", "dsa"),
        )),
        ({"num_layers": None, "hidden_size": None}, "num_layers, hidden_size not known"),
        ({"padded_vocab_size": None}, "padded_vocab_size not known"),
        ({"decoder_seq_length": 128}, "decoder_seq_length is stated, so that it is no GPT"),
        ({"kv_channels": None, "num_attention_heads": 100}, "hidden_size: 12288 is not a multiple of num_attention_heads = 100"),
        ({"group_query_attention": True, "num_query_groups": 7}, "is not a multiple of num_query_groups = 7"),
        ({"swiglu": None, "ffn_hidden_size": 32768}, "swiglu not known"),
        ({"hidden_size": "wide"}, "hidden_size not known"),
        ({"hidden_size": -5}, "hidden_size not known"),
        ({"hidden_size": "1e999"}, "hidden_size not known"),
        ({"num_layers": "1e300"}, "num_layers not known"),
        ({"num_layers": 96.5}, "num_layers not known"),
    ],
)  # fmt: skip
def test_a_shape_that_is_not_known_gives_no_number(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    found = efficiency(measured(tmp_path, A100, **changes))
    assert set(found.cells().values()) == {None}
    assert len(found.why_not) == 1
    assert words in found.why_not[0]
    assert all("counting is unknown" in text for text in found.stated)
    assert found.stated


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recompute_granularity": None, "sequence_parallel": None}, "what was recomputed is not known"),
        ({"recompute_granularity": "some"}, "'some' is none of none, selective, full"),
        ({"use_flash_attn": None}, "whether one fused kernel computes the attention"),
        ({"recompute_granularity": "full", "recompute_method": "block"}, "needs recompute_num_layers"),
        ({"recompute_granularity": "full", "recompute_method": "half"}, "recompute_method is 'half'"),
    ],
)
def test_without_the_recompute_the_model_still_counts(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    found = efficiency(measured(tmp_path, A100, **changes))
    assert found.hardware_tflops_per_gpu is None
    assert found.mfu
    assert found.hfu is None
    assert words in found.why_not[0]


@pytest.mark.parametrize(
    ("given", "changes", "words"),
    [
        (NOTHING_GIVEN, {}, "the name of the GPU is not known (give --gpu NAME)"),
        (A100, {"bf16": None}, "the number format is not known (give --precision FORMAT)"),
        (A100, {"bf16": False}, "fp32 and not whether the matrix products ran in TF32"),
        (A100, {"bf16": False, "fp8": "hybrid"}, "has no fp8 peak for NVIDIA A100 SXM"),
        (Given(gpu="NVIDIA A30"), {"world_size": 4}, None),
        *((A100, {"num_experts": one}, None) for one in ("None", "[1]", 1)),
        (Given(gpu="NVIDIA A100-SXM4-40GB", precision="fp32"), {}, "more than the peak of 19.5"),
    ],
)
def test_a_peak_that_is_not_known_gives_no_utilisation(
    tmp_path: Path, given: Given, changes: dict[str, Any], words: str | None
) -> None:
    found = efficiency(measured(tmp_path, given, **changes))
    assert found.model_tflops_per_gpu
    assert (found.mfu is None, found.hfu is None) == (words is not None,) * 2
    assert words is None or words in found.why_not[-1]


@pytest.mark.parametrize(("gpu", "precision"), [("NVIDIA H900", None), ("A100", "fp8"), ("V100", "bf16")])
def test_a_given_gpu_that_has_no_peak_is_refused_before_anything_is_read(gpu: str, precision: str | None) -> None:
    with pytest.raises(UsageError, match=gpu if precision is None else precision):
        Given(gpu=gpu, precision=precision)


def test_what_is_given_against_the_log_is_said(tmp_path: Path) -> None:
    found = efficiency(measured(tmp_path, Given(gpu="A100", precision="fp16")))
    assert found.peak.number_format == "fp16"
    assert any("--precision fp16 is used although log line 10 says 'bf16'" in text for text in found.assumed)


def test_an_option_that_says_what_the_log_says_refuses_nothing(tmp_path: Path, report: Cli) -> None:
    log = write_log(tmp_path / "job.log", 120_000, ffn_hidden_size=16384, padded_vocab_size=51200, swiglu=False)
    log.write_text(f" > device: {A100.gpu}\n{log.read_text()}")
    found = report(log, "--gpu", A100.gpu, "--format", "json", code=None).json["runs"][0]
    assert (found["outcome"], found["reasons"], found["supplied"]) == ("VALID", [], [])


def test_the_counting_of_a_log_that_agrees_with_none_is_said(tmp_path: Path) -> None:
    (text,) = efficiency(measured(tmp_path, seq_length=4096)).stated
    assert "is none of the counts (model " in text
    assert "% off" in text


def test_a_run_folder_of_ours_knows_everything(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    names = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads")
    shape = {name: DUMP[name] for name in names} | {"vocab_size": 50257}
    architecture = {**shape, "sequence_length": 2048, "position_embedding": "rope"}
    change_record(
        folder, "run.json", model__architecture=architecture, system__gpu={"name": "NVIDIA A100-SXM4-40GB"},
        training__precision="bf16", training__recompute="selective",
    )  # fmt: skip
    entry = measure_folder(folder, "run").entry
    record = entry.to_json(20_000_000)["efficiency"]
    assert record["why_not"] == []
    assert record["flops_per_token"]["hardware"] == 1064363360256
    assert record["num_parameters"] == 174590681088
    assert record["peak"]["tflops"] == 312
    assert record["mfu"] == pytest.approx(record["model_tflops_per_gpu"] / 312)
    assert record["assumed"] == ["vocabulary of 50257 padded to 51200, a multiple of 128 x 8 (tensor parallel)"]
    change_record(folder, "run.json", system__accelerator="cpu")
    found = efficiency(measure_folder(folder, "run").entry)
    assert found.model_tflops_per_gpu
    assert found.mfu is None
    assert "CPUs" in found.why_not[0]


def test_a_run_without_a_number_has_no_flops(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", outcome="FAILED")
    entry = measure_folder(folder, "run").entry
    assert entry.efficiency is None
    assert entry.to_json(1)["efficiency"] is None
    assert list(efficiency_facts(entry)) == []


def test_the_published_table_gets_the_shape_that_the_rules_freeze() -> None:
    entries = with_given(read_reference_table(REFERENCE), Given(gpu="A100", precision="bf16"))
    found = {entry.source: efficiency(entry) for entry in entries}
    row = found["JUWELS Booster 175B 96 nodes"]
    assert row.legacy_tflops_per_gpu == pytest.approx(36055.39 * 1433998983168 / 384 / 1e12)
    assert row.mfu == pytest.approx(0.3196, abs=1e-4)
    assert row.rate == "reference"
    assert found["JUWELS Booster 13B 8 nodes"].legacy_tflops_per_gpu == pytest.approx(206.885, abs=0.01)


def test_without_the_number_of_gpus_nothing_is_per_gpu(tmp_path: Path) -> None:
    found = efficiency(measured(tmp_path, num_gpus=None, world_size=None))
    assert set(found.cells().values()) == {None}
    assert "--num-gpus" in found.why_not[-1]


# T5 and BERT are counted as what they are, never as GPTs.

FAMILY: dict[str, Value] = {
    "num_layers": 12, "hidden_size": 768, "ffn_hidden_size": 2048, "num_attention_heads": 12, "seq_length": 512,
    "padded_vocab_size": 29184, "sequence_parallel": False,
}  # fmt: skip


def logged(**values: Value) -> Workload:
    return Workload(logged={name: Setting(value, "log line 1") for name, value in {**FAMILY, **values}.items()})


def test_the_logs_of_a_t5_and_a_bert_give_their_shapes() -> None:
    values = {"model_family": "t5", "decoder_seq_length": 128, "decoder_num_layers": 6, "geglu": True, "swiglu": False}
    found = shaped(logged(**values)).shape
    assert isinstance(found, T5Shape)
    assert (found.num_layers, found.num_decoder_layers) == (12, 6)
    assert (found.decoder_sequence_length, found.gated) == (128, True)
    bert = shaped(logged(model_family="bert", swiglu=False, bert_no_binary_head=True)).shape
    assert isinstance(bert, BertShape)
    assert not bert.binary_head


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model_family": "t5", "swiglu": False}, "no FLOPs: decoder_seq_length not known"),
        ({"model_family": "vit", "swiglu": False}, "no FLOPs: model_family 'vit' is none of gpt, t5, bert"),
    ],
)
def test_what_is_not_known_is_refused(values: dict[str, Value], words: str) -> None:
    found = shaped(logged(**values))
    assert found.shape is None
    assert words in found.why_not[0]


def test_a_run_json_of_ours_gives_the_shape_of_its_family() -> None:
    architecture = {
        "num_layers": 8, "hidden_size": 512, "ffn_hidden_size": 1024, "num_attention_heads": 6, "head_width": 64, "activation": "geglu",
        "sequence_length": 512, "decoder_sequence_length": 128, "vocab_size": 250000, "vocab_extra_ids": 100,
    }  # fmt: skip
    run = {"model": {"name": "mt5_170m", "family": "mt5", "architecture": architecture}, "parallel": {"tensor": 1}}
    found = shaped(workload_of(run, {})).shape
    assert isinstance(found, T5Shape)
    assert (found.query_width, found.gated, found.padded_vocab_size) == (384, True, 250112)


def test_what_run_json_says_of_a_family_stands_under_megatron_lms_names() -> None:
    architecture = {
        "activation": "gelu", "head_width": 96, "num_query_groups": 4, "normalization": "RMSNorm",
        "decoder_sequence_length": 128, "vocab_extra_ids": 100,
    }  # fmt: skip
    found = workload_of({"model": {"family": "t5", "architecture": architecture}}, {})
    names = ("activation", "kv_channels", "num_query_groups", "normalization", "decoder_seq_length", "vocab_extra_ids")
    assert [found.value(name) for name in names] == ["gelu", 96, 4, "RMSNorm", 128, 100]


@pytest.mark.parametrize(
    ("tensor", "asked", "is_on"), [(2, True, True), (2, False, False), (1, True, False), (1, None, False)]
)
def test_sequence_parallelism_is_on_where_it_was_asked_for_and_tensor_parallel_ranks_share_a_layer(
    tensor: int, asked: bool | None, is_on: bool
) -> None:
    run = {"model": {"family": "gpt"}, "parallel": {"tensor": tensor}, "tuning": {"sequence_parallel": asked}}
    found = workload_of(run, {}).configured("sequence_parallel")
    assert found.value is is_on


def test_no_recompute_is_no_setting() -> None:
    found = [workload_of({"training": {"recompute": word}}, {}) for word in ("none", "full")]
    assert [each.value("recompute_granularity") for each in found] == [None, "full"]
