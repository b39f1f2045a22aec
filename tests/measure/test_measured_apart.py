"""A log that does not show how its run ended is exported, pooled and counted only where a person says so; two programs never are repeats."""

import json
from pathlib import Path

import pytest
from support.command import Cli
from support.megatron_log import dump, line

from nlp_bench.analysis.repeats import Observation, pooled
from nlp_bench.measure.workload import Setting
from nlp_bench.outcome import Outcome

DUMP = {"num_layers": 12, "hidden_size": 768, "seq_length": 2048, "world_size": 8, "global_batch_size": 96}
FLAG = "--allow-measured"


def write(path: Path, *, last: int = 24, more_s: float = 0.0) -> Path:
    lines = "".join(
        line(i, 40, samples=96 * i, s=5 + 0.01 * (i * 7 % 5) + more_s, batch=96, loss=9 - 0.01 * i, skipped=0, nan=0)
        for i in range(1, last + 1)
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text(dump(**DUMP) + lines)
    return path


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    return [str(write(tmp_path / f"a/{name}.log", more_s=0.002 * name)) for name in range(3)]


def test_logs_that_stop_early_are_no_repeats_unless_told(logs: list[str], cli: Cli) -> None:
    record = cli("report", *logs, "--format", "json").json
    assert ({run["outcome"] for run in record["runs"]}, record.get("repeats")) == ({"MEASURED"}, None)
    (found,) = cli("report", *logs, FLAG, "--format", "json").json["repeats"]
    assert found["sources"] == logs
    said = f"3 logs of one configuration are MEASURED, and so no repeats of each other; pool them with {FLAG}"
    assert said in cli("report", *logs).out


def test_whole_logs_are_repeats(tmp_path: Path, cli: Cli) -> None:
    whole = [str(write(tmp_path / f"{name}.log", last=40, more_s=0.002 * name)) for name in range(2)]
    (found,) = cli("report", *whole, "--format", "json").json["repeats"]
    assert found["sources"] == whole


@pytest.mark.parametrize(
    ("more_s", "left_out", "verdict"),
    [
        (0.0, "", "PASS"),  # a part of the first run
        (0.02, "1 run of this configuration is MEASURED and left out (other.log at 39009.52 tokens/s: PASS)", "PASS"),
        (
            1.0,
            "1 run of this configuration is MEASURED and left out (other.log at 32659.14 tokens/s: FAIL)",
            "NOT PROVEN (other.log: a run of this configuration that is left out breaks the limit)",
        ),
    ],
)
def test_a_run_that_is_left_out_of_the_repeats_is_named_and_may_break_their_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, more_s: float, left_out: str, verdict: str
) -> None:
    for name in range(2):
        write(tmp_path / f"{name}.log", last=40, more_s=0.002 * name)
    write(tmp_path / "other.log", more_s=more_s)
    monkeypatch.chdir(tmp_path)
    out = cli("report", "0.log", "1.log", "other.log", "--limit", "550").flat
    assert out.count("left out (") == bool(left_out)
    assert left_out in out
    assert f"limit of 550 s: {verdict}" in out


def test_folders_of_logs_that_state_little_are_told_which_options_pool_them(tmp_path: Path, cli: Cli) -> None:
    for side in ("a", "b"):
        for name in range(3):
            log = write(tmp_path / f"{side}/{name}.log", more_s=0.002 * name)
            text = log.read_text()
            log.write_text(text[text.index(" iteration ") :])  # without the arguments
    words = ["compare", tmp_path / "a", tmp_path / "b", "--sequence-length", "2048", "--same-workload"]
    said = cli(*words, code=2).err
    assert (FLAG in said, "not shown" in said) == (True, False)
    cli(*words, FLAG)


def test_an_export_refuses_them_and_names_the_option(logs: list[str], cli: Cli) -> None:
    _, out, err = cli("export", "bigger", logs[0], code=1)
    assert (out, "MEASURED" in err, FLAG in err) == ("", True, True)
    assert len(cli("export", "bigger", logs[0], FLAG).json) == 1


def test_a_comparison_of_two_named_logs_needs_no_option_and_one_of_folders_does(
    logs: list[str], tmp_path: Path, cli: Cli
) -> None:
    for name in range(2):
        write(tmp_path / f"b/{name}.log", more_s=0.5 + 0.002 * name)
    cli("compare", logs[0], tmp_path / "b/0.log", "--same-workload")
    folders = ["compare", tmp_path / "a", tmp_path / "b", "--same-workload"]
    assert FLAG in cli(*folders, code=2).err
    (pair,) = cli(*folders, FLAG, "--format", "json").json["comparisons"]
    assert (len(pair["a"]["runs"]), len(pair["b"]["runs"])) == (3, 2)


def test_a_trend_leaves_them_out_and_says_so(logs: list[str], tmp_path: Path, cli: Cli) -> None:
    file = ["--file", str(tmp_path / "history.sqlite3")]
    cli("history", "add", *logs, *file)
    _, out, err = cli("history", "trend", *file, "--format", "json")
    assert (json.loads(out)["configurations"], "3 MEASURED left out" in err) == ([], True)
    (found,) = cli("history", "trend", *file, FLAG, "--format", "json").json["configurations"]
    assert found["runs"] == [1, 2, 3]
    cli("history", "list", *file, FLAG, code=2)


def test_logs_of_two_programs_are_no_repeats() -> None:
    settings = {name: Setting(value, "the log") for name, value in {**DUMP, "num_gpus": 8}.items()}
    runs = [
        Observation(
            source=program, outcome=Outcome.VALID, seconds_per_token=seconds, settings=settings, program=program
        )
        for program, seconds in (("megatron-lm", 1e-5), ("nemo-2", 1e-5), ("megatron-lm", 1.01e-5))
    ]
    for trust in (False, True):
        assert sorted(len(pool.runs) for pool in pooled(runs, trust=trust, allow_measured=True)) == [1, 2]
