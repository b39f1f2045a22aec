"""The trainer's arguments and torchrun's, from run.json."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Cli
from support.following import offline

from nlp_bench.cli.main import main
from nlp_bench.config.catalog import root
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import for_another_job
from nlp_bench.config.run import Limits, read_run
from nlp_bench.config.system import Container, Network
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.launch.arguments import check_arguments, training_arguments, upstream_environment
from nlp_bench.launch.nodes import torchrun
from nlp_bench.launch.nodes.torchrun import program_words, rendezvous_of, torchrun_command
from nlp_bench.launch.scheduler import slurm
from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout
from nlp_bench.train.logline import argument_lines


def test_the_benchmark_trains_in_bf16_with_the_seed_settings() -> None:
    words = " ".join(training_arguments(offline("175", "juwels-booster")))
    for expected in (
        "--num-layers 96 --hidden-size 12288",
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8",
        "--micro-batch-size 1 --global-batch-size 96",
        "--sequence-parallel --bf16 --recompute-granularity selective",
        "--adam-beta1 0.9 --adam-beta2 0.999",
        "--lr-decay-samples 128953125 --lr-warmup-samples 216320",
        "--use-distributed-optimizer",
    ):
        assert expected in words


def test_cpu_ranks_train_in_fp32() -> None:
    assert "--bf16" not in training_arguments(offline("tiny", "slurm-sandbox"))


def test_the_trainer_takes_every_argument() -> None:
    for model, system in (("tiny", "slurm-sandbox"), ("175", "juwels-booster"), ("13", "juwels-booster")):
        parse(training_arguments(offline(model, system, data_path="mock")))


def test_switches_reach_the_trainer_by_their_names() -> None:
    run = offline(
        "175", "juwels-booster", num_layers_per_virtual_pipeline_stage=3, overlap_grad_reduce=True, overlap_param_gather=True,
        recompute="full", context=2, nodes=192, kernels="torch", train_args=("--manual-gc", "--no-rope-fusion"),
    )  # fmt: skip
    words = " ".join(training_arguments(run))
    for expected in (
        "--context-parallel-size 2",
        "--recompute-granularity full --tensorboard-dir tensorboard --num-layers-per-virtual-pipeline-stage 3",
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
        "--recompute-method uniform --recompute-num-layers 1 --kernels torch --manual-gc --no-rope-fusion",
    ):
        assert expected in words
    check_arguments(run)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"num_layers_per_virtual_pipeline_stage": 5},
            "num_layers = 96 is not a multiple of pp*num_layers_per_virtual",
        ),
        ({"num_layers_per_virtual_pipeline_stage": 3, "gradient_accumulation_steps": 9}, "micro-batches"),
        ({"train_args": ("--manual-gcc",)}, "unknown argument --manual-gcc; did you mean --manual-gc?"),
        ({"train_args": ("--num-layers", "48")}, "train_args: --num-layers would make run.json untrue"),
        ({"train_args": ("--attention-dropout", "0.5")}, "a model file of your own"),
        ({"train_args": ("--tensor-model-parallel-size=4",)}, "its own option or JUBE parameter"),
        ({"train_args": ("--overlap-grad-reduce",)}, "its own option or JUBE parameter"),
        ({"decoder_first_pipeline_num_layers": 96}, "leave none"),
        ({"recompute_modules": ("mlp",), "recompute": "none"}, "recompute_modules: needs"),
    ],
)
def test_what_the_trainer_would_refuse_is_refused_before_it_starts(choices: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        check_arguments(offline("175", "juwels-booster", data_path="mock", **choices))


def test_eight_bit_products_are_a_precision_of_their_own(tmp_path: Path) -> None:
    text = (root() / "benchmark/models/gpt_5b.toml").read_text(encoding="utf-8")
    model = tmp_path / "mine.toml"
    model.write_text(text.replace('precision = "bf16"', 'precision = "fp8"'))
    run = offline(str(model), "dgx-h100", data_path="mock")
    words = training_arguments(run)
    assert "--bf16 --fp8-format hybrid" in " ".join(words)
    check_arguments(run)
    dumped = argument_lines(settings := parse(words), Layout.of(settings, run.parallel.num_gpus))
    assert any(re.fullmatch(r"  fp8 \.+ hybrid", line) for line in dumped)  # the name that the rules look for
    with pytest.raises(UsageError, match=r"--fp8-format would make run\.json untrue"):
        check_arguments(offline("gpt_5b", "dgx-h100", data_path="mock", train_args=("--fp8-format", "hybrid")))


def test_a_family_brings_its_own_arguments() -> None:
    words = " ".join(training_arguments(offline("mt5_170m", "juwels-booster", nodes=1)))
    for expected in (
        "--model-family t5",
        "--kv-channels 64",
        "--decoder-seq-length 128",
        "--vocab-extra-ids 100",
        "--geglu",
    ):
        assert expected in words
    llama = " ".join(training_arguments(offline("llama_8b", "juwels-booster")))
    for expected in (
        "--num-query-groups 8", "--group-query-attention", "--swiglu", "--disable-bias-linear", "--normalization RMSNorm",
        "--rotary-base 500000", "--untie-embeddings-and-output-weights",
    ):  # fmt: skip
        assert expected in llama
    assert "--model-family" not in llama


@pytest.fixture
def megatron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pretrain_gpt.py").touch()
    monkeypatch.setenv("MEGATRON_LM_REPO", str(tmp_path))
    return tmp_path


def test_megatron_lm_gets_the_same_training(megatron: Path) -> None:
    run = offline("175", "juwels-booster", trainer="megatron-lm", data_path="mock")
    *starter, script = program_words(run)[:6]
    words = program_words(run)[6:]
    assert starter == ["-m", "nlp_bench.launch.nodes.bound", "--", sys.executable, "-u"]
    assert script == str(megatron / "pretrain_gpt.py")
    ours = offline("175", "juwels-booster", data_path="mock")
    left_out = set(training_arguments(ours)) - set(words)
    assert left_out == {"--train-iters", "150", "50257"}
    text = " ".join(words)
    assert "--train-samples 14400 --tokenizer-type NullTokenizer --vocab-size 50256" in text
    assert "--eval-iters 0" in text
    assert upstream_environment(run)["PYTHONPATH"].startswith(str(megatron))
    bare = offline("175", "juwels-booster", trainer="megatron-lm", data_path="mock", kernels="torch")
    assert "--no-rope-fusion" in program_words(bare)
    assert "--no-rope-fusion" not in words


def test_megatron_lm_is_refused_where_it_cannot_run(megatron: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert megatron.is_dir()
    for model, system, message in (
        ("t5_220m", "juwels-booster", "does not train t5"),
        ("tiny", "slurm-sandbox", "GPUs only"),
    ):
        with pytest.raises(UsageError, match=message):
            program_words(offline(model, system, trainer="megatron-lm", nodes=1, gpus_per_node=4, tensor=1, pipeline=1))
    monkeypatch.delenv("MEGATRON_LM_REPO")
    with pytest.raises(UsageError, match=r"MEGATRON_LM_REPO is not set; git clone"):
        offline("175", "juwels-booster", trainer="megatron-lm")


def test_a_nonce_reaches_the_log_or_is_refused(megatron: Path, tmp_path: Path) -> None:
    assert megatron.is_dir()
    run = offline("tiny", "local", launcher="local", data_path="mock", nonce="tender-7/3f2a")
    settings = parse(training_arguments(run))
    assert (settings.nonce, read_run(run.write(tmp_path)).nonce) == ("tender-7/3f2a", "tender-7/3f2a")
    assert "--nonce" not in training_arguments(offline("tiny", "local", launcher="local", data_path="mock"))
    for word in ("two words", "none", "", "x" * 129, "a\nb"):
        with pytest.raises(UsageError, match=r"nonce: .* is no nonce: 1 to 128 letters"):
            offline("tiny", "local", launcher="local", data_path="mock", nonce=word)
    with pytest.raises(UsageError, match=r"--nonce would make run\.json untrue"):
        check_arguments(offline("tiny", "local", launcher="local", data_path="mock", train_args=("--nonce", "other")))
    with pytest.raises(UsageError, match="nonce: megatron-lm prints none"):
        program_words(offline("175", "juwels-booster", trainer="megatron-lm", data_path="mock", nonce="x"))
    other = for_another_job(run, Request(nonce="another"))
    assert (other.nonce, replace(other, nonce=run.nonce)) == ("another", run)


@pytest.fixture
def in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "listing", slurm_answers)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-95]")


def slurm_answers(*command: str, **_: object) -> str:
    if command[:3] == ("scontrol", "show", "hostnames"):
        before, *_, behind = command[3].split(",")
        return "\n".join([before, *(f"n{i}" for i in range(96)), behind])
    return "".join(f"NodeName={n} Arch=x86_64 NodeAddr={n}.cluster NodeHostName={n}\n" for n in command[-1].split(","))


@pytest.mark.usefixtures("in_a_job")
def test_rendezvous_from_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "41234")
    monkeypatch.setenv("SLURM_NODEID", "2")
    found = rendezvous_of(offline("175", "juwels-booster"))
    assert found.endpoint == "n0i:25234"  # the system's suffix for its fast network; port 20000 + 41234 % 12000
    assert (found.local_address, found.is_host) == ("n2i", False)


@pytest.mark.usefixtures("in_a_job")
def test_without_a_suffix_the_addresses_are_slurms(monkeypatch: pytest.MonkeyPatch) -> None:
    run = offline("175", "slurm-sandbox")
    assert torchrun.addresses(run)[1] == "n1.cluster"
    static = replace(run, system=replace(run.system, network=Network(rendezvous="static")))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_NODEID", "2")
    line = " ".join(torchrun_command(static, rendezvous_of(static), Path("/runs/1")))
    assert "--rdzv_backend static --node_rank 2 --rdzv_endpoint n0.cluster:" in line


@pytest.mark.usefixtures("in_a_job")
def test_wrong_allocation_is_refused() -> None:
    with pytest.raises(NlpBenchError, match=r"allocated 96 node\(s\).*run.json asks for 8$"):
        rendezvous_of(offline("13", "juwels-booster"))


def test_a_container_that_takes_no_variables_of_the_job_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile sets APPTAINER_CLEANENV=1: Slurm was said to have allocated no nodes."""
    for name in ("NLP_BENCH_NODES", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    run = offline("13", "juwels-booster")
    run = replace(run, system=replace(run.system, container=Container(image="/img.sif", runtime="apptainer")))
    with pytest.raises(
        NlpBenchError, match=r"hides those of the job: start it without --cleanenv .* without APPTAINER_CLEANENV"
    ):
        rendezvous_of(run)


def test_the_job_script_hands_the_addresses_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "listing", lambda *_, **__: None)  # as in a container
    monkeypatch.setenv("NLP_BENCH_NODES", " ".join(f"10.0.0.{n}" for n in range(8)))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_NODEID", "3")
    found = rendezvous_of(offline("13", "juwels-booster"))
    assert (found.endpoint, found.local_address) == ("10.0.0.0:20007", "10.0.0.3")


def test_torchrun_command() -> None:
    run = offline("tiny", "local", data_path="mock")
    words = torchrun_command(run, rendezvous_of(run), Path("/runs/1"))
    assert words[:4] == [sys.executable, "-u", "-m", "torch.distributed.run"]
    line = " ".join(words)
    assert "--rdzv_backend c10d" in line
    assert "--max_restarts 0 --tee 3 --log_dir /runs/1/ranks -m nlp_bench.train --num-layers 4" in line
    assert "127.0.0.1:0" in words
    assert "is_host=1,join_timeout=70,read_timeout=70,keep_alive_max_attempt=720" in words


def test_a_lone_word_for_the_trainer_is_no_option_of_ours(cli: Cli) -> None:
    asked = ["check", "--offline", "--model", "175", "--system", "juwels-booster", "--data-path", "mock"]
    assert "--manual-gc" in cli(*asked, "--train-args", "--manual-gc").out


def test_a_printed_script_is_checked_as_a_submitted_one(cli: Cli) -> None:
    asked = ["submit", "--print", "--model", "175", "--system", "juwels-booster", "--data-path", "mock"]
    said = cli(*asked, "--num-layers-per-virtual-pipeline-stage", "5", code=2).err
    assert "num_layers = 96 is not a multiple" in said


def test_what_is_still_to_be_made_for_a_system_file_of_ones_own_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """The environment is made for the file's path: its name finds nothing."""
    own = tmp_path / "own system.toml"
    own.write_text((root() / "benchmark/systems/local.toml").read_text())
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path / "venv"))
    asked = ["submit", "--model", "tiny", "--system", str(own), "--mock-data", "--run-dir", str(tmp_path / "run")]
    assert f"setup_venv.sh --system '{own}'`" in cli(*asked, code=2).err
    assert f"setup_venv.sh --system '{own}'\n" in cli(*asked, "--print").err


def test_files_that_train_args_name_are_found_from_the_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vocab.json").touch()
    words = ("--vocab-file", "vocab.json", "--merge-file=none.txt", "--save", "kept")
    run = offline("175", "juwels-booster", data_path="mock", train_args=words)
    assert run.tuning.train_args == ("--vocab-file", f"{tmp_path}/vocab.json", *words[2:])


def test_words_that_need_the_checkpoints_of_a_chain_are_checked_with_them(cli: Cli) -> None:
    asked = ["submit", "--print", "--model", "175", "--system", "juwels-booster", "--data-path", "mock"]
    assert "keep_checkpoints: needs --save" in cli(*asked, "--train-args", "--keep-checkpoints 2", code=2).err
    assert main([*asked, "--train-args", "--keep-checkpoints 2", "--chain", "2"]) == 0


def test_time_outs_reach_the_trainer_unless_it_is_told_otherwise() -> None:
    run = offline("tiny", "local", data_path="mock")
    run = replace(run, limits=Limits(collective_timeout_min=3, notice_s=60, join_timeout_s=8))
    words = training_arguments(run)
    assert words[words.index("--distributed-timeout-minutes") + 1] == "3"
    assert "--exit-signal-handler" in words
    assert "is_host=1,join_timeout=8,read_timeout=8,keep_alive_max_attempt=720" in torchrun_command(
        run, rendezvous_of(run), Path("/runs/1")
    )
    own = replace(
        run, tuning=replace(run.tuning, train_args=("--distributed-timeout-minutes=5", "--exit-signal-handler"))
    )
    assert training_arguments(own).count("--exit-signal-handler") == 1
    assert "--distributed-timeout-minutes=5" in training_arguments(own)
    assert "--distributed-timeout-minutes" not in training_arguments(own)
