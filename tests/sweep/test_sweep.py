"""`nlp-bench report --sweep`: failures stay, repeats are pooled, a tie is a tie, nothing is mislabelled."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.repeated import write_log as repeated_log
from support.repeated import write_runs
from support.series import keep_two_lines, write_log, write_series_run, write_sweep

from nlp_bench.analysis.sweep import sweep_charts, sweep_of
from nlp_bench.measure.folder import measure_folder
from nlp_bench.measure.workload import Setting
from nlp_bench.show.chart import Chart, HeatMap


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return write_sweep(tmp_path / "runs")


def sweeps_of(report: Cli, *words: object) -> list[dict[str, Any]]:
    record = report(*words, "--sweep", "--format", "json").json
    assert record["schema"] == "nlp-bench/sweep/1"
    return list(record["sweeps"])


def test_a_tie_is_a_tie_and_failures_stay(report: Cli, runs: Path) -> None:
    (sweep,) = sweeps_of(report, runs)
    rows = sweep["configurations"]
    told = [(r["settings"]["tensor_model_parallel_size"], r["settings"]["pipeline_model_parallel_size"]) for r in rows]
    assert {told[0], told[1]} == {(2, 1), (2, 2)}
    assert [row["standing"] for row in rows] == ["tied for best"] * 2 + ["slower"] * 3 + ["no number"]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5, None]
    assert rows[0]["of_fastest"] is None
    assert 0.95 < rows[1]["of_fastest"] < 1
    assert sweep["varies"] == ["tensor_model_parallel_size", "pipeline_model_parallel_size"]
    assert sweep["winners"] == [rows[0]["identity"], rows[1]["identity"]]
    assert len({row["identity"] for row in rows}) == 6
    assert [(row["num_counted"], row["num_runs"]) for row in rows] == [(3, 3)] * 5 + [(0, 3)]
    assert rows[-1]["cause"] == "OUT_OF_MEMORY: CUDA out of memory on rank 3"
    assert rows[-1]["tokens_per_second"] is None


def test_a_setting_that_differs_at_its_end_alone_is_told(cli: Cli, tmp_path: Path) -> None:
    for size, word in enumerate(("mlp", "moe_act")):
        modules = f"['core_attn', 'layernorm', '{word}']"
        repeated_log(tmp_path / f"{word}.log", 1000 + 200 * size, recompute_modules=modules)
    (sweep,) = cli("report", tmp_path, "--sweep", "--format", "json").json["sweeps"]
    assert sweep["varies"] == ["recompute_modules"]
    assert (
        sweep["sentence"]
        == "winner: recompute modules ...n', 'layernorm', 'moe_act'], faster than the other one at 95 %"
    )


def test_a_long_setting_that_differs_at_its_beginning_alone_is_told(cli: Cli, tmp_path: Path) -> None:
    for size, word in enumerate(("mlp", "moe_act")):
        modules = f"['{word}', 'core_attn', 'layernorm', 'shared_experts']"
        repeated_log(tmp_path / f"{word}.log", 1000 + 200 * size, recompute_modules=modules)
    (sweep,) = cli("report", tmp_path, "--sweep", "--format", "json").json["sweeps"]
    assert "'moe_act'" in sweep["sentence"]
    shown = cli("report", tmp_path, "--sweep").out
    assert ("['mlp'" in shown, "['moe_act'" in shown) == (True, True), shown


def test_a_repeat_that_failed_is_counted_beside_those_that_ran(report: Cli, tmp_path: Path) -> None:
    for repeat in range(3):
        outcome, why = ("TIMEOUT", ("the time limit",)) if repeat == 2 else ("VALID", ())
        write_series_run(tmp_path / f"a{repeat}", tp=2, seed=repeat, outcome=outcome, reasons=why)
        write_series_run(tmp_path / f"b{repeat}", tp=4, seed=10 + repeat, mean_s=2)
    (sweep,) = sweeps_of(report, tmp_path)
    first = sweep["configurations"][0]
    # Beside a number the cause says whose it is.
    assert (first["num_counted"], first["num_runs"]) == (2, 3)
    assert first["cause"] == f"{tmp_path / 'a2'}: TIMEOUT: the time limit"
    assert "2 of 3" in report(tmp_path, "--sweep")[1]


def test_a_log_that_contradicts_its_run_json_is_shown_and_not_ranked(report: Cli, runs: Path) -> None:
    write_series_run(runs / "wrong", nodes=2, tp=2, pp=2, logged_tp=1, mean_s=0.2)
    (sweep,) = sweeps_of(report, runs)
    wrong = sweep["configurations"][-1]
    assert (wrong["standing"], wrong["rank"], wrong["tokens_per_second"]) == ("not ranked", None, None)
    assert "TP is 1 in the log (log line " in wrong["cause"]
    assert "but 2 in run.json" in wrong["cause"]
    assert len(sweep["winners"]) == 2


@pytest.mark.parametrize(
    ("times_s", "sentence"),
    [
        ((None, None), "no winner: every configuration failed"),
        ((1.0, 1.2, 1.4), "winner: TP 1, faster than each of the 2 others at 95 %"),
        ((None, 1.0), "the only configuration with a number: TP 2; 1 of 2 configurations have no number"),
    ],
)
def test_sentence_on_the_winner(report: Cli, tmp_path: Path, times_s: tuple[float | None, ...], sentence: str) -> None:
    for tp, mean_s in zip((1, 2, 4), times_s, strict=False):
        how = {"outcome": "OUT_OF_MEMORY"} if mean_s is None else {"mean_s": mean_s}
        write_series_run(tmp_path / str(tp), tp=tp, seed=tp, **how)  # type: ignore[arg-type]
    (sweep,) = sweeps_of(report, tmp_path)
    assert sweep["sentence"] == sentence
    assert len(sweep["winners"]) == (times_s != (None, None))
    assert ("one run per configuration" in report(tmp_path, "--sweep")[1]) == (times_s != (None, None))


def test_without_an_interval_nothing_is_judged(report: Cli, tmp_path: Path) -> None:
    for tp in (1, 2):
        path = write_log(tmp_path / f"{tp}.log", gpus=8, batch=64, mean_s=tp, tp=tp)
        keep_two_lines(path)
    (sweep,) = sweeps_of(report, tmp_path)
    assert [row["standing"] for row in sweep["configurations"]] == ["no interval"] * 2
    assert sweep["sentence"].startswith("no winner can be named: no rate has an interval")


def test_logs_that_do_not_state_their_layout_are_never_pooled(report: Cli, tmp_path: Path) -> None:
    for number in range(2):
        path = write_log(tmp_path / f"{number}.log", gpus=8, batch=64, mean_s=1, seed=number)
        kept = [line for line in path.read_text().splitlines(keepends=True) if "parallel_size" not in line]
        path.write_text("".join(kept))
    (sweep,) = sweeps_of(report, tmp_path)
    assert [row["num_runs"] for row in sweep["configurations"]] == [1, 1]


@pytest.mark.parametrize("other", [{"transformer_impl": "transformer_engine"}, {}], ids=["another", "not stated"])
def test_another_library_is_another_configuration(report: Cli, tmp_path: Path, other: dict[str, object]) -> None:
    for number, kernel in enumerate(({"transformer_impl": "local"}, other)):
        write_log(tmp_path / f"{number}.log", gpus=8, batch=64, mean_s=1 + number, seed=number, **kernel)  # type: ignore[arg-type]
    (sweep,) = sweeps_of(report, tmp_path)
    assert sweep["varies"] == ["transformer_impl"]
    assert sweep["sentence"].startswith("winner: transformer impl local")


WON = "winner: TP 1, faster than the other one at 95 %"


@pytest.mark.parametrize(
    ("shared", "standings", "sentence"),
    [
        (1, ["not decided", "slower", "doubted"], "not decided: 1 ran on nodes shared with other jobs"),
        (2, ["not decided", "slower", "doubted"], "not decided: 2 ran on nodes shared with other jobs"),
        (4, ["winner", "slower", "doubted"], f"{WON}; 1 cannot be judged: 4 ran on nodes shared with other jobs"),
        (0, ["winner", "slower", "slower"], "winner: TP 1, faster than each of the 2 others at 95 %"),
    ],
    ids=["the winner", "its nearest rival", "a third", "none"],
)  # fmt: skip
def test_a_winner_from_shared_nodes_is_no_winner(
    report: Cli, here: Path, shared: int, standings: list[str], sentence: str
) -> None:
    for tp in (1, 2, 4):
        write_series_run(here / str(tp), tp=tp, mean_s=1 + tp / 10, seed=tp, is_shared=tp == shared)
    (sweep,) = sweeps_of(report, *"124")
    assert sweep["sentence"] == sentence
    assert [row["standing"] for row in sweep["configurations"]] == standings
    assert len(sweep["winners"]) == standings.count("winner")
    marked = [(row["sources"], row["doubts"]) for row in sweep["configurations"] if row["doubts"]]
    assert marked == ([([str(shared)], ["shared-nodes"])] if shared else [])
    assert f"4 GPUs: {sentence}" in report(*"124").flat


def test_a_sweep_on_shared_nodes_says_so_once(report: Cli, here: Path) -> None:
    for number in range(8):
        write_series_run(
            here / f"runs/{number}", tp=1 + number // 4, mean_s=1 + number // 4, seed=number, is_shared=True
        )
    out = report("runs", "--sweep").out
    named = "runs/0, runs/1, runs/2 and 5 more ran on nodes shared with other jobs"
    assert out.count("shared") == 2
    assert f"\nnot decided: {named}\n" in out
    assert f"\n{named} (--exclusive asks for whole nodes)\n" in out
    assert out.count("\ndoubted ") == 2
    assert "tied for best" not in out


def test_the_footnote_on_a_tie_stands_below_a_tie_alone(report: Cli, runs: Path, tmp_path: Path) -> None:
    assert "\ntied for best: no other configuration is faster" in report(runs, "--sweep").out
    for tp in (1, 2):
        write_series_run(tmp_path / f"other/{tp}", tp=tp, mean_s=tp, seed=tp)
    out = report(tmp_path / "other", "--sweep").out
    assert "winner: TP 1" in out
    assert "tied for best" not in out


def test_sizes_and_models_are_not_ranked_against_each_other(report: Cli, tmp_path: Path) -> None:
    write_log(tmp_path / "a.log", gpus=8, batch=64, mean_s=1)
    write_log(tmp_path / "b.log", gpus=16, batch=64, mean_s=1)
    write_log(tmp_path / "c.log", gpus=8, batch=64, mean_s=1, hidden_size=2048)
    assert [len(sweep["configurations"]) for sweep in sweeps_of(report, tmp_path)] == [1, 1, 1]


def test_a_report_that_happens_to_hold_a_sweep_says_who_won(report: Cli, runs: Path, tmp_path: Path) -> None:
    out = report(runs).out
    assert "175 on machine, 8 GPUs: a tie: 2 configurations cannot be told from the best at 95 %" in out
    write_log(tmp_path / "other/a.log", gpus=8, batch=64, mean_s=1)
    assert "winner" not in report(tmp_path / "other")[1]


def test_html_in_a_cause_is_escaped_in_markdown(report: Cli, tmp_path: Path) -> None:
    write_series_run(tmp_path / "a", outcome="FAILED", reasons=("<img src=x>|\nboom",))
    assert "\\<img src=x\\>\\| boom" in report(tmp_path, "--sweep", "--format", "markdown").out


def test_two_settings_are_a_heat_map_with_failures_and_winners(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [measure_folder(folder, folder.name).entry for folder in sorted(runs.iterdir())]
    (plot,) = sweep_charts(sweep_of(entries, 20_000_000))
    assert isinstance(plot, HeatMap)
    assert (plot.x_label, plot.y_label, plot.x_names, plot.y_names) == ("TP", "PP", ["1", "2", "4"], ["1", "2"])
    assert plot.texts[0][0] == "no memory"
    assert plot.values[0][0] is None
    assert plot.marked == {(0, 1), (1, 1)}
    monkeypatch.setattr("nlp_bench.analysis.sweep.MAX_CELLS", 2)
    assert isinstance(*sweep_charts(sweep_of(entries, 20_000_000)), Chart), "too many values for a map"


def test_one_setting_is_a_ranking_with_error_bars(tmp_path: Path) -> None:
    folders = [write_series_run(tmp_path / str(tp), tp=tp, mean_s=tp, seed=tp) for tp in (1, 2, 4)]
    (plot,) = sweep_charts(sweep_of([measure_folder(folder, folder.name).entry for folder in folders], 20_000_000))
    assert isinstance(plot, Chart)
    assert [series.name for series in plot.series] == ["winner", "slower"]
    assert [list(series.xs) for series in plot.series] == [[1.0], [2.0, 3.0]]
    assert all(plot.series[1].errors)


@pytest.mark.slow
def test_files_of_the_output_folder(report: Cli, runs: Path, tmp_path: Path) -> None:
    report(runs, "--sweep", "--output", tmp_path / "out")
    assert all((tmp_path / f"out/sweep.{name}").exists() for name in ("csv", "md", "json", "png", "svg"))
    assert "2 configurations cannot be told from the best" in (tmp_path / "out/report.html").read_text()
    report(runs / "tp1_pp1_0", "--sweep", "--output", tmp_path / "none")
    assert (tmp_path / "none/sweep.svg").exists()


def test_the_only_one_with_an_interval_is_no_winner_over_a_faster_one_without(report: Cli, tmp_path: Path) -> None:
    write_log(tmp_path / "1.log", gpus=8, batch=64, mean_s=2, tp=1)
    path = write_log(tmp_path / "2.log", gpus=8, batch=64, mean_s=1, tp=2)
    keep_two_lines(path)
    (sweep,) = sweeps_of(report, tmp_path)
    assert [row["standing"] for row in sweep["configurations"]] == ["no interval", "alone"]
    assert sweep["winners"] == []
    said = "no winner can be named: TP 1 alone has an interval; 1 without an interval cannot be judged"
    assert sweep["sentence"] == said


def test_a_sweep_of_hundreds_is_judged_at_once(tmp_path: Path) -> None:
    folder = write_series_run(tmp_path / "1")
    entry = measure_folder(folder, "run").entry
    logged = [{**entry.workload.logged, "seed_of_test": Setting(n, "x")} for n in range(400)]
    entries = [replace(entry, workload=replace(entry.workload, logged=each)) for each in logged]
    (sweep,) = sweep_of(entries, 20_000_000).sweeps
    assert len(sweep.winners) == 400
    assert "and 394 more" in sweep.sentence()


def test_one_gpu_is_no_plural(report: Cli, tmp_path: Path) -> None:
    for micro in (1, 2):
        write_log(tmp_path / f"{micro}.log", gpus=1, batch=8, mean_s=micro, micro=micro, seed=micro)
    assert ", 1 GPU\n" in report(tmp_path, "--sweep").out


def test_logs_that_are_measured_are_pooled_where_that_is_allowed(report: Cli, tmp_path: Path) -> None:
    for number, mean_s in enumerate((1.0, 1.02, 1.5, 1.52)):
        path = write_log(tmp_path / f"{number}.log", gpus=8, batch=64, mean_s=mean_s, tp=1 + number // 2, seed=number)
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))  # it stops early
    (apart,) = sweeps_of(report, tmp_path)
    assert {run["outcome"] for run in apart["configurations"]} == {"MEASURED"}
    assert len(apart["configurations"]) == 4
    (pooled,) = sweeps_of(report, tmp_path, "--allow-measured")
    assert [len(row["sources"]) for row in pooled["configurations"]] == [2, 2]
    assert "one run each, so what runs differ by is not in it" in report(tmp_path).flat
    assert "one run each" not in report(tmp_path, "--allow-measured")[1]


def test_a_configuration_that_ends_slower_is_no_winner_over_one_that_does_not(report: Cli, tmp_path: Path) -> None:
    """Each run of TP 4 is 4 % faster in its window, and 30 % slower in its last quarter, which the window leaves out."""

    def slowed(line: str) -> str:
        return re.sub(r"(?<=\(ms\): )[\d.]+", lambda one: f"{1.3 * float(one[0]):.1f}", line)

    for tp, rate in ((2, 65000), (4, 67700)):
        layout = {"tensor_model_parallel_size": tp, "pipeline_model_parallel_size": 1, "data_parallel_size": 16 // tp}
        folder = write_runs(tmp_path / str(tp), *(rate * (1 + n / 1000) for n in range(3)), seed=tp, **layout)
        for log in folder.iterdir() if tp == 4 else ():
            lines = log.read_text().splitlines(keepends=True)
            log.write_text("".join([*lines[:-7], *map(slowed, lines[-7:])]))
    (sweep,) = sweeps_of(report, tmp_path)
    fastest, _ = sweep["configurations"]
    assert [row["standing"] for row in sweep["configurations"]] == ["tied for best"] * 2
    assert fastest["settings"]["tensor_model_parallel_size"] == 4
    said = "3 of 3 runs end at a slower speed, by "
    assert said in fastest["cause"]
    assert all(said in report(tmp_path, view).out for view in ("--sweep", "--scaling"))
