import os
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from support.forked import LEAST, MOCK
from support.processes import ROOT, execute

from nlp_bench.errors import UsageError
from nlp_bench.train.__main__ import allocator_variable
from nlp_bench.train.arguments import help_texts, parse
from nlp_bench.train.layout import Layout, Rank
from nlp_bench.train.settings import Settings

MINIMAL = f"{LEAST} {MOCK}"
LOCAL = "--model tiny --system local --gpus-per-node 1 --data-path mock --run-dir run"
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


PP2, PP4 = "--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 4"
TP4 = "--tensor-model-parallel-size 4"
VPP2 = "--num-virtual-stages-per-pipeline-rank 2"
T5 = "--model-family t5 --decoder-seq-length 16 --vocab-extra-ids 20"
FULL = "--recompute-granularity full --recompute-method"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--num-layer 4", "unknown argument --num-layer; did you mean --num-layers?"),
        ("--tensor-model-parallel 2", "did you mean --tensor-model-parallel-size?"),
        ("junk", "unknown argument 'junk'"),
        ("--seed x", "--seed: invalid int value: 'x'"),
        ("--optimizer sgd", "--optimizer: invalid choice: 'sgd'"),
        ("--hidden-size 62", "hidden_size: 62 is not a multiple of num_attention_heads = 4"),
        (f"--num-layers 3 {PP2}", "pipeline_model_parallel_size: num_layers = 3 is not a multiple of pp = 2"),
        ("--seq-length 64", "max_position_embeddings: 32 is less than seq_length = 64"),
        ("--micro-batch-size 0", "micro_batch_size: 0 is not positive"),
        ("--tensor-model-parallel-size 0", "tensor_model_parallel_size: 0 is not positive"),
        ("--lr inf", "lr: inf is no finite number"),
        ("--lr nan", "lr: nan is no finite number"),
        ("--init-method-std inf", "init_method_std: inf is not positive"),
        ("--seed 99999999999999999999", "seed: 99999999999999999999 is not below 2**31"),
        ("--fp16 --initial-loss-scale 0", "initial_loss_scale: 0.0 is not positive"),
        ("--save=", "save: empty; give --save a value, or leave it out"),
        ("--tensorboard-dir ~/tb", "tensorboard_dir: ~/tb: no shell has replaced the ~"),
        ("--data-path 1 x 1 ~/x", "data_path: ~/x: no shell has replaced the ~"),
        ("--data-path 1 x 1 /y/$USER/x", "data_path: /y/$USER/x: no shell has replaced the $USER"),
        ("--save ${SCRATCH}/c", "save: ${SCRATCH}/c: no shell has replaced the ${SCRATCH}"),
        *(
            (f"--split {word}", f"split: '{word}' is no list of up to three")
            for word in ("1,1,1,1", "9e2,30,1", "inf,1")
        ),
        ("--split 0,1,0", "split: '0,1,0' leaves no documents for training"),
        ("--adam-beta1 1", "adam_beta1: 1.0 is not in [0, 1)"),
        ("--train-samples 8", "train_iters: 4 and train_samples 8 exclude each other"),
        ("--data-path x", "data_path: give exactly one of --data-path PREFIX and --mock-data"),
        ("--save-interval 5", "save_interval: needs --save FOLDER"),
        ("--keep-checkpoints 2", "keep_checkpoints: needs --save FOLDER"),
        ("--async-save", "async_save: needs --save FOLDER"),
        ("--exit-on-missing-checkpoint", "exit_on_missing_checkpoint: needs --load FOLDER"),
        ("--manual-gc-interval 3", "manual_gc_interval: needs --manual-gc"),
        ("--manual-gc-interval -1", "manual_gc_interval: -1 is negative"),
        ("--no-align-grad-reduce", "no_align_grad_reduce: needs --overlap-grad-reduce"),
        ("--swiglu --geglu", "swiglu: excludes --geglu; give one of them"),
        ("--eval-iters 5", "eval_iters: 5: an evaluation would spoil the throughput; use --eval-iters 0"),
        ("--bf16 --fp16", "bf16: excludes --fp16"),
        ("--num-query-groups 2", "num_query_groups: 2 needs --group-query-attention"),
        ("--recompute-granularity full", "recompute_granularity: full needs --recompute-method"),
        ("--recompute-method uniform", "recompute_method: uniform, None layers: needs --recompute-granularity full"),
        ("--position-embedding-type rope --rotary-percent 0.06", "it must be even and above 0"),
        ("--position-embedding-type rope --rotary-percent 0.2", "rotary_percent: 3 is the rotated width of a head"),
        ("--vocab-file missing.json", "vocab_file: cannot read missing.json: No such file or directory"),
        ("--overlap-param-gather", "overlap_param_gather needs use_distributed_optimizer"),
        # layouts that do not divide
        ("--tensor-model-parallel-size 3", "tensor_model_parallel_size: num_attention_heads = 4 is not a multiple of"),
        ("--pipeline-model-parallel-size -2", "pipeline_model_parallel_size: -2 is not positive"),
        ("--num-layers-per-virtual-pipeline-stage 1", "num_virtual_stages_per_pipeline_rank: vpp = 4 needs pp"),
        (f"{VPP2} --num-layers-per-virtual-pipeline-stage 1 {PP2}", "num_virtual_stages_per_pipeline_rank 2 exc"),
        (f"{VPP2} {PP2} --no-overlap-p2p-communication", "no_overlap_p2p_communication: with interleaving it needs"),
        (f"--decoder-last-pipeline-num-layers 1 {VPP2} {PP2}", "stages of 3, 1 layers are not all"),
        (f"{FULL} uniform --recompute-num-layers 3", "recompute_num_layers: 3 does not divide the 4 layers of a"),
        (f"{FULL} block --recompute-num-layers 3 {PP2}", "recompute_num_layers: 3 is more than the 2 layers of a"),
        ("--context-parallel-size 3", "context_parallel_size: sequence_length = 32 is not a multiple of 2*cp = 6"),
        ("--context-parallel-size 2 --cp-comm-type p2p --kernels torch", "cp_comm_type: p2p needs --kernels te"),
        (f"--sequence-parallel --seq-length 30 {TP4}", "sequence_parallel: sequence_length = 30 is not"),
        ("--align-param-gather", "align_param_gather: needs --overlap-param-gather"),
        ("--ddp-bucket-size 9", "ddp_bucket_size: needs --overlap-grad-reduce"),
        ("--ddp-bucket-size 9 --ddp-num-buckets 2", "ddp_bucket_size: 9 and ddp_num_buckets 2 exclude each other"),
        ("--tp-comm-overlap --sequence-parallel", "and --tensor-model-parallel-size above 1"),
        ("--context-parallel-size 2 --model-family bert", "context_parallel_size: 2 is for gpt; bert has no"),
        # kernels and precision
        ("--fp8-format hybrid", "fp8_format: hybrid needs --bf16"),
        ("--fp8-param-gather --bf16", "fp8_param_gather: needs --fp8-format"),
        ("--fp8-recipe mxfp8 --bf16", "fp8_recipe: mxfp8 needs --fp8-format"),
        ("--fp8-format hybrid --bf16 --kernels torch", "fp8_format: hybrid needs --bf16 and --kernels te"),
        ("--recompute-modules mlp", "recompute_modules: needs --recompute-granularity selective"),
        ("--kernels te --transformer-impl local", "transformer_impl: local means --kernels torch, and --kernels te is"),
        # families
        ("--model-family t5", "decoder_seq_length: not given"),
        ("--decoder-seq-length 16", "decoder_seq_length: 16 is for --model-family t5, not for gpt"),
        ("--vocab-extra-ids 9", "vocab_extra_ids: 9 is for --model-family t5, not for gpt"),
        (f"{T5} --group-query-attention --num-query-groups 2", "group_query_attention: is for gpt and bert"),
        ("--position-embedding-type relative", "position_embedding_type: relative is for --model-family t5"),
        ("--bert-no-binary-head", "bert_no_binary_head: True is for --model-family bert, not for gpt"),
        ("--model-family bert --mask-prob 0", "mask_prob: 0.0 is not positive"),
        (f"{T5} --vocab-extra-ids 1", "vocab_extra_ids: 1 is too few: 34 tokens of text have 2 spans"),
        (f"{T5} --decoder-seq-length 2", "decoder_seq_length: 2 or seq_length 32 is too short"),
        ("--model-family bert --seq-length 4", "seq_length: 4 is less than 5"),
        # watching and early ends
        ("--profile --profile-step-start 3 --profile-step-end 3", "profile_step_end: 3 is not after profile_"),
        ("--profile --profile-step-start 0", "profile_step_start: 0: iterations are counted from 1"),
        ("--profile --profile-step-start 1 --profile-ranks", "profile_ranks: none: give ranks from 0 on"),
        ("--timing-log-level 3", "timing_log_level: 3 is none of 0, 1, 2"),
        ("--wandb-exp-name x", "wandb_exp_name: needs --wandb-project"),
        ("--tensorboard-log-interval 0", "tensorboard_log_interval: 0 is not positive"),
        ("--until 1", "until: '1' is no share in percent"),
        ("--until 0%", "until: '0%' is no share in percent"),
        ("--until 1% --save kept", "until: 1% is for a measurement in one piece; leave --save out"),
        ("--until 1% --profile", "leave --profile out"),
    ],
)
def test_a_wrong_argument_is_named_with_its_rule(words: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        changed(words)
    assert message in str(error.value)
    assert "model." not in str(error.value)  # the trainer's argument, not the field of run.json


@pytest.mark.parametrize(
    "words",
    [
        f"{PP2} --no-overlap-p2p-communication",
        f"--num-layers 8 {VPP2} {PP4} --no-overlap-p2p-communication",
        "--tp-comm-overlap --sequence-parallel --tensor-model-parallel-size 2 --kernels te",
        "--context-parallel-size 2",
    ],
)
def test_what_is_just_legal_is_taken(words: str) -> None:
    changed(words)
    assert not changed("").no_overlap_p2p_communication


@pytest.mark.parametrize(
    ("words", "world_size", "message"),
    [
        (f"--tensor-model-parallel-size 2 {PP2}", 6, "parallel: nodes*gpus_per_node = 6 is not a multiple of tp*pp"),
        (f"{PP2} {VPP2} --microbatch-group-size-per-virtual-pipeline-stage 1", 2, "1 is less than pp = 2"),
        ("--global-batch-size 6", 4, "global_batch_size: global_batch_size = 6 is not a multiple of"),
        ("--profile", 4, "profile_step_start: 10 is after the last iteration = 4"),
        ("--profile --train-iters 12 --profile-ranks 0 7", 4, "profile_ranks: 7 is none of the ranks 0 to 3"),
        ("--lr-warmup-samples 99", 1, "lr_warmup_samples: a warm-up of 99 samples is not less than the decay"),
    ],
)
def test_a_wrong_division_of_the_work_shows_the_arithmetic(words: str, world_size: int, message: str) -> None:
    with pytest.raises(UsageError) as error:
        Layout.of(changed(words), world_size)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("words", "width"), [("", 2048), ("--swiglu", 1344), ("--geglu", 2048), ("--swiglu --ffn-hidden-size 640", 640)]
)
def test_the_feed_forward_width_is_megatron_lms(words: str, width: int) -> None:
    assert changed(f"--hidden-size 512 {words}").ffn_width == width


def test_every_option_has_a_help_text() -> None:
    assert list(help_texts()) == [option.name for option in fields(Settings)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--num-layer", "unknown argument --num-layer; did you mean --num-layers?"),
        (f"{LEAST} --vocab-size 512 --data-path a/b", "data_path: a/b.bin does not exist; make it with nlp-bench data, or use --mock-data"),
    ],
)  # fmt: skip
def test_what_is_wrong_ends_the_training_with_status_2_before_torch(words: str, said: str) -> None:
    code = "import sys; from nlp_bench.train.__main__ import main; c = main(sys.argv[1:]); print(c, 'torch' in sys.modules)"
    answer = execute(sys.executable, "-c", code, *words.split(), timeout=60)
    assert (answer.stdout, answer.stderr) == ("2 False\n", f"nlp_bench.train: error: {said}\n")


@pytest.mark.parametrize(
    ("torch", "name"),
    [("2.8.0", "PYTORCH_CUDA_ALLOC_CONF"), ("2.9.0+cu130", "PYTORCH_ALLOC_CONF"), ("2.11.0", "PYTORCH_ALLOC_CONF")],
)
def test_the_allocator_is_told_under_the_name_that_torch_knows(torch: str, name: str) -> None:
    assert allocator_variable(torch) == name


@pytest.mark.parametrize("name", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_processes_that_know_no_rank_do_not_train_each_for_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`srun -n 2 python -m nlp_bench.train`: two trainings of one rank would write one log."""
    monkeypatch.setenv(name, "1")
    assert Rank.from_environment().world_size == 1
    monkeypatch.setenv(name, "2")
    said = rf"{name} is 2, but RANK, WORLD_SIZE, LOCAL_RANK are not set.*; start one torchrun"
    with pytest.raises(UsageError, match=said):
        Rank.from_environment()


def test_ranks_of_which_torchrun_has_left_some_out_do_not_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """With clocks a minute apart each of two nodes took the other for dead, and one trained alone: VALID until it was measured."""
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("NLP_BENCH_NUM_RANKS", "2")
    for number, why in (
        ("1", ".* the clocks of the nodes are apart"),
        ("4", "--nnodes or --nproc_per_node was changed"),
    ):
        monkeypatch.setenv("WORLD_SIZE", number)
        with pytest.raises(UsageError, match=rf"WORLD_SIZE is {number}, run.json has 2 ranks: {why}"):
            Rank.from_environment()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert Rank.from_environment().world_size == 2


@pytest.mark.slow
@pytest.mark.parametrize("words", [["nlp_bench.train", *MINIMAL.split()], ["nlp_bench", "submit", *LOCAL.split()]])
def test_another_megatron_core_on_pythonpath_is_no_silent_replacement(tmp_path: Path, words: list[str]) -> None:
    """`export PYTHONPATH=~/Megatron-LM`: its core would train, under the version of the installed one."""
    (tmp_path / "megatron/core").mkdir(parents=True)
    (tmp_path / "megatron/core/__init__.py").write_text("raise RuntimeError('imported')\n")
    own = {"NLP_BENCH_VENV": sys.prefix, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path)])}
    command = [sys.executable, "-m", *words]
    answer = execute(*command, timeout=60, env={**os.environ, **own}, cwd=tmp_path)
    assert answer.returncode == 2
    assert f"megatron-core: {tmp_path} would train, not the installed megatron-core" in answer.stderr
