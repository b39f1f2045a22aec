"""T5, BERT and a Llama: every layout trains the same model, and the loss falls."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.forked import LEAST

from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout, model_shape

GPT = "--mock-data --vocab-size 492 --position-embedding-type learned_absolute"
ANY_T5 = "--model-family t5 --num-layers 2 --decoder-seq-length 16 --vocab-extra-ids 20"
T5 = f"{ANY_T5} --geglu"
BERT = "--model-family bert"
ODD_T5 = (
    f"{ANY_T5} --position-embedding-type relative --disable-bias-linear --normalization RMSNorm --swiglu "
    "--untie-embeddings-and-output-weights --kv-channels 24"
)
UNEVEN_T5 = f"{ANY_T5} --encoder-num-layers 3 --decoder-num-layers 1"
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
SELECTIVE = "--recompute-granularity selective --recompute-modules"
WHOLE = "--recompute-granularity full --recompute-method"
AGAIN = {
    f"{SELECTIVE} mlp layernorm core_attn": "selective: feed-forward blocks and normalisations; the fused attention",
    f"{WHOLE} block --recompute-num-layers 2": "full: whole layers, block, 2",
    f"{WHOLE} uniform --recompute-num-layers 1": "full: whole layers, uniform, 1",
}
PARTS = {
    f"{SELECTIVE} mlp": "selective: feed-forward blocks; ",
    f"{SELECTIVE} layernorm": "selective: normalisations; ",
    f"{SELECTIVE} core_attn": "selective: attention only",  # which every kernel here does in its own backward pass
}
"""What is computed again to the log's words."""
MODELS = {"gpt": "", "llama": LLAMA, "t5": T5, "odd t5": ODD_T5, "bert": BERT}
PAIRS = [(model, again, (i + j) % 2) for i, model in enumerate(MODELS) for j, again in enumerate(AGAIN)]
PAIRS += [("gpt", again, 1) for again in PARTS]
"""Every model with everything that is computed again, each of both with one tensor-parallel rank and with two; one with each part."""
SHORT = "--train-iters 2 --global-batch-size 2"
"""A gradient that is not the same is seen in the first norm, and in the second loss."""
Train, Same = Callable[..., Any], Callable[[int, str, str], Any]


@pytest.mark.torchrun
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_layout_does_not_change_the_training_and_the_loss_falls(same_training: Same, name: str) -> None:
    words, ranks, layout = LAYOUTS[name]
    few = "--global-batch-size 2" if FULL in layout else ""  # what tensor-parallel ranks send costs most
    ended = same_training(ranks, f"{GPT} {words} {few}", layout)
    assert ended.losses[-1] < ended.losses[0] - 0.25
    settings = parse(f"{LEAST} {GPT} {words}".split())
    assert ended.parameters == model_shape(settings, Layout.of(settings, 1)).parameters


@pytest.mark.torchrun
@pytest.mark.parametrize(("model", "again", "split"), PAIRS, ids=lambda word: {0: "TP 1", 1: "TP 2"}.get(word, word))
def test_what_is_computed_again_is_the_same(same_training: Same, model: str, again: str, split: int) -> None:
    ended = same_training(1 + split, f"{GPT} {MODELS[model]} {SHORT}", f"{again} {FULL if split else ''}")
    assert f" > recompute: {(AGAIN | PARTS)[again]}" in ended.stdout


@pytest.mark.torchrun
def test_padded_samples_and_a_blend_of_data_are_the_same_in_every_layout(train: Train, data: Path) -> None:
    words = [*f"--vocab-size 512 {PADDED} {T5} --position-embedding-type learned_absolute --data-path".split(), "0.3"]
    words += [str(data / "corpus_text_document"), "0.7", str(data / "corpus_text_document")]
    alone, two = train(1, "", *words), train(2, "--pipeline-model-parallel-size 2", *words)
    assert alone.losses[-1] < alone.losses[0] - 0.25
    assert two.losses == pytest.approx(alone.losses, abs=1e-4)


@pytest.mark.torchrun
def test_a_checkpoint_of_a_t5_fits_another_layout(train: Train, tmp_path: Path) -> None:
    model = f"{GPT} {ODD_T5} --lr-decay-iters 4 --use-distributed-optimizer"
    saved = train(4, f"{model} {FULL} {INTERLEAVED} --train-iters 2 --save", str(tmp_path))
    resumed = train(2, f"{model} --load", str(tmp_path))
    assert saved.losses + resumed.losses == pytest.approx(train(1, f"{GPT} {ODD_T5}").losses, abs=1e-4)


@pytest.mark.torchrun
def test_bert_learns_from_real_data(train: Train, data: Path) -> None:
    words = f"--vocab-size 512 --position-embedding-type learned_absolute {PADDED} {BERT} --train-iters 30 --data-path"
    losses = train(1, words, *[str(data / "corpus_text_document")] * 2).losses
    assert losses[-1] < losses[0] - 0.3
