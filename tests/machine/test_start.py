"""How the launcher starts the recorder."""

import sys
from pathlib import Path

import pytest

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.errors import UsageError
from nlp_bench.launch.nodes.torchrun import rank_environment
from nlp_bench.machine.start import interval_s, recorder_command


def test_the_command(tmp_path: Path) -> None:
    run = resolve(Request(model="175", system="juwels-booster"), ask_scheduler=False)
    assert recorder_command(run, tmp_path, 42, 1.0) == [
        sys.executable, "-m", "nlp_bench.machine.sampler", str(tmp_path),
        "--parent", "42", "--gpus", "4", "--interval-s", "1",
    ]  # fmt: skip
    on_cpu = resolve(Request(model="tiny", system="slurm-sandbox"), ask_scheduler=False)
    assert "--gpus 0 " in " ".join(recorder_command(on_cpu, tmp_path, 42, 1.0))


@pytest.mark.parametrize(("word", "value"), [("0.5", 0.5), ("0", 0.0), ("10", 10.0)])
def test_the_interval(monkeypatch: pytest.MonkeyPatch, word: str, value: float) -> None:
    monkeypatch.setenv("NLP_BENCH_SAMPLE_S", word)
    assert interval_s() == value


@pytest.mark.parametrize("word", ["fast", "-1", "1e9", "nan", "", "0.001"])
def test_a_wrong_interval_is_refused_with_its_rule(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv("NLP_BENCH_SAMPLE_S", word)
    with pytest.raises(UsageError, match=r"NLP_BENCH_SAMPLE_S: .* from 0.05 to 60; leave it out for 1"):
        interval_s()


def test_nccl_says_its_version_unless_asked_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    run = resolve(Request(model="175", system="juwels-booster"), ask_scheduler=False)
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    assert rank_environment(run, {})["NCCL_DEBUG"] == "VERSION"
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    assert "NCCL_DEBUG" not in rank_environment(run, {})
