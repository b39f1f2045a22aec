"""Factors that made the runs are found in them, no more than the runs support, and nothing counts that should not."""

import json
import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.command import Cli

from nlp_bench.cli.plan.constants import result_of
from nlp_bench.config.catalog import find
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.plan.constants import SCHEMA, read_constants
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.learn import KINDS, UNSEEN_LAYOUTS, Known, Lesson, fitted, learn, report
from nlp_bench.plan.problem import configuration_of

WIDTH = 0.08
SHARES = [[10.0, 0.5, 0.2], [5.0, 3.0, 0.3], [3.0, 0.4, 1.5], [8.0, 4.0, 0.1], [2.0, 2.0, 1.0], [20.0, 1.0, 0.1]]


def known(index: int, shares: list[float], seconds: float, noise: float = 0.005) -> Known:
    run = SimpleNamespace(
        model=SimpleNamespace(name=f"m{index}"),
        system=SimpleNamespace(name="here"),
        parallel=SimpleNamespace(num_gpus=8, tensor=1, pipeline=1, data=8),
        batch=SimpleNamespace(micro_batch_size=1, global_batch_size=8),
    )
    row: dict[str, Any] = {"source": f"run{index}", "run": run, "seconds": seconds, "noise": noise}
    return Known(**row, before=sum(shares), width=WIDTH, gpu="A100")


def lesson_of(shares: list[list[float]], seconds: list[float], noise: float = 0.005) -> Lesson:
    """Learn from rows whose model is a sum of three parts."""
    rows = [known(i, *pair, noise) for i, pair in enumerate(zip(shares, seconds, strict=True))]
    return fitted(read_constants(), rows, lambda logarithms: np.array(shares) @ np.exp(logarithms))


def made_by(factors: tuple[float, float, float], number: int = 6, scatter: float = 0.0) -> Lesson:
    drawn = random.Random(5)  # noqa: S311  # noise, not a secret
    shares = SHARES[:number]
    return lesson_of(shares, [float(np.dot(one, factors)) * drawn.lognormvariate(0, scatter) for one in shares])


def test_three_factors_are_told_apart() -> None:
    lesson = made_by((1.1, 1.4, 0.8))
    assert not lesson.together
    for kind, factor, within in zip(KINDS, (1.1, 1.4, 0.8), (0.02, 0.06, 0.1), strict=True):
        assert lesson.factors[kind] == pytest.approx(factor, rel=within)
    for one, after in zip(lesson.known, lesson.after, strict=True):
        assert after == pytest.approx(one.seconds, rel=0.02)


def test_one_run_gives_one_factor_between_belief_and_measurement() -> None:
    lesson = made_by((1.2, 1.2, 1.2), 1)
    assert lesson.together
    assert len(set(lesson.factors.values())) == 1
    assert 1.1 < lesson.factors["compute"] < 1.2


def test_an_uncertain_run_moves_less() -> None:
    sure, unsure = (lesson_of(SHARES[:1], [1.2 * sum(SHARES[0])], noise) for noise in (0.005, 0.2))
    assert unsure.factors["compute"] < 1.05 < sure.factors["compute"]
    assert unsure.high > sure.high


def test_one_layout_leaves_room_for_others() -> None:
    assert np.log(made_by((1.0, 1.0, 1.0), 1).high) > 1.645 * UNSEEN_LAYOUTS


def test_more_runs_narrow_the_interval_but_not_below_their_scatter() -> None:
    widths = [made_by((1.1, 1.1, 1.1), number).high - 1 for number in (1, 6)]
    assert widths[1] < widths[0] < np.exp(1.645 * WIDTH) - 1
    scattered = made_by((1.1, 1.1, 1.1), 6, scatter=0.06)
    assert np.log(scattered.high) > 1.645 * 0.03


def test_equal_shares_are_one_factor() -> None:
    sizes = (1.0, 2.0, 3.0, 4.0)
    lesson = lesson_of([[4.0 * size, 1.0 * size, 0.1 * size] for size in sizes], [6.0 * size for size in sizes])
    assert lesson.together
    assert "hardly differ" in report(lesson)
    assert "before +-13%" in report(lesson)  # 1.645 x WIDTH


def test_runs_of_another_machine_raise_a_doubt() -> None:
    assert "WARNING: compute, network, overhead: farther" in report(made_by((0.6, 0.6, 0.6), 2))
    assert "WARNING" not in report(made_by((1.1, 1.1, 1.1), 2))


def test_the_forecast_follows_what_was_learned() -> None:
    constants = read_constants()
    run = resolve(Request(model="13", system="juwels-booster", nodes=8), ask_scheduler=False)
    c = configuration_of(run, constants)
    before = forecast(c, constants)
    lesson = made_by((1.2, 1.2, 1.2), 1)
    factor = lesson.factors["compute"]
    after = forecast(c, lesson.constants)
    np.testing.assert_allclose(after.seconds.total, factor * before.seconds.total, rtol=0.01)
    np.testing.assert_allclose(after.high / after.seconds.total, lesson.high)
    computed = forecast(c, constants.with_values({"scale_compute": 1.5})).seconds.total / before.seconds.total
    assert 1.2 < float(computed[0]) <= 1.5


def test_paths_without_runs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("iteration 1")
    for path, said in (("nothing", "no such file"), (".", "holds no run"), ("job.log", "a log alone")):
        with pytest.raises(UsageError, match=said):
            learn(read_constants(), [tmp_path / path], result_of)


def test_a_run_that_is_not_valid_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "nlp-bench/run/1"}')
    (tmp_path / "result.json").write_text('{"schema": "nlp-bench/result/1", "run": {"outcome": "OOM"}}')
    with pytest.raises(NlpBenchError, match="outcome OOM: only VALID runs count"):
        learn(read_constants(), [tmp_path], result_of)


LAYOUTS = (
    {"tensor": 2, "pipeline": 4}, {"tensor": 4, "pipeline": 2}, {"tensor": 1, "pipeline": 8}, {"tensor": 4, "pipeline": 4},
)  # fmt: skip
SLOWER = 1.12


def made(
    folder: Path, outcome: str = "VALID", model: str = "13", system: str = "juwels-booster", **layout: Any
) -> Path:
    """Write a run that took SLOWER times as long as is predicted."""
    folder.mkdir(parents=True)
    run = resolve(Request(model=model, system=system, launcher="slurm", nodes=8, **layout), ask_scheduler=False)
    run.write(folder)
    seconds = 100.0
    if model == "13":
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


@pytest.mark.slow
def test_what_was_learned_is_predicted(runs: Path, tmp_path: Path, cli: Cli) -> None:
    out = cli("plan", "learn", runs, "--output", tmp_path / "mine.toml").out
    assert out.startswith("learned from 4 runs of juwels-booster (NVIDIA A100-SXM4-40GB)")
    assert out.count(f"{1 / SLOWER - 1:+.1%}") == 4
    before, after = read_constants(), read_constants(tmp_path / "mine.toml")
    run = resolve(Request(model="13", system="juwels-booster", nodes=16, tensor=2, pipeline=8), ask_scheduler=False)
    predicted = [forecast(configuration_of(run, constants), constants) for constants in (before, after)]
    assert predicted[1].seconds.total[0] / predicted[0].seconds.total[0] == pytest.approx(SLOWER, rel=0.02)
    widths = [float(one.high[0] / one.low[0]) for one in predicted]
    assert widths[1] < widths[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "learn runs --system benchmark/systems/site.v2.toml",
        "--model 13 --system site.v2 --nodes 8 --top 1 --learn runs",
    ],
)
def test_the_machine_to_learn_of_is_a_system_by_name_or_file(here: Path, cli: Cli, words: str) -> None:
    (here / "benchmark" / "systems").mkdir(parents=True)
    shutil.copyfile(find("systems", "juwels-booster"), here / "benchmark" / "systems" / "site.v2.toml")
    made(here / "runs" / "own", system="site.v2", **LAYOUTS[0])
    made(here / "runs" / "other", system="dgx-a100", gpus_per_node=8, tensor=2, pipeline=4)
    done = cli("plan", *words.split())
    assert "learned from 1 run of site.v2 (" in done.out + done.err
    assert "ran on dgx-a100, not on site.v2" in done.out + done.err


@pytest.mark.slow
def test_what_was_learned_of_one_gpu_is_doubted_for_another(runs: Path, tmp_path: Path, cli: Cli) -> None:
    mine = tmp_path / "mine.toml"
    cli("plan", "learn", runs, "--output", mine)
    said = "warning: the constants were measured on NVIDIA A100-SXM4-40GB, not on NVIDIA H100 80GB HBM3: neither they nor the interval"
    for system, nodes in (("juwels-booster", "8"), ("dgx-h100", "4")):
        done = cli("plan", "--model", "13", "--system", system, "--nodes", nodes, "--top", "1", "--constants", mine)
        assert (said in done.err) == (system == "dgx-h100")
    rows = (("mine", "A100-SXM-40GB"), ("theirs", "H200-SXM-141GB"))
    text = "id,layers,hidden,heads,ffn,vocab,seq,gpu,n_gpus,tp,pp,mbs,gbs,precision\n"
    text += "".join(f"{name},40,5120,40,20480,50304,2048,{gpu},16,4,1,1,64,bf16\n" for name, gpu in rows)
    (tmp_path / "points.csv").write_text(text)
    done = cli("plan", "predict", tmp_path / "points.csv", "--constants", mine)
    (doubt,) = [line for line in done.err.splitlines() if "were measured on" in line]
    assert "NVIDIA A100-SXM4-40GB, not on H200-SXM-141GB" in doubt


@pytest.mark.slow
def test_a_copy_of_a_run_is_not_learned_from_again(runs: Path, cli: Cli) -> None:
    """Nor what failed, ran elsewhere or is not planned; each is named."""
    made(runs / "failed", "OOM")
    made(runs / "elsewhere", system="dgx-a100", model="13", gpus_per_node=8, tensor=2, pipeline=4)
    made(runs / "other-family", model="t5_220m")
    shutil.copytree(runs / "000000", runs / "backup")
    copy = f"the run of {runs}/000000 again, a copy"
    reasons = {"failed": "outcome OOM", "elsewhere": "ran on dgx-a100", "other-family": "", "backup": copy}
    out = cli("plan", "learn", runs).out
    assert "learned from 4 runs" in out
    assert out.count("did not count: ") == len(reasons)
    assert all(f"did not count: {runs}/{name}: {why}" in out for name, why in reasons.items()), out
    assert "is not planned" in out


@pytest.mark.slow
@pytest.mark.parametrize("tables", ["", '[measurements]\nof = "May"\n', "[time]  # of May\n"])
def test_what_was_learned_is_added_to_any_file_of_constants(runs: Path, tmp_path: Path, cli: Cli, tables: str) -> None:
    base, mine = tmp_path / "base.toml", tmp_path / "mine.toml"
    base.write_text(f'schema = "{SCHEMA}"\nabout = "mine"\n{tables}')
    cli("plan", "learn", runs, "--constants", base, "--output", mine)
    assert read_constants(mine)["scale_compute"] == pytest.approx(SLOWER, rel=0.02)
    again = cli("plan", "learn", runs, "--constants", mine, "--output", tmp_path / "again.toml", code=1)
    assert "learned before" in again.err
    assert not (tmp_path / "again.toml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--output", "x.json"], "name it x.toml"), (["--system", "dgx-h100"], "no run counts")],
)
def test_bad_words(runs: Path, words: list[str], said: str, cli: Cli) -> None:
    done = cli("plan", "learn", runs, *words, code=None)
    assert done.code in {1, 2}
    assert said in done.err
