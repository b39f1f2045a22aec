"""T5, BERT and a Llama: every layout trains the same model, and the loss falls."""

import re
from pathlib import Path
from typing import Any

import pytest

from nlp_bench.errors import UsageError
from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout, model_shape
from nlp_bench.train.settings import Settings

MODEL = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
    "--attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 4 --train-iters 4 "
    "--log-interval 1 --lr 1e-2 --vocab-size 492"
)
MOCK = "--mock-data"
T5 = "--model-family t5 --num-layers 2 --decoder-seq-length 16 --vocab-extra-ids 20 --geglu"
BERT = "--model-family bert"
ODD_T5 = (
    "--model-family t5 --num-layers 2 --decoder-seq-length 16 --vocab-extra-ids 20 --position-embedding-type relative "
    "--disable-bias-linear --normalization RMSNorm --swiglu --untie-embeddings-and-output-weights --kv-channels 24"
)
UNEVEN_T5 = (
    "--model-family t5 --encoder-num-layers 3 --decoder-num-layers 1 --decoder-seq-length 16 --vocab-extra-ids 20"
)
LLAMA = (
    "--swiglu --disable-bias-linear --normalization RMSNorm --group-query-attention --num-query-groups 2 "
    "--untie-embeddings-and-output-weights --position-embedding-type rope --rotary-base 500000"
)
INTERLEAVED = "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"
RECOMPUTED = "--recompute-granularity full --recompute-method block --recompute-num-layers 1"
OVERLAPPED = "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
FULL = "--tensor-model-parallel-size 2 --sequence-parallel"
LAYOUTS = {
    "t5": (T5, 4, f"{INTERLEAVED} {FULL}"),
    "t5_uniform": (T5, 2, f"{INTERLEAVED} {RECOMPUTED.replace('block', 'uniform')}"),
    "odd_t5": (ODD_T5, 4, f"--pipeline-model-parallel-size 2 {OVERLAPPED} {RECOMPUTED}"),
    "uneven_t5": (UNEVEN_T5, 4, f"{FULL} --pipeline-model-parallel-size 2 --use-distributed-optimizer"),
    "bert": (BERT, 4, f"{INTERLEAVED} {FULL}"),
    "bert_alone": (f"{BERT} --bert-no-binary-head", 2, OVERLAPPED),
    "llama": (LLAMA, 2, FULL),
}
PADDED = "--short-seq-prob 0.5"
SELECTIVE, WHOLE = (
    "--recompute-granularity selective --recompute-modules",
    "--recompute-granularity full --recompute-method",
)
AGAIN = {
    "mlp": f"{SELECTIVE} mlp",
    "layernorm": f"{SELECTIVE} layernorm",
    "core_attn": f"{SELECTIVE} core_attn",
    "all three": f"{SELECTIVE} mlp layernorm core_attn",
    "uniform": f"{WHOLE} uniform --recompute-num-layers 1",
    "block": f"{WHOLE} block --recompute-num-layers 2",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from nlp_bench.data.maker import DataRequest, make_data

    folder = tmp_path_factory.mktemp("data") / "small"
    make_data(DataRequest(output=folder, documents=300, vocab_size=492))
    return folder / "corpus_text_document"


@pytest.fixture(scope="module")
def logs(forked: Any, data: Path) -> dict[str, str]:
    """The logs of all trainings of this file."""
    jobs: dict[str, tuple[int, list[str]]] = {}
    for name, (words, ranks, layout) in LAYOUTS.items():
        jobs[f"{name} alone"] = (1, f"{MODEL} {MOCK} {words}".split())
        jobs[name] = (ranks, f"{MODEL} {MOCK} {words} {layout}".split())
    blend = f"{MODEL} --data-path 0.3 {data} 0.7 {data} {PADDED} {T5}"
    jobs["padded alone"] = (1, blend.split())
    jobs["padded"] = (2, f"{blend} --pipeline-model-parallel-size 2".split())
    saved = f"{MODEL} {MOCK} {ODD_T5} --lr-decay-iters 4 --use-distributed-optimizer"
    kept = data.parent / "kept"
    jobs["saved"] = (4, f"{saved} {FULL} {INTERLEAVED} --train-iters 2 --save {kept}".split())
    jobs["resumed"] = (2, f"{saved} --load {kept}".split())
    jobs["real bert"] = (1, f"{MODEL} --data-path {data} {data} {PADDED} {BERT} --train-iters 12".split())
    found = {}
    for name, (ranks, words) in jobs.items():
        ended = forked.train(ranks, words)
        found[name] = ended.stdout
        assert ended.code == 0, f"{name}: {ended.stdout}{ended.stderr}"
    return found


def numbers(log: str, name: str) -> list[float]:
    return [float(word) for word in re.findall(rf"\| {name}: (\S+) \|", log)]


def parameters(log: str) -> int:
    return int(re.findall(r"number of parameters: (\d+)", log)[0])


@pytest.mark.torchrun
@pytest.mark.parametrize("name", [*LAYOUTS, "padded"])
def test_the_layout_does_not_change_the_training_and_the_loss_falls(logs: dict[str, str], name: str) -> None:
    alone, other = logs[f"{name} alone"], logs[name]
    losses = numbers(alone, "lm loss")
    assert len(losses) == 4
    assert losses[-1] < losses[0] - 0.25
    assert numbers(other, "lm loss") == pytest.approx(losses, abs=1e-4)
    assert numbers(other, "grad norm") == pytest.approx(numbers(alone, "grad norm"), abs=2e-3)
    assert parameters(other) == parameters(alone)


@pytest.mark.torchrun
@pytest.mark.parametrize("split", ["", FULL], ids=["TP 1", "TP 2"])
@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize(("name", "model"), [("t5", T5), ("odd_t5", ODD_T5), ("bert", BERT)])
def test_what_is_computed_again_is_the_same(
    logs: dict[str, str], forked: Any, name: str, model: str, again: str, split: str
) -> None:
    ended = forked.train(2 if split else 1, f"{MODEL} {MOCK} {model} {AGAIN[again]} {split}".split())
    assert ended.code == 0, ended.stdout + ended.stderr
    assert ended.numbers("lm loss") == pytest.approx(numbers(logs[f"{name} alone"], "lm loss"), abs=1e-4)
    assert ended.numbers("grad norm") == pytest.approx(numbers(logs[f"{name} alone"], "grad norm"), abs=2e-3)


@pytest.mark.torchrun
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_parameters_are_those_of_the_formula(logs: dict[str, str], name: str) -> None:
    settings = parse(f"{MODEL} {MOCK} {LAYOUTS[name][0]}".split())
    assert parameters(logs[name]) == model_shape(settings, Layout.of(settings, 1)).parameters


@pytest.mark.torchrun
def test_a_checkpoint_of_a_t5_fits_another_layout(logs: dict[str, str]) -> None:
    losses = numbers(logs["saved"], "lm loss") + numbers(logs["resumed"], "lm loss")
    assert losses == pytest.approx(numbers(logs["odd_t5 alone"], "lm loss"), abs=1e-4)


@pytest.mark.torchrun
def test_bert_learns_from_real_data(logs: dict[str, str]) -> None:
    losses = numbers(logs["real bert"], "lm loss")
    assert losses[-1] < losses[0] - 0.3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model-family t5", "decoder_seq_length: not given"),
        ("--decoder-seq-length 16", "decoder_seq_length: 16 is for --model-family t5, not for gpt"),
        ("--vocab-extra-ids 9", "vocab_extra_ids: 9 sentinels are for --model-family t5, not for gpt"),
        (f"{T5} --group-query-attention --num-query-groups 2", "group_query_attention: is for gpt and bert"),
        ("--position-embedding-type relative", "position_embedding_type: relative is for --model-family t5"),
        ("--bert-no-binary-head", "bert_no_binary_head: is for --model-family bert, not for gpt"),
        (f"{BERT} --mask-prob 0", "mask_prob: 0.0 is not positive"),
    ],
)
def test_what_does_not_belong_to_a_family_is_refused(words: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        settled(words)


def settled(words: str) -> Settings:
    return parse(f"{MODEL} {MOCK} {words}".split())
