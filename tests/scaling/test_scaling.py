"""`nlp-bench report --scaling` on logs and run folders."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.series import keep_two_lines, write_log, write_series_run

from nlp_bench.analysis.scaling import scaling_charts, scaling_of
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides


def curves_of(report: Cli, *words: object) -> list[dict[str, Any]]:
    return list(report(*words, "--scaling", "--format", "json").json["curves"])


@pytest.mark.parametrize(("batches", "kind"), [((64, 128), "weak"), ((64, 96), "mixed"), ((64, 64), "strong")])
def test_the_batches_decide(report: Cli, tmp_path: Path, batches: tuple[int, int], kind: str) -> None:
    for gpus, batch in zip((8, 16), batches, strict=True):
        write_log(tmp_path / f"strong_scaling_{gpus}.log", gpus=gpus, batch=batch, mean_s=1)
    (curve,) = curves_of(report, tmp_path)
    assert curve["kind"] == kind
    assert any("calls it strong scaling" in note for note in curve["notes"]) is (kind == "weak")


def test_repeats_are_one_point_and_scatter_over_runs(report: Cli, tmp_path: Path) -> None:
    for gpus in (8, 16):
        for repeat, factor in enumerate((1.0, 1.02, 1.04)):
            path, mean_s = tmp_path / f"{gpus}_{repeat}.log", factor * 8 / gpus
            write_log(path, gpus=gpus, batch=64, mean_s=mean_s, seed=repeat + gpus)
    (curve,) = curves_of(report, tmp_path)
    assert [point["num_runs"] for point in curve["points"]] == [3, 3]
    low, high = (curve["points"][1][f"efficiency_ci95_{end}"] for end in ("low", "high"))
    assert high - low > 0.05  # 2 % from run to run, with three runs each
    assert not any("one run per point" in note for note in curve["notes"])


@pytest.mark.parametrize("view", ["--scaling", "--sweep"])
def test_a_copy_is_named_and_no_further_run(report: Cli, here: Path, view: str) -> None:
    log = write_log(here / "8.log", gpus=8, batch=64, mean_s=1)
    write_log(here / "16.log", gpus=16, batch=64, mean_s=0.6)
    alone = report(".", view, code=0).out
    Path("tee.log").write_text("".join(f"0: {line}" for line in log.read_text().splitlines(keepends=True)))
    said = report(".", view, code=0).out.splitlines()
    assert sum("tee.log: the same numbers" in line for line in said) == 1
    assert [line for line in said if "tee.log: the same numbers" not in line] == alone.splitlines()


def test_more_than_linear_beyond_the_interval_is_flagged(report: Cli, tmp_path: Path) -> None:
    write_log(tmp_path / "8.log", gpus=8, batch=64, mean_s=1.05, seed=1)
    write_log(tmp_path / "16.log", gpus=16, batch=64, mean_s=0.5, seed=2)
    (curve,) = curves_of(report, tmp_path)
    assert "super-linear" in curve["points"][1]["flags"]
    write_log(tmp_path / "8.log", gpus=8, batch=64, mean_s=1.0, seed=2)
    (curve,) = curves_of(report, tmp_path)
    assert curve["points"][1]["flags"] == []


def test_models_and_machines_never_share_a_curve(report: Cli, tmp_path: Path) -> None:
    write_log(tmp_path / "a.log", gpus=8, batch=64, mean_s=1)
    write_log(tmp_path / "b.log", gpus=16, batch=64, mean_s=1, num_layers=48)
    write_log(tmp_path / "c.log", gpus=32, batch=64, mean_s=1, bf16=False, fp16=True)
    write_log(tmp_path / "d.log", gpus=64, batch=64, mean_s=1, seq_length=2048)
    curves = curves_of(report, tmp_path)
    assert len(curves) == 4
    assert {curve["kind"] for curve in curves} == {"none"}
    assert all(point["efficiency"] in {None, 1.0} for curve in curves for point in curve["points"])


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({"tp": 2}, {"tp": 4, "micro": 2}, ["TP 2 -> 4", "micro batch 1 -> 2"]),
        ({"recompute_granularity": None}, {"recompute_granularity": "full"}, ["recompute none -> full"]),
    ],
)
def test_another_configuration_along_the_curve_is_shown(
    report: Cli, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], changed: list[str]
) -> None:
    write_log(tmp_path / "8.log", gpus=8, batch=64, mean_s=1, **before)
    write_log(tmp_path / "16.log", gpus=16, batch=64, mean_s=0.6, **after)
    (curve,) = curves_of(report, tmp_path)
    assert curve["points"][1]["changed"] == changed
    assert "other configuration" in curve["points"][1]["flags"]


def test_a_failed_run_stays_a_row_and_a_missing_baseline_is_said(report: Cli, tmp_path: Path) -> None:
    write_series_run(tmp_path / "1", nodes=1, outcome="OUT_OF_MEMORY", reasons=("CUDA out of memory on rank 3",))
    write_series_run(tmp_path / "2", nodes=2, mean_s=1.0)
    write_series_run(tmp_path / "4", nodes=4, mean_s=0.5, seed=3)
    assert "OUT_OF_MEMORY" in report(tmp_path, "--scaling", code=1).out
    (curve,) = curves_of(report, tmp_path)
    failed, base, last = curve["points"]
    assert (failed["num_gpus"], failed["tokens_per_second"], failed["speed_up"]) == (4, None, None)
    assert failed["cause"] == "OUT_OF_MEMORY: CUDA out of memory on rank 3"
    assert "baseline" in base["flags"]
    assert last["speed_up"] == pytest.approx(2, rel=0.01)
    assert any("the smallest size, 4 GPUs, has no number; 8 GPUs are the baseline" in note for note in curve["notes"])


def test_a_curve_of_failures_has_no_speed_up(report: Cli, tmp_path: Path) -> None:
    for nodes in (1, 2):
        write_series_run(tmp_path / str(nodes), nodes=nodes, outcome="FAILED")
    (curve,) = curves_of(report, tmp_path)
    assert curve["kind"] == "none"
    assert any("no run has a number, so there is no speed-up" in note for note in curve["notes"])


def test_a_chosen_baseline(report: Cli, tmp_path: Path) -> None:
    for gpus in (8, 16, 32):
        write_log(tmp_path / f"{gpus}.log", gpus=gpus, batch=64, mean_s=8 / gpus)
    (curve,) = curves_of(report, tmp_path, "--baseline-gpus", 16)
    assert [round(point["speed_up"], 2) for point in curve["points"]] == [0.5, 1, 2]
    for form in ("table", "html"):
        err = report(tmp_path, "--scaling", "--baseline-gpus", 24, "--format", form, code=2).err
        assert "--baseline-gpus 24: no run has so many GPUs; there are 8, 16, 32" in err


def test_sizes_below_a_chosen_baseline_are_not_super_linear(report: Cli, tmp_path: Path) -> None:
    for gpus, seconds in ((8, 1.0), (16, 0.55), (32, 0.35)):  # as curves are: efficiency falls as the size grows
        write_log(tmp_path / f"{gpus}.log", gpus=gpus, batch=64, mean_s=seconds)
    (curve,) = curves_of(report, tmp_path, "--baseline-gpus", 32)
    assert curve["points"][0]["efficiency"] > 1.3
    assert not any("super-linear" in point["flags"] for point in curve["points"])


def test_a_single_logged_interval_is_flagged(report: Cli, tmp_path: Path) -> None:
    write_log(tmp_path / "8.log", gpus=8, batch=64, mean_s=1)
    short = write_log(tmp_path / "16.log", gpus=16, batch=64, mean_s=0.5)
    keep_two_lines(short)
    (curve,) = curves_of(report, tmp_path)
    assert "one sample" in curve["points"][1]["flags"]
    assert curve["points"][1]["efficiency_ci95_low"] is None


def test_a_log_that_contradicts_its_run_json_has_no_speed_up(report: Cli, tmp_path: Path) -> None:
    write_series_run(tmp_path / "1", nodes=1)
    write_series_run(tmp_path / "2", nodes=2, tp=2, logged_tp=4, mean_s=0.1)
    (curve,) = curves_of(report, tmp_path)
    point = curve["points"][1]
    assert (point["tokens_per_second"], point["speed_up"]) == (None, None)
    assert "contradicts its run.json" in point["flags"]
    assert point["cause"].startswith("TP is 4 in the log (log line ")


def test_points_from_shared_nodes_are_marked_and_said_once(report: Cli, here: Path) -> None:
    for nodes in (1, 2, 4):
        write_series_run(here / str(nodes), nodes=nodes, mean_s=1 / nodes, seed=nodes, is_shared=nodes > 1)
    (curve,) = curves_of(report, *"124")
    assert [("doubted" in point["flags"], point["doubts"]) for point in curve["points"]] == [
        (False, []), (True, ["shared-nodes"]), (True, ["shared-nodes"])
    ]  # fmt: skip
    out = report(*"124", "--scaling", code=0).out
    assert out.count("shared") == 1
    assert "\n2, 4 ran on nodes shared with other jobs (--exclusive asks for whole nodes)\n" in out
    record = report("2", "4", "--scaling", "--format", "json", code=0).json
    assert "the baseline is doubted, and every speed-up and efficiency with it" in record["curves"][0]["notes"]


def test_a_log_without_gpus_is_named_and_not_placed(report: Cli, tmp_path: Path) -> None:
    write_log(tmp_path / "8.log", gpus=8, batch=64, mean_s=1)
    path = write_log(tmp_path / "x.log", gpus=8, batch=64, mean_s=1)
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "world_size" not in line))
    assert "x.log: not placed, the number of GPUs is not in the log" in report(tmp_path, "--scaling").out


@pytest.mark.parametrize("view", ["--scaling", "--sweep"])
def test_a_log_that_came_to_no_line_is_told_beside_the_view(report: Cli, tmp_path: Path, view: str) -> None:
    write_log(tmp_path / "8.log", gpus=8, batch=64, mean_s=1)
    (tmp_path / "16.log").write_text("  world_size ........ 16\n")  # killed before its first iteration
    _, out, err = report(tmp_path, view)
    assert "1 file(s) hold no training line: 16.log" in err
    assert "16.log" not in out


def test_markdown_is_escaped(report: Cli, tmp_path: Path) -> None:
    for nodes in (1, 2):
        folder = write_series_run(tmp_path / str(nodes), nodes=nodes, mean_s=1 / nodes)
        record = json.loads((folder / "run.json").read_text())
        record["model"]["name"] = "<script>|x\u2028"
        (folder / "run.json").write_text(json.dumps(record))
    out = report(tmp_path, "--scaling", "--format", "markdown").out
    assert "### \\<script\\>\\|x on machine" in out
    assert "<script>" not in out


@pytest.mark.slow
def test_the_folder_of_the_report_holds_tables_and_plots(report: Cli, tmp_path: Path) -> None:
    for gpus in (8, 16):
        write_log(tmp_path / f"logs/{gpus}.log", gpus=gpus, batch=64, mean_s=8 / gpus)
    err = report(tmp_path / "logs", "--scaling", "--output", tmp_path / "out").err
    names = ["csv", "md", "json", "png", "svg"]
    assert all((tmp_path / f"out/scaling.{name}").stat().st_size > 200 for name in names)
    assert (tmp_path / "out/scaling-efficiency.svg").exists()
    assert err.count("wrote ") == 1
    assert "<h2>Scaling: " in (tmp_path / "out/report.html").read_text()


def test_the_plots_hold_the_points_their_errors_and_the_line(tmp_path: Path) -> None:
    paths = [write_log(tmp_path / f"{g}.log", gpus=g, batch=64, mean_s=8 / g, seed=g) for g in (8, 16)]
    entries = [entry for path in paths for entry in measure_log(str(path), Overrides())]
    rates, efficiencies = scaling_charts(scaling_of(entries, 20_000_000))
    measured, linear = rates.series
    assert measured.xs == linear.xs == [8.0, 16.0]
    assert all(measured.errors)
    assert linear.is_dashed
    assert linear.ys[1] == pytest.approx(2 * measured.ys[0])
    assert rates.log_axes == "xy"
    assert efficiencies.series[0].ys[0] == 100
    assert efficiencies.series[0].errors[0] is None
    assert scaling_charts(scaling_of(entries[:1], 20_000_000)) == []


def test_logs_that_name_no_model_are_joined_on_trust_and_never_across_programs(report: Cli, tmp_path: Path) -> None:
    for gpus in (8, 16):
        path = write_log(tmp_path / f"{gpus}.log", gpus=gpus, batch=64, mean_s=8 / gpus)
        kept = [line for line in path.read_text().splitlines(keepends=True) if "num_layers" not in line]
        path.write_text("".join(line for line in kept if "hidden_size" not in line))
    (curve,) = curves_of(report, tmp_path)
    assert curve["workload"] == "unknown model"
    assert any("taken on trust" in note for note in curve["notes"])
    line = "[titan] - root - INFO - step: {} loss: 5.0 tps: 1,000 tflops: 1.0 mfu: 1.0%\n"
    other = "".join(line.format(n) for n in range(1, 20))
    (tmp_path / "titan.log").write_text(other)
    logs = (tmp_path / "16.log", tmp_path / "titan.log")
    assert len(curves_of(report, *logs, "--num-gpus", 16, "--sequence-length", 1024)) == 2


def test_one_size_alone_has_no_interval_of_an_efficiency_it_does_not_show(report: Cli, tmp_path: Path) -> None:
    for micro in (1, 2):
        write_log(tmp_path / f"{micro}.log", gpus=1, batch=8 * micro, mean_s=1, micro=micro, seed=micro)
    out = report(tmp_path, "--scaling", code=0).out
    assert out.split("---")[0].count("95 %") == 1  # that of the rate
    assert ", 1 GPU: configured differently from the baseline: micro batch " in out
