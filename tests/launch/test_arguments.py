"""The trainer's arguments and torchrun's, from run.json."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.config.system import Network
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch import rendezvous
from nlp_bench.launch.arguments import training_arguments
from nlp_bench.launch.rendezvous import meet
from nlp_bench.launch.torchrun import torchrun_command


def offline(model: str, system: str, **choices: object) -> Run:
    return resolve(Request(model=model, system=system, **choices), ask_scheduler=False)  # type: ignore[arg-type]


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
    from nlp_bench.train.arguments import parse

    for model, system in (("tiny", "slurm-sandbox"), ("175", "juwels-booster"), ("13", "juwels-booster")):
        parse(training_arguments(offline(model, system, data_path="mock")))


def slurm_answers(*command: str, **_: object) -> str:
    if command[:3] == ("scontrol", "show", "hostnames"):
        return "\n".join(f"n{i}" for i in range(96))
    return "".join(f"NodeName={n} Arch=x86_64 NodeAddr={n}.cluster NodeHostName={n}\n" for n in command[3].split(","))


def test_rendezvous_from_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "ask", slurm_answers)
    monkeypatch.setenv("SLURM_JOB_ID", "41234")
    monkeypatch.setenv("SLURM_NODEID", "2")
    found = meet(offline("175", "juwels-booster"))
    assert found.endpoint == "n0i:25234"  # the system's suffix for its fast network; port 20000 + 41234 % 12000
    assert (found.local_address, found.is_host) == ("n2i", False)


def test_without_a_suffix_the_addresses_are_slurms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "ask", slurm_answers)
    run = offline("175", "slurm-sandbox")
    assert rendezvous.addresses(run)[1] == "n1.cluster"
    static = replace(run, system=replace(run.system, network=Network(rendezvous="static")))
    monkeypatch.setenv("SLURM_NODEID", "2")
    line = " ".join(torchrun_command(static, meet(static), Path("/runs/1")))
    assert "--rdzv_backend static --node_rank 2 --rdzv_endpoint n0.cluster:" in line


def test_wrong_allocation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "ask", slurm_answers)
    with pytest.raises(NlpBenchError, match=r"allocated 96 node\(s\).*run.json asks for 8"):
        meet(offline("13", "juwels-booster"))


def test_the_job_script_hands_the_addresses_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "ask", lambda *_, **__: None)  # as in a container
    monkeypatch.setenv("NLP_BENCH_NODES", " ".join(f"10.0.0.{n}" for n in range(8)))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_NODEID", "3")
    found = meet(offline("13", "juwels-booster"))
    assert (found.endpoint, found.local_address) == ("10.0.0.0:20007", "10.0.0.3")


def test_torchrun_command() -> None:
    run = offline("tiny", "local", data_path="mock")
    words = torchrun_command(run, meet(run), Path("/runs/1"))
    assert words[:4] == [sys.executable, "-u", "-m", "torch.distributed.run"]
    line = " ".join(words)
    assert "--rdzv_backend c10d" in line
    assert "--max_restarts 0 --tee 3 --log_dir /runs/1/ranks -m nlp_bench.train --num-layers 4" in line
    assert "127.0.0.1:0" in words
    assert "is_host=1,join_timeout=600,read_timeout=600" in words
