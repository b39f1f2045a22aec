"""`nlp-bench history` and `compare history:…` as an operator uses them."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from support.command import Cli
from support.nights import row
from support.published import write_run
from support.repeated import write_log, write_runs
from support.series import write_series_run

from nlp_bench.analysis.row import Row
from nlp_bench.analysis.store import Filter, open_to_read, open_to_write


def rows(file: str) -> list[Row]:
    with open_to_read(Path(file)) as store:
        return store.rows(Filter())


def test_a_run_of_ours(tmp_path: Path, file: str, history: Cli) -> None:
    run = write_run(tmp_path / "run")
    assert history("add", run).out.startswith("run 1 added: ")
    (found,) = rows(file)
    assert (found.ended, found.nlp_bench_commit, found.job_id) == ("2026-01-01T00:00:00+00:00", "abc", "4711")
    assert (found.model, found.system, found.num_gpus, found.outcome) == ("175", "machine", 384, "VALID")
    assert found.time_to_report_s == pytest.approx(20e6 / (found.tokens_per_second_steady or 0))
    run.rename(tmp_path / "moved")
    assert "run 1 was there, measured anew" in history("add", tmp_path / "moved").out
    assert [r.source for r in rows(file)] == [str(tmp_path / "moved")]


def test_a_failed_run_is_part_of_the_history(tmp_path: Path, file: str, history: Cli) -> None:
    history("add", write_run(tmp_path / "run", outcome="NODE_FAIL"))
    (found,) = rows(file)
    assert (found.outcome, found.tokens_per_second_steady, found.time_to_report_s) == ("NODE_FAIL", None, None)


def test_what_has_not_ended_or_says_nothing_is_not_added(tmp_path: Path, file: str, history: Cli) -> None:
    (write_run(tmp_path / "run") / "outcome.json").unlink()
    (tmp_path / "a.log").write_text("nothing\n")
    err = history("add", tmp_path / "run", tmp_path / "a.log", code=1).err
    assert "not added" in err
    assert "nlp-bench sync" in err
    assert "no whole training line" in err
    assert not Path(file).exists()


def test_runs_that_end_slower_than_their_number_are_named(tmp_path: Path, history: Cli) -> None:
    """Six nights alike are one level, whose speed may not be the one that lasts."""
    for night in range(6):
        path = write_log(tmp_path / f"{night}.log", 65000 + 50 * night, night)
        head, *lines = re.split("(?m)^(?= iteration )", path.read_text())
        slow = [
            re.sub(r"(?<=per iteration \(ms\): )[0-9.]+", lambda ms: f"{1.3 * float(ms[0]):.1f}", one) for one in lines
        ]
        path.write_text("".join([head, *lines[:24], *(slow[24:] if night != 2 else lines[24:])]))
        history("add", path)
    said = history("trend").out
    assert "no run leaves its level" in said
    assert (
        "run 1, 2, 4, 5, 6: 5 of 6 runs end at a slower speed, by 25.0 % in the mean of all: a longer run has" in said
    )


def test_logs_of_others(tmp_path: Path, file: str, history: Cli) -> None:
    write_runs(tmp_path / "logs", 65000, 66000)
    silent = write_log(tmp_path / "silent.log", 64000, stated=False)
    history("add", tmp_path / "logs", silent, "--sequence-length", 4096, "--num-gpus", 16, "--name", "first")
    assert len({r.identity for r in rows(file)}) == 2
    assert {r.name for r in rows(file)} == {"first"}


def test_a_run_that_gets_another_name_is_said_to_lose_the_old_one(tmp_path: Path, history: Cli) -> None:
    log = write_log(tmp_path / "a.log", 65000)
    assert "named" not in history("add", log, "--name", "acceptance").out
    assert "named" not in history("add", log).out
    said = history("add", log, "--name", "march").out
    assert "; named acceptance until now, it is no run of history:acceptance any more" in said


def test_list_show_export(tmp_path: Path, history: Cli) -> None:
    history("add", write_run(tmp_path / "run"), write_log(tmp_path / "a.log", 65000))
    assert len(history("list", "--model", "175").out.splitlines()) == 3
    assert "global_batch_size" in history("show", "1").out
    record = history("export", "--format", "json").json
    assert record["schema"] == "nlp-bench/history/1"
    assert {run["entry"]["outcome"] for run in record["runs"]} == {"VALID"}
    assert "1 of 2 runs; more with --last N" in history("list", "--last", "1").err


def test_a_nightly_run_against_the_one_before(tmp_path: Path, file: str, history: Cli, cli: Cli) -> None:
    nights = [write_log(tmp_path / f"{n}.log", rate, n) for n, rate in enumerate((65000, 65100, 64900, 65050, 60000))]
    for number, night in enumerate(nights):
        os.utime(night, (1.7e9 + 1000 * number, 1.7e9 + 1000 * number))
        history("add", night)
        for which in ("last-10", "last"):
            words = ("compare", f"history:{which}", night, "--gate", "3", "--file", file)
            found = cli(*words, code=int(number == 4))
        said = f"history:last (history run {number}: " if number else "nothing to compare yet, this run is the baseline"
        assert said in found.out
    assert "% below the level of the 4 runs before it" in history("trend").out


@pytest.mark.parametrize(
    ("change", "words", "is_in_trend"),
    [
        ("context_parallel_size", "context_parallel_size: not stated -> 1", True),
        ("tensor_model_parallel_size", "tensor_model_parallel_size: 4 -> 1", False),
    ],
)
def test_a_configuration_is_told_which_other_is_nearest(
    tmp_path: Path, file: str, history: Cli, cli: Cli, change: str, words: str, is_in_trend: bool
) -> None:
    history("add", write_runs(tmp_path / "before", 65000, 65100, 64900))
    night = write_log(tmp_path / "night.log", 61000, 9, **{change: 1})
    said = cli("compare", "history:last-3", night, "--file", file).out
    assert "nothing to compare yet, this run is the baseline" in said
    assert f"(the nearest one there is {rows(file)[0].identity}, {words})" in said
    # What states less may be the same, added by a version that read less.
    anew = said.partition("measures it anew: nlp-bench history add ")[2].removesuffix(f" --file {file}\n").split()
    assert set(anew) == ({row.source for row in rows(file)} if is_in_trend else set())
    history("add", night)
    *_, said = history("trend").out.splitlines()
    assert (words in said) is is_in_trend
    if is_in_trend:
        assert "B/A" in cli(*shlex.split(said.partition("see: nlp-bench ")[2])).out


def test_a_run_of_the_history_is_known_to_have_stopped_early(tmp_path: Path, file: str, history: Cli, cli: Cli) -> None:
    for log in write_runs(tmp_path, 1000, 1001).glob("*.log"):
        log.write_text(log.read_text().replace("/     300", "/    5000"))
    history("add", tmp_path / "run1.log", "--name", "early")
    said = cli("compare", "history:early", tmp_path / "run2.log", "--file", file).out
    assert len(re.findall("(?m)^[AB]: .* is MEASURED: the log stops at iteration 300 of 5000$", said)) == 2


def test_an_old_run_is_held_against_those_before_it(tmp_path: Path, file: str, history: Cli, cli: Cli) -> None:
    for number in range(3):
        os.utime(write_log(tmp_path / f"{number}.log", 65000, number), (1.7e9 + 1000 * number, 1.7e9 + 1000 * number))
    history("add", tmp_path)
    record = cli("compare", "history:last-5", tmp_path / "1.log", "--file", file, "--format", "json").json
    assert [run.split(":")[0] for run in record["comparisons"][0]["a"]["runs"]] == ["history run 1"]


def test_names_numbers_and_configurations(tmp_path: Path, file: str, history: Cli, cli: Cli) -> None:
    history("add", write_runs(tmp_path / "a", 65000, 65100, 64900), "--name", "acceptance")
    history("add", write_runs(tmp_path / "b", 65000, 65100, seed=8), "--name", "later")
    identity = rows(file)[0].identity
    for a, b, runs in (("acceptance", "later", [3, 2]), ("1", identity, [1, 5]), (identity[:6], "later", [5, 2])):
        record = cli("compare", f"history:{a}", f"history:{b}", "--file", file, "--format", "json").json
        (found,) = record["comparisons"]
        assert [len(found[side]["runs"]) for side in "ab"] == runs
    record = cli("compare", tmp_path / "a/run1.log", "history:1", "--file", file, "--format", "json").json
    (found,) = record["comparisons"]
    assert found["a"]["ci95"] == pytest.approx(found["b"]["ci95"], rel=1e-12), "one run has one interval"
    fresh = [str(tmp_path / "a"), "history:acceptance"]
    (found,) = cli("compare", *fresh, "--file", file, "--format", "json").json["comparisons"]
    assert found["ratio"]["value"] == pytest.approx(1, rel=1e-12)
    assert found["a"]["ci95"] == pytest.approx(found["b"]["ci95"])
    assert found["differences"] == {"free": [], "machine": [], "not_shown": []}
    assert "3 run(s) of B are runs of A" in cli("compare", *fresh, "--file", file).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "history:last", "history:last"], "give one of them as a path"),
        (["compare", "history:nowhere", "history:1"], "history:nowhere is not in"),
        (["compare", "history:", "history:1"], "history: is not in"),
        (["compare", "history:last-0", "history:1"], "N is from 1 to 500"),
        (["compare", "history:last-x", "history:1"], "history:last-x is unknown"),
        (["compare", "history:99999999999999999999", "history:1"], "is not in"),
        (["history", "list", "somewhere"], "takes no PATH or ID"),
        (["history", "add"], "PATH is missing"),
        (["history", "show", "x"], "takes one ID, the number in the first column of: nlp-bench history list --file "),
        (["history", "show", "7"], "has no run 7; see: nlp-bench history list --file "),
        (["history", "list", "--output", "x"], "--output does not go with history list"),
        (["history", "trend", "--format", "csv"], "history trend has no --format csv"),
        (["history", "trend", "--within", "1%"], "--within does not go with history trend"),
        (["history", "variance", "--within", "1"], "within: '1' is no share in percent"),
        (["history", "add", ".", "--name", "last"], "could be taken for"),
        (["history", "add", ".", "--name", "1"], "begins with a letter"),
        (["history", "add", ".", "--name", "a b"], "begins with a letter"),
        (["history", "list", "--file", "nowhere/h"], "does not exist; fill it with"),
    ],
)
def test_bad_words(words: list[str], message: str, tmp_path: Path, file: str, history: Cli, cli: Cli) -> None:
    history("add", write_log(tmp_path / "a.log", 65000))
    caught = cli(*words, *([] if "--file" in words else ["--file", file]), code=2)
    assert message in caught.err
    assert caught.out == ""


def test_text_of_others_stays_on_its_line(file: str, history: Cli) -> None:
    with open_to_write(Path(file)) as store:
        store.add([row(1, 5.0, source="a\nb\x1b[31m", model="m\nn", name="n\x07")])
    for action in (["list"], ["show", "1"], ["trend"]):
        assert "\x1b" not in history(*action).out


@pytest.mark.slow
def test_the_plot_of_ten_thousand_runs(tmp_path: Path, file: str, history: Cli) -> None:
    with open_to_write(Path(file)) as store:
        store.add(row(day, 1000.0 + day % 7 + day / 1e6, f"{day % 10:012x}", system="$x_1$") for day in range(10_000))
    assert len(history("trend", "--output", tmp_path / "out").out.splitlines()) == 14
    assert len(history("list", "--last", "10000").out.splitlines()) == 10_002
    assert (tmp_path / "out/trend.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "out/trend.svg").stat().st_size < 5_000_000


def test_the_plot_of_two_nights_has_each_time_once_and_its_whole_title(tmp_path: Path, file: str, history: Cli) -> None:
    with open_to_write(Path(file)) as store:
        store.add(row(day, 1000.0 + day, system="a-system-with-a-long-name") for day in (1, 2))
    history("trend", "--output", str(tmp_path / "out"))
    texts = re.findall(r">([^<>\n]+)</text>", (tmp_path / "out/trend.svg").read_text())
    times = [text for text in texts if re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", text)]
    assert len(times) == len({*times}) == 5
    assert any(text.startswith("0123456789ab: tiny, a-system") and text.endswith(", 2 runs") for text in texts), texts


def test_an_empty_plot_says_so(tmp_path: Path, file: str, history: Cli) -> None:
    with open_to_write(Path(file)) as store:
        store.add([row(1, None)])
    caught = history("trend", "--output", tmp_path / "out")
    assert caught.out == ""
    assert "1 runs, none with a number" in caught.err
    assert (tmp_path / "out/trend.svg").exists()


def test_nights_that_failed_before_their_first_line_are_all_kept(tmp_path: Path, file: str, history: Cli) -> None:
    history("add", write_series_run(tmp_path / "good"))
    for night in (1, 2):
        run = write_series_run(tmp_path / f"night{night}", outcome="NODE_FAIL")
        outcome = json.loads((run / "outcome.json").read_text())
        (run / "outcome.json").write_text(json.dumps({**outcome, "job_id": str(night)}))
        history("add", run)
        history("add", run)  # the same one
    assert [row.outcome for row in rows(file)] == ["VALID", "NODE_FAIL", "NODE_FAIL"]
    assert "2 without a number" in (err := history("trend").err)
    assert "run 2 NODE_FAIL, run 3 NODE_FAIL" in err
