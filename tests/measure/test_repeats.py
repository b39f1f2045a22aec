"""Which runs are repeats of each other, and what several of them say together."""

import math
import random
import re
import statistics
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.published import write_run
from support.repeated import write_log, write_runs

from nlp_bench.analysis.repeats import Identity, Observation, Pool, digest, identity_of, pool_lines, pooled, settings_of
from nlp_bench.inputs.sources import read_sources
from nlp_bench.measure.estimate import student_t
from nlp_bench.measure.folder import measure_folder
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.measure.workload import Setting, Workload
from nlp_bench.outcome import Outcome


def read(*paths: Path, **given: int) -> list[RunResult]:
    return read_sources([str(path) for path in paths], Overrides(**given)).entries


def identity(entry: RunResult) -> Identity:
    return identity_of(settings_of(entry))


def pool(entries: list[RunResult], *, trust: bool = False) -> list[Pool]:
    return pooled(map(Observation.of, entries), trust=trust)


def observed(*seconds: float) -> Pool:
    return Pool(runs=tuple(Observation(source=f"run {s}", outcome=Outcome.VALID, seconds_per_token=s) for s in seconds))


def workload(**values: float | str) -> RunResult:
    logged = {name: Setting(value, "log line 1") for name, value in values.items()}
    return RunResult(source="a", outcome=Outcome.REFUSED, workload=Workload(logged=logged))


def test_identity_is_sorted_and_knows_no_order_and_no_decimal_point() -> None:
    one, two = workload(lr=1, hidden_size=64), workload(hidden_size=64.0, lr=1.0)
    assert identity(one) == identity(two) == (("hidden_size", 64), ("lr", 1))
    assert digest(one) == digest(two) == "762507d73e83"
    assert digest(workload(lr=1, hidden_size=65)) != digest(one)


def test_identity_leaves_out_what_is_no_setting_of_the_run() -> None:
    entry = workload(seed=1, log_interval=10, hidden_size=64, recompute_granularity="none")
    assert identity(entry) == (("hidden_size", 64),)


def test_identity_holds_the_sizes_that_the_number_was_computed_with(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.log", 65536, stated=False)
    (entry,) = read(log, sequence_length=4096, num_gpus=16)
    assert dict(identity(entry)) == {"seq_length": 4096, "global_batch_size": 64, "num_gpus": 16}


def test_repeats_are_pooled_and_another_configuration_is_not(tmp_path: Path) -> None:
    write_runs(tmp_path / "a", 65000, 66000, 65500)
    write_runs(tmp_path / "b", 65000, 66000, seed=9, tensor_model_parallel_size=2)
    assert [len(found.runs) for found in pool(read(tmp_path / "a", tmp_path / "b"))] == [3, 2]


SAVED = r"saving checkpoint at iteration 95 to /c in torch format\n \g<1>9000"  # before an interval of twice the time


@pytest.mark.parametrize(
    ("change", "limit", "why"),
    [
        (lambda text: re.sub(r"(iteration +[12]00/.*\(ms\): )\d+", SAVED, text), 380, "without what the log calls checkpoint"),
        (lambda text: text.replace("/     300", "/    5000") + "[after training is done]\n", 400, "iteration 300 of 5000, and line 43"),
    ],
)  # fmt: skip
def test_repeats_prove_no_limit_that_none_of_them_proves(
    here: Path, cli: Cli, change: Callable[[str], str], limit: int, why: str
) -> None:
    for log in write_runs(here, 54000, 54020, 53990).iterdir():
        log.write_text(change(log.read_text()))
    found = cli("report", ".", "--allow-measured", "--limit", limit, "--format", "json", code=None).json
    assert [run["limit"] for run in found["runs"]] == ["NOT PROVEN"] * 3
    assert found["repeats"][0]["limit"] == "NOT PROVEN"
    assert why in found["repeats"][0]["limit_reasons"][0]


def test_logs_that_state_little_are_pooled_on_a_persons_word_only(tmp_path: Path) -> None:
    entries = read(write_runs(tmp_path, 65000, 66000, stated=False), sequence_length=4096, num_gpus=16)
    assert [len(found.runs) for found in pool(entries)] == [1, 1]
    assert [len(found.runs) for found in pool(entries, trust=True)] == [2]


def test_a_failed_repeat_is_counted_and_has_no_part_in_the_mean(tmp_path: Path) -> None:
    good = measure_folder(write_run(tmp_path / "good"), "good").entry
    bad = measure_folder(write_run(tmp_path / "bad", outcome="TIMEOUT"), "bad").entry
    (found,) = pool([bad, good])
    assert (len(found.runs), len(found.without_number)) == (1, 1)
    assert found.tokens_per_second == pytest.approx(good.steady)
    assert pool_lines(found)[-1] == "1 of 2 runs of this configuration ended without a number"


def test_mean_interval_and_scatter() -> None:
    found = observed(9e-6, 10e-6, 11e-6)
    assert found.tokens_per_second == pytest.approx(1e5)  # the harmonic mean: equal tokens, added times
    assert found.run_to_run_cv == pytest.approx(0.1)
    half = student_t(0.975, 2) * 1e-6 / math.sqrt(3)
    assert found.estimate.interval() == pytest.approx((1 / (1e-5 + half), 1 / (1e-5 - half)))
    assert found.olympic_tokens_per_second == pytest.approx(1e5)
    assert observed(9e-6, 10e-6).olympic_tokens_per_second is None


@pytest.mark.parametrize("scatter", [0.002, 0.01, 0.05])
def test_the_runs_that_are_missing_give_a_half_width_of_one_percent(scatter: float) -> None:
    found = observed(1e-5, (1 + scatter) * 1e-5, (1 - scatter) * 1e-5)
    more, cv = found.num_more_runs, found.spread
    number = 3 + more
    assert student_t(0.975, number - 1) * cv / math.sqrt(number) <= 0.01
    if more:
        assert student_t(0.975, number - 2) * cv / math.sqrt(number - 1) > 0.01


def test_a_hopeless_scatter_is_said_so() -> None:
    found = observed(1e-5, 9e-5)
    assert found.num_more_runs is None
    assert pool_lines(found)[1] == "more than 10000 runs would be needed for +-1 %"


def test_runs_that_do_not_differ_in_their_digits_have_no_interval() -> None:
    found = observed(1e-5, 1e-5, 1e-5)
    assert found.estimate is None
    assert "rounding hides" in pool_lines(found)[1]


def test_one_run_says_what_it_cannot_say(tmp_path: Path) -> None:
    (found,) = pool(read(write_log(tmp_path / "a.log", 65000)))
    (line,) = pool_lines(found)
    assert line.startswith("one run only: how much runs differ from each other is not known; run 4 more (repeats: 5)")
    assert (found.run_to_run_cv, found.num_more_runs) == (None, None)
    (short,) = read(write_log(tmp_path / "b.log", 65000, scatter=0.05))
    more = short.throughput.num_more
    (line,) = pool_lines(*pool([short]))
    assert f"within this run {more} more logged intervals give +-1 %" in line, "one question has one answer"


def test_a_run_beyond_the_others_is_named() -> None:
    found = observed(1e-5, 1.001e-5, 0.999e-5, 1.0005e-5, 1.3e-5)
    assert [run.source for run in found.outliers] == ["run 1.3e-05"]
    assert any("beyond what the others allow" in line for line in pool_lines(found))


@pytest.mark.parametrize("number", [2, 3, 4, 30, 300])
def test_a_run_is_beyond_the_others_from_the_critical_value_on(number: int) -> None:
    others = [1e-5 * (1 + 1e-3 * math.sin(index)) for index in range(number)]
    deviation = statistics.stdev(others) * math.sqrt(1 + 1 / number)
    allowed = statistics.mean(others) + student_t(1 - 0.025 / (number + 1), number - 1) * deviation
    assert [len(observed(*others, allowed + part * deviation).outliers) for part in (-1e-3, 1e-3)] == [0, 1]


def test_few_runs_of_one_kind_have_outliers_in_one_case_of_twenty() -> None:
    """600 sets of 5 normal runs at 5 %: 30 are expected, and 49 or more would come once in 2000 times (binomial)."""
    source = random.Random(3)  # noqa: S311  # a repeatable test
    sets = [observed(*(1e-5 * (1 + source.gauss(0, 0.01)) for _ in range(5))) for _ in range(600)]
    assert 10 < sum(bool(found.outliers) for found in sets) < 49


# In a report: the verdict of repeats is no better than that of the runs they are made of.


def repeats_of(folder: Path, limit_s: float, report: Cli) -> dict[str, Any]:
    (found,) = report(folder, "--limit", limit_s, "--format", "json").json["repeats"]
    return found


def test_runs_that_all_end_too_slow_do_not_pass_together(tmp_path: Path, report: Cli) -> None:
    folder = write_runs(tmp_path / "runs", 65000, 65200, 65100)
    assert repeats_of(folder, 320, report)["limit"] == "PASS"
    for path in folder.iterdir():
        lines = path.read_text().splitlines(keepends=True)
        end = re.sub(r"(?<=\(ms\): )[\d.]+", lambda found: f"{1.3 * float(found[0]):.1f}", "".join(lines[-6:]))
        path.write_text("".join([*lines[:-6], end]))
    found = repeats_of(folder, 320, report)
    assert found["limit"] == "NOT PROVEN"
    assert "ends at a slower speed" in found["limit_reasons"][0]
    assert repeats_of(folder, 500, report)["limit"] == "PASS"
    said = report(folder, "--limit", "320").flat
    assert "limit of 320 s: NOT PROVEN (the run ends at a slower speed" in said


def test_a_limit_in_another_unit_is_no_pass(tmp_path: Path, report: Cli) -> None:
    found = repeats_of(write_runs(tmp_path / "runs", 65000, 65200, 65100), 620_000, report)
    assert (found["limit"], "not in seconds" in found["limit_reasons"][0]) == ("NOT PROVEN", True)


@pytest.mark.parametrize(("apart_s", "num_runs"), [(0, 1), (7, 4)])
def test_the_files_of_the_ranks_of_one_run_are_one_run(
    tmp_path: Path, report: Cli, apart_s: int, num_runs: int
) -> None:
    """`torchrun --log-dir`: each rank has the jitter of its own clock, and all have the loss of all."""
    folder = write_runs(tmp_path / "runs", 65000)
    whole = (folder / "run1.log").read_text()
    for rank in range(4):
        source, clock = random.Random(rank), datetime(2026, 1, 1, 10, 0, rank * apart_s, tzinfo=timezone.utc)  # noqa: S311  # a repeatable test
        lines = []
        for line in whole.splitlines(keepends=True):
            if found := re.search(r"\(ms\): ([\d.]+)", line):
                clock += timedelta(milliseconds=10 * float(found[1]))
                own = f"(ms): {float(found[1]) * (1 + source.gauss(0, 0.001)):.1f}"
                line = f"[{clock:%Y-%m-%d %H:%M:%S}]" + line.replace(found[0], own)  # noqa: PLW2901
            lines.append(line)
        (folder / f"run{rank + 1}.log").write_text("".join(lines))
    (pool,) = report(folder, "--allow-measured", "--format", "json").json["repeats"]
    assert (len(pool["sources"]), len(pool["copies"])) == (num_runs, 4 - num_runs)
