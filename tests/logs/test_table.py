"""Tables of metrics go the road of any log: a known truth comes out, what nobody can know does not."""

import csv
import io
import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.reported import Reported

from nlp_bench.cli.main import main

STEPS = range(1, 41)
TOKENS, SECONDS = 1_000_000, 5.0  # of a step: 200 000 tokens/s
RATE = TOKENS / SECONDS
Rows = list[dict[str, Any]]


def steps(**of_step: Any) -> Rows:
    """Return a row for each step; functions of the step are called, the first step is slow."""
    return [{k: f(n) if callable(f) else f for k, f in of_step.items()} for n in STEPS]


def clock(n: int) -> float:
    return 10.0 + n * SECONDS + 0.01 * (n % 3)


def separated(rows: Rows, mark: str = ",") -> str:
    out = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(out, names, delimiter=mark)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def lines(rows: Rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def lightning() -> str:
    """Lightning's metrics.csv: the rows of a validation have cells of their own."""
    rows: Rows = []
    for n in STEPS:
        rows.append(
            {"epoch": 0, "step": n, "train_loss": 9.0 - n / 20, "train_step_timing in s": clock(n) - clock(n - 1)}
        )
        rows[-1] |= {"global_batch_size": 500, "seq_length": 2000}
        if n % 10 == 0:
            rows.append({"epoch": 0, "step": n, "val_loss": 3.0})
    return separated(rows)


def wandb_export() -> str:
    return separated(
        steps(
            _step=lambda n: n,
            _runtime=clock,
            _timestamp=lambda n: 1.7e9 + clock(n),
            **{"train/loss": lambda n: 9.0 - n / 20, "train/tokens_seen": lambda n: n * TOKENS},
            **{"val/tokens_per_sec": 77.0},
        )
    )


def trainer_state(indent: int | None) -> str:
    history = steps(
        epoch=lambda n: n / 40, loss=lambda n: 9.0 - n / 20, num_input_tokens_seen=lambda n: n * TOKENS,
        step=lambda n: n, train_runtime=clock, train_tokens_per_second=lambda n: n * TOKENS / clock(n),
    )  # fmt: skip
    state = {"best_metric": None, "epoch": 1.0, "global_step": 40, "log_history": history, "max_steps": 40}
    return json.dumps(state, indent=indent)


def exported(*, indent: int | None = None) -> str:
    """OTLP's JSON of Megatron-LM's names: gauges, and a cumulative histogram."""

    def of(n: int) -> dict[str, Any]:
        at = {"timeUnixNano": str(int((1.7e9 + clock(n)) * 1e9))}
        gauge = {"megatron.training.tokens_per_sec": RATE, "megatron.training.loss": 9.0 - n / 20}
        metrics: list[dict[str, Any]] = [
            {"name": name, "gauge": {"dataPoints": [{**at, "asDouble": value}]}} for name, value in gauge.items()
        ]
        total = {**at, "count": str(n), "sum": (clock(n) - clock(0)) * 1e3, "bucketCounts": [], "explicitBounds": []}
        duration = {"aggregationTemporality": 2, "dataPoints": [total]}
        metrics.append({"name": "megatron.training.step_duration_ms", "unit": "ms", "histogram": duration})
        return {"resourceMetrics": [{"scopeMetrics": [{"scope": {"name": "megatron"}, "metrics": metrics}]}]}

    if indent:
        return json.dumps([of(n) for n in STEPS], indent=indent)
    return lines([of(n) for n in STEPS])


MILLISECONDS = steps(
    iteration=lambda n: n,
    step_time_ms=lambda n: 1e3 * (clock(n) - clock(n - 1)),
    consumed_tokens=lambda n: n * TOKENS,
    loss=lambda n: 9.0 - n / 20,
)
TABLES: Mapping[str, str] = {
    "lightning_metrics.csv": lightning(),
    "wandb_export.csv": wandb_export(),
    "metrics.tsv": separated(MILLISECONDS, "\t"),
    "semicolons.csv": separated(MILLISECONDS, ";"),
    "metrics.jsonl": lines(MILLISECONDS),
    "array.json": json.dumps(MILLISECONDS),
    "array_indented.json": json.dumps(MILLISECONDS, indent=2),
    "stream_indented.json": "".join(json.dumps(row, indent=2) + "\n" for row in MILLISECONDS),
    "nested.jsonl": lines([{"step": row["iteration"], "data": row} for row in MILLISECONDS]),
    "trainer_state.json": trainer_state(2),
    "trainer_state_one_line.json": trainer_state(None),
    "megatron_otlp.jsonl": exported(),
    "megatron_otlp.json": exported(indent=2),
    "composer.csv": separated(
        steps(step=lambda n: n, **{"throughput/device/tokens_per_sec": RATE / 8, "throughput/tokens_per_sec": RATE})
    ),
    "date.csv": separated(
        steps(
            step=lambda n: n,
            timestamp=lambda n: f"2026-11-28T10:{n // 2:02}:{n % 2 * 30:02}Z",
            consumed_tokens=lambda n: n * 30 * RATE,
        )
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_gives_its_known_rate(name: str, tmp_path: Path, reported: Reported) -> None:
    (tmp_path / name).write_text(TABLES[name])
    run = reported(tmp_path / name)
    assert run["outcome"] in {"MEASURED", "VALID"}, run["reasons"]
    assert run["tokens_per_second"]["steady"] == pytest.approx(RATE, rel=2e-3)


def write_events(folder: Path) -> Path:
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for n in STEPS:
            writer.add_scalar("lm loss", 9.0 - n / 20, n, walltime=1.7e9 + clock(n))
            writer.add_scalar("consumed-tokens", n * TOKENS, n, walltime=1.7e9 + clock(n))
            writer.add_scalar("iteration-time", clock(n) - clock(n - 1), n, walltime=1.7e9 + clock(n))
    return next(folder.glob("events*"))


@pytest.mark.slow
def test_an_event_file_of_tensorboard(tmp_path: Path, reported: Reported) -> None:
    pytest.importorskip("tensorboard")
    run = reported(write_events(tmp_path))
    assert (run["dialect"], run["outcome"]) == ("table", "MEASURED")
    assert run["tokens_per_second"]["steady"] == pytest.approx(RATE, rel=2e-3)


def test_an_event_file_without_tensorboard_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_events(tmp_path)
    for name in [n for n in sys.modules if n.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    (tmp_path / "a.tsv").write_text(TABLES["metrics.tsv"])
    assert main(["report", str(tmp_path / "a.tsv"), str(path), "--format", "json"]) == 1
    table, events = json.loads(capsys.readouterr().out)["runs"]
    assert (table["outcome"], events["outcome"]) == ("MEASURED", "REFUSED")
    assert "pip install 'nlp-bench[tables]'" in events["reasons"][0]


def test_a_table_of_unknown_columns_proposes_a_pattern_that_reads_it(tmp_path: Path, reported: Reported) -> None:
    rows = steps(nr=lambda n: n, x=0.5, dauer_ms=lambda n: 1e3 * (clock(n) - clock(n - 1)), fehler=2.0)
    for name, text in {"a.csv": separated(rows), "a.tsv": separated(rows, "\t"), "a.jsonl": lines(rows)}.items():
        path = tmp_path / name
        path.write_text(text)
        run = reported(path)
        pattern = re.search(r"--pattern=(\S+) reads", run["reasons"][0])
        assert pattern
        (unquoted,) = shlex.split(pattern[1])
        run = reported(path, "--pattern", unquoted, "--global-batch-size", "500", "--sequence-length", "2000")
        assert run["tokens_per_second"]["steady"] == pytest.approx(RATE, rel=2e-3)


REINFORCED = {
    "verl.csv": separated(steps(step=lambda n: n, **{"actor/pg_loss": 0.1, "timing_s/gen": 3.0, "global_tokens": 9})),
    "verl.log": "step:1 - actor/pg_loss:0.1 - timing_s/gen:3.0 - train/global_tokens:40000 - train/time(s):1.0\n" * 3,
}


@pytest.mark.parametrize("name", REINFORCED)
def test_reinforcement_learning_is_refused_with_that_reason(name: str, tmp_path: Path, reported: Reported) -> None:
    (tmp_path / name).write_text(REINFORCED[name])
    run = reported(tmp_path / name)
    assert run["outcome"] == "REFUSED"
    assert "reinforcement learning" in run["reasons"][0]


def test_what_a_column_leaves_out_is_doubted_unless_another_one_checks_it(reported: Reported) -> None:
    bare = steps(step=lambda n: n, loss=3.0, tokens_per_sec=RATE)
    checked = [row | {"consumed_tokens": n * TOKENS, "step_time_ms": 1e3 * SECONDS} for n, row in enumerate(bare, 1)]
    assert [each["weight"] for each in reported(lines(bare))["contradictions"]] == ["DOUBT"]
    assert reported(lines(checked))["contradictions"] == []
    wrong = [row | {"tokens_per_sec": RATE / 4} for row in checked]
    assert reported(lines(wrong))["outcome"] == "INVALID"


def test_columns_of_several_runs_are_no_training(tmp_path: Path, reported: Reported) -> None:
    path = tmp_path / "wandb_chart.csv"
    runs = {f"run-{n} - train/tokens_per_sec": RATE for n in (1, 2)}
    path.write_text(separated(steps(Step=lambda n: n, **runs)))
    assert reported(path)["outcome"] == "REFUSED"
