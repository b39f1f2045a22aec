"""`nlp-bench plan learn` on run folders: whose runs count, the file that plan takes, bad words."""

import json
from pathlib import Path
from typing import Any

import pytest

from nlp_bench.cli.main import main
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.problem import configuration_of

LAYOUTS = ({"tp": 2, "pp": 4}, {"tp": 4, "pp": 2}, {"tp": 1, "pp": 8}, {"tp": 4, "pp": 4})
SLOWER = 1.12


def made(
    folder: Path, outcome: str = "VALID", model: str = "13", system: str = "juwels-booster", **layout: Any
) -> Path:
    """Write a run that took SLOWER times as long as is predicted."""
    folder.mkdir(parents=True)
    run = resolve(Request(model=model, system=system, launcher="slurm", nodes=8, **layout), ask_scheduler=False)
    run.write(folder)
    seconds = 100.0
    if model == "13" and system == "juwels-booster":
        constants = read_constants()
        seconds = SLOWER * float(forecast(configuration_of(run, constants), constants).seconds.total[0])
    tokens = run.batch.global_batch_size * run.batch.sequence_length
    rate = tokens / seconds
    measured = {
        "outcome": outcome,
        "global_batch_size": run.batch.global_batch_size,
        "sequence_length": run.batch.sequence_length,
        "tokens_per_second": {"steady": rate, "ci95": [0.995 * rate, 1.005 * rate]},
    }
    (folder / "result.json").write_text(json.dumps({"schema": "nlp-bench/result/1", "run": measured}))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for number, layout in enumerate(LAYOUTS):
        made(tmp_path / "runs" / f"{number:06d}", **layout)
    return tmp_path / "runs"


def test_what_was_learned_is_predicted(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "learn", str(runs), "--output", str(tmp_path / "mine.toml")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("learned from 4 runs of juwels-booster (NVIDIA A100-SXM4-40GB)")
    assert out.count(f"{1 / SLOWER - 1:+.1%}") == 4
    before, after = read_constants(), read_constants(tmp_path / "mine.toml")
    run = resolve(Request(model="13", system="juwels-booster", nodes=16, tp=2, pp=8), ask_scheduler=False)
    predicted = [forecast(configuration_of(run, constants), constants) for constants in (before, after)]
    assert predicted[1].seconds.total[0] / predicted[0].seconds.total[0] == pytest.approx(SLOWER, rel=0.02)
    widths = [float(one.high[0] / one.low[0]) for one in predicted]
    assert widths[1] < widths[0]


def test_what_does_not_count_is_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(runs / "failed", "OOM")
    made(runs / "elsewhere", system="dgx-a100", model="13", gpus_per_node=8, tp=2, pp=4)
    made(runs / "other-family", model="t5_220m")
    assert main(["plan", "learn", str(runs)]) == 0
    out = capsys.readouterr().out
    assert "learned from 4 runs" in out
    lines = [line for line in out.splitlines() if line.startswith("did not count: ")]
    assert len(lines) == 3
    for name, why in (("failed", "outcome OOM"), ("elsewhere", "ran on dgx-a100"), ("other-family", "is not planned")):
        assert any(f"/{name}: " in line and why in line for line in lines), name


def test_a_file_that_has_learned_does_not_learn_twice(runs: Path, tmp_path: Path, capsys: Any) -> None:
    first, second = str(tmp_path / "a.toml"), str(tmp_path / "b.toml")
    assert main(["plan", "learn", str(runs), "--output", first]) == 0
    assert main(["plan", "learn", str(runs), "--constants", first, "--output", second]) == 1
    assert "learned before" in capsys.readouterr().err
    assert not Path(second).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing-there"], "no such file or folder"),
        (["{runs}", "--output", "x.json"], ".toml file"),
        (["{runs}", "--system", "dgx-h100"], "no run counts"),
    ],
)
def test_bad_words(runs: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "learn", *(word.format(runs=runs) for word in words)]) in {1, 2}
    assert said in capsys.readouterr().err
