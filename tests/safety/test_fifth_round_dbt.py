"""Faults of a fifth round: numbers that a log contradicts, and sizes given by hand, in every view of several runs."""

import json
import re
from pathlib import Path

import pytest
from support.repeated import write_log, write_runs

import nlp_bench
from nlp_bench.cli.main import main

DOUBT = "the samples per second of the log are 0.82 times what its time and sizes give"
STEADY = (49300.0, 49200.0, 49350.0)


def doubted(path: Path, rate: float, seed: int = 0, factor: float = 0.82, **changes: object) -> Path:
    """Write a log whose samples per second are `factor` times what its times give."""
    write_log(path, rate, seed, **changes)

    def stated(found: re.Match[str]) -> str:
        return f"{found[0]} samples per second: {factor * 64e3 / float(found[1]):.3f} |"

    path.write_text(re.sub(r"\(ms\): ([\d.]+) \|", stated, path.read_text()))
    return path


@pytest.fixture
def honest(tmp_path: Path) -> str:
    return str(write_runs(tmp_path / "honest", *STEADY, seed=9))


@pytest.mark.parametrize("form", ["table", "json", "markdown"])
@pytest.mark.parametrize("gate", ["--gate", "--equivalent"])
def test_a_contradicted_number_proves_nothing_in_a_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], honest: str, form: str, gate: str
) -> None:
    odd = str(doubted(tmp_path / "odd.log", 65500.0))
    assert main(["compare", honest, odd, gate, "1", "--strict", "--format", form]) == 1
    said = capsys.readouterr().out
    assert DOUBT in said
    assert "MEASURED" in said
    assert "NOT PROVEN" in said
    assert "it is proven" not in said
    if form == "json":
        (found,) = json.loads(said)["comparisons"]
        assert found["ratio"]["verdict"] == "doubted"
        assert found["b"]["doubts"] == [{"source": odd, "outcome": "MEASURED", "doubts": [DOUBT]}]
    assert main(["compare", odd, honest, "--gate", "1"]) == 0  # the slower side is no proof either
    assert "GATE NOT PROVEN: a contradicted number proves nothing" in capsys.readouterr().out


def test_contradicted_repeats_are_named_and_prove_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], honest: str
) -> None:
    for seed in range(3):
        doubted(tmp_path / f"odd/r{seed}.log", 65500.0 + 100 * seed, seed)
    odd = str(tmp_path / "odd")
    assert main(["compare", honest, odd, "--equivalent", "2", "--allow-measured"]) == 0
    said = capsys.readouterr().out
    assert said.count(f"(MEASURED): {DOUBT}") == 4  # each run, and the first of them as the reason
    assert "EQUIVALENCE NOT PROVEN" in said
    assert main(["report", odd, "--limit", "400", "--allow-measured"]) == 0
    said = capsys.readouterr().out
    assert f"limit of 400 s: NOT PROVEN ({odd}/r0.log (MEASURED): {DOUBT})" in said
    assert main(["compare", f"{honest}/run1.log", f"{honest}/run2.log", "--scatter", odd, "--allow-measured"]) == 2
    assert "a contradicted number shows no scatter: leave that run out" in capsys.readouterr().err


def test_the_history_and_python_keep_the_doubts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], honest: str
) -> None:
    file, odd = ["--file", str(tmp_path / "h.db")], doubted(tmp_path / "odd.log", 65500.0)
    assert main(["history", "add", honest, *file]) == 0
    assert main(["history", "add", str(odd), "--name", "odd", *file]) == 0
    for a, b in (("history:last-3", str(odd)), (honest, "history:odd")):
        capsys.readouterr()
        assert main(["compare", a, b, "--gate", "1", "--strict", *file]) == 1
        assert f"(MEASURED): {DOUBT}" in capsys.readouterr().out
    logs = nlp_bench.read_logs(honest)
    found = nlp_bench.compare(logs, nlp_bench.read_log(odd), gate=1, strict=True)
    assert not found.passes
    assert found.ratios[0].verdict == "doubted"
    assert found.ratios[0].p_value is None
    by_hand = nlp_bench.read_log(Path(honest) / "run1.log", num_gpus=64)
    assert not nlp_bench.compare(logs[1:], by_hand, gate=1, strict=True).passes
