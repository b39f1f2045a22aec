import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from nlp_bench.errors import UsageError
from nlp_bench.train.arguments import help_texts, parse
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings

MINIMAL = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
    "--micro-batch-size 1 --lr 1e-3 --train-iters 4 --vocab-size 512 --mock-data"
)
# What the workflow file of the original 175B benchmark passes, evaluation, checkpoints and tensorboard left out.
ORIGINAL = (
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --num-layers 96 --hidden-size 12288 "
    "--num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 "
    "--global-batch-size 96 --train-samples 300_000_000 --tokenizer-type GPT2BPETokenizer --vocab-size 50257 "
    "--loss-scale-window 500 --hysteresis 2 --min-loss-scale 1.0 --initial-loss-scale 4096 --seed 42 "
    "--position-embedding-type rope --use-flash-attn --sequence-parallel --recompute-activations "
    "--recompute-granularity selective --init-method-std 0.0048 --bf16 --optimizer adam --adam-beta1 0.9 "
    "--adam-beta2 0.999 --adam-eps 1e-8 --lr 1e-4 --min-lr 1e-5 --lr-decay-style cosine "
    "--lr-decay-samples 128_953_125 --lr-warmup-samples 216_320 --clip-grad 1.0 --weight-decay 1e-1 "
    "--use-distributed-optimizer --exit-duration-in-mins 1190 --log-interval 10 --split 7,3,1 "
    "--distributed-backend nccl --mock-data"
)


def changed(words: str) -> Settings:
    return parse(f"{MINIMAL} {words}".split())


def test_the_arguments_of_the_original_benchmark_are_understood() -> None:
    settings = parse(ORIGINAL.split())
    layout = Layout.of(settings, 384)
    assert (settings.lr_decay_samples, settings.train_samples) == (128953125, 300000000)
    assert (layout.train_iters, layout.num_microbatches, layout.data_parallel_size) == (3125000, 16, 6)
    assert (layout.padded_vocab_size, settings.ffn_width, settings.params_dtype) == (51200, 49152, "bfloat16")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--num-layer 4", "unknown argument --num-layer; did you mean --num-layers?"),
        ("--tensor-model-parallel 2", "did you mean --tensor-model-parallel-size?"),
        ("junk", "unknown argument 'junk'"),
        ("--seed x", "--seed: invalid int value: 'x'"),
        ("--optimizer sgd", "--optimizer: invalid choice: 'sgd'"),
        ("--hidden-size 62", "hidden_size: 62 is not a multiple of num_attention_heads = 4"),
        ("--num-layers 3 --pipeline-model-parallel-size 2", "num_layers: 3 is not a multiple of pipeline"),
        ("--seq-length 64", "max_position_embeddings: 32 is less than seq_length = 64"),
        ("--micro-batch-size 0", "micro_batch_size: 0 is not positive"),
        ("--adam-beta1 1", "adam_beta1: 1.0 is not in [0, 1)"),
        ("--train-samples 8", "train_iters: 4 and train_samples 8 exclude each other"),
        ("--data-path x", "data_path: give exactly one of --data-path PREFIX and --mock-data"),
        ("--save here", "save: here: this trainer measures throughput and writes no checkpoints"),
        ("--eval-iters 5", "eval_iters: 5: an evaluation would spoil the throughput; use --eval-iters 0"),
        ("--bf16 --fp16", "bf16: excludes --fp16"),
        ("--num-query-groups 2", "num_query_groups: 2 needs --group-query-attention"),
        ("--recompute-granularity full", "recompute_granularity: full needs --recompute-method"),
        ("--position-embedding-type rope --rotary-percent 0.06", "it must be even and positive"),
        ("--vocab-file missing.json", "vocab_file: cannot read missing.json: No such file or directory"),
        ("--overlap-param-gather", "overlap_param_gather: needs --use-distributed-optimizer"),
    ],
)
def test_a_wrong_argument_is_named_with_its_rule(words: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        changed(words)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("words", "world_size", "message"),
    [
        (
            "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2",
            6,
            "parallel: world size 6 is not a multiple of tp*pp = 4",
        ),
        ("--global-batch-size 6", 4, "global_batch_size: 6 is not a multiple of micro_batch_size*dp = 4"),
        (
            "--lr-warmup-samples 99",
            1,
            "lr_warmup_samples: a warm-up of 99 samples is not less than the decay of 4 samples",
        ),
    ],
)
def test_a_wrong_division_of_the_work_shows_the_arithmetic(words: str, world_size: int, message: str) -> None:
    with pytest.raises(UsageError) as error:
        Layout.of(changed(words), world_size)
    assert message in str(error.value)


def test_every_option_has_a_help_text() -> None:
    assert list(help_texts()) == [option.name for option in fields(Settings)]


def test_a_wrong_argument_ends_at_once_with_status_2_without_torch() -> None:
    code = "import sys; from nlp_bench.train.__main__ import main; c = main(['--num-layer']); print(c, 'torch' in sys.modules)"
    start = time.monotonic()
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert time.monotonic() - start < 2
    assert answer.stdout == "2 False\n"
    assert answer.stderr == "nlp_bench.train: error: unknown argument --num-layer; did you mean --num-layers?\n"


def test_missing_data_are_refused_before_torch(tmp_path: Path) -> None:
    prefix = tmp_path / "no such data"
    words = MINIMAL.replace("--mock-data", "").split()
    command = [sys.executable, "-m", "nlp_bench.train", *words, "--data-path", str(prefix)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 2
    assert f"data_path: {prefix}.bin does not exist; make it with nlp-bench data" in answer.stderr
