"""T5 and BERT are counted as what they are, never as GPTs."""

import pytest

from nlp_bench.layout.shape import BertShape, T5Shape
from nlp_bench.measure.shape import shaped
from nlp_bench.measure.workload import Setting, Value, Workload, workload_of

SHAPE: dict[str, Value] = {
    "num_layers": 12, "hidden_size": 768, "ffn_hidden_size": 2048, "num_attention_heads": 12, "seq_length": 512,
    "padded_vocab_size": 29184, "sequence_parallel": False,
}  # fmt: skip


def logged(**values: Value) -> Workload:
    return Workload(logged={name: Setting(value, "log line 1") for name, value in {**SHAPE, **values}.items()})


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
