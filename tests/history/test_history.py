"""`nlp-bench history` and `compare history:…` as an operator uses them."""

import csv
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import Capture
from support.published import write_run
from support.repeated import write_log, write_runs
from support.series import write_series_run

from nlp_bench.analysis.history import Row
from nlp_bench.analysis.store import Filter, open_to_read, open_to_write
from nlp_bench.cli.main import main

Make = Callable[..., Row]


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "h.sqlite3")


def said(capsys: Capture) -> str:
    return capsys.readouterr().out


def add(file: str, *paths: Path | str, **options: str) -> int:
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return main(["history", "add", *map(str, paths), "--file", file, *words])


def rows(file: str) -> list[Row]:
    with open_to_read(Path(file)) as store:
        return store.rows(Filter())


def test_a_run_of_ours(tmp_path: Path, file: str, capsys: Capture) -> None:
    run = write_run(tmp_path / "run")
    assert add(file, run) == 0
    assert said(capsys).startswith("run 1 added: ")
    (found,) = rows(file)
    assert (found.ended, found.nlp_bench_commit, found.job_id) == ("2026-01-01T00:00:00+00:00", "abc", "4711")
    assert (found.model, found.system, found.num_gpus, found.outcome) == ("175", "machine", 384, "VALID")
    assert found.time_to_report_s == pytest.approx(20e6 / (found.tokens_per_second_steady or 0))
    run.rename(tmp_path / "moved")
    assert add(file, tmp_path / "moved") == 0
    assert "run 1 was there, measured anew" in said(capsys)
    assert [r.source for r in rows(file)] == [str(tmp_path / "moved")]


def test_a_failed_run_is_part_of_the_history(tmp_path: Path, file: str) -> None:
    assert add(file, write_run(tmp_path / "run", outcome="NODE_FAIL")) == 0
    (found,) = rows(file)
    assert (found.outcome, found.tokens_per_second_steady, found.time_to_report_s) == ("NODE_FAIL", None, None)


def test_what_has_not_ended_or_says_nothing_is_not_added(tmp_path: Path, file: str, capsys: Capture) -> None:
    (write_run(tmp_path / "run") / "outcome.json").unlink()
    (tmp_path / "a.log").write_text("nothing\n")
    assert add(file, tmp_path / "run", tmp_path / "a.log") == 1
    err = capsys.readouterr().err
    assert "not added" in err
    assert "nlp-bench sync" in err
    assert "no whole training line" in err
    assert not Path(file).exists()


def test_logs_of_others(tmp_path: Path, file: str) -> None:
    write_runs(tmp_path / "logs", 65000, 66000)
    silent = write_log(tmp_path / "silent.log", 64000, stated=False)
    assert add(file, tmp_path / "logs", silent, sequence_length="4096", num_gpus="16", name="first") == 0
    assert len({r.identity for r in rows(file)}) == 2
    assert {r.name for r in rows(file)} == {"first"}


def test_a_run_that_gets_another_name_is_said_to_lose_the_old_one(tmp_path: Path, file: str, capsys: Capture) -> None:
    log = write_log(tmp_path / "a.log", 65000)
    add(file, log, name="acceptance")
    add(file, log)
    assert "named" not in capsys.readouterr().out
    add(file, log, name="march")
    assert "; named acceptance until now, it is no run of history:acceptance any more" in capsys.readouterr().out


def test_list_show_export(tmp_path: Path, file: str, capsys: Capture) -> None:
    add(file, write_run(tmp_path / "run"), write_log(tmp_path / "a.log", 65000))
    said(capsys)
    assert main(["history", "list", "--file", file, "--model", "175"]) == 0
    text = said(capsys)
    assert "175, machine, 384 GPUs" in text
    assert len(text.splitlines()) == 3
    assert main(["history", "show", "1", "--file", file]) == 0
    assert "global_batch_size" in said(capsys)
    assert main(["history", "export", "--file", file]) == 0
    table = list(csv.DictReader(said(capsys).splitlines()))
    assert sorted(line["outcome"] for line in table) == ["VALID", "VALID"]
    assert main(["history", "export", "--format", "json", "--file", file]) == 0
    record = json.loads(said(capsys))
    assert record["schema"] == "nlp-bench/history/1"
    assert {run["entry"]["outcome"] for run in record["runs"]} == {"VALID"}
    assert main(["history", "list", "--file", file, "--last", "1"]) == 0
    assert "1 of 2 runs; more with --last N" in capsys.readouterr().err


def test_a_nightly_run_against_the_one_before(tmp_path: Path, file: str, capsys: Capture) -> None:
    nights = [write_log(tmp_path / f"{n}.log", rate, n) for n, rate in enumerate((65000, 65100, 64900, 65050, 60000))]
    for number, night in enumerate(nights):
        os.utime(night, (1000 * number, 1000 * number))
        assert add(file, night) == 0
        said(capsys)
        codes = [
            main(["compare", f"history:last{back}", str(night), "--gate", "3", "--file", file]) for back in ("", "-10")
        ]
        text = capsys.readouterr()
        assert codes == [2, 2] if number == 0 else codes == [int(number == 4)] * 2, text
        if number == 0:
            assert "no earlier valid run of this configuration" in text.err
        else:
            assert f"history:last (history run {number}: " in text.out
    assert main(["history", "trend", "--file", file]) == 0
    assert "% below the level of the 4 runs before it" in said(capsys)


def test_an_old_run_is_held_against_those_before_it(tmp_path: Path, file: str, capsys: Capture) -> None:
    for number in range(3):
        os.utime(write_log(tmp_path / f"{number}.log", 65000, number), (1000 * number, 1000 * number))
    add(file, tmp_path)
    said(capsys)
    assert main(["compare", "history:last-5", str(tmp_path / "1.log"), "--file", file, "--format", "json"]) == 0
    assert [run.split(":")[0] for run in json.loads(said(capsys))["comparisons"][0]["a"]["runs"]] == ["history run 1"]


def test_names_numbers_and_configurations(tmp_path: Path, file: str, capsys: Capture) -> None:
    add(file, write_runs(tmp_path / "a", 65000, 65100, 64900), name="acceptance")
    add(file, write_runs(tmp_path / "b", 65000, 65100, seed=8), name="later")
    identity = rows(file)[0].identity
    said(capsys)
    for a, b, runs in (("acceptance", "later", [3, 2]), ("1", identity, [1, 5]), (identity[:6], "later", [5, 2])):
        assert main(["compare", f"history:{a}", f"history:{b}", "--file", file, "--format", "json"]) == 0
        (found,) = json.loads(said(capsys))["comparisons"]
        assert [len(found[side]["runs"]) for side in "ab"] == runs
    assert main(["compare", str(tmp_path / "a/run1.log"), "history:1", "--file", file, "--format", "json"]) == 0
    (found,) = json.loads(said(capsys))["comparisons"]
    assert found["a"]["ci95"] == pytest.approx(found["b"]["ci95"], rel=1e-12), "one run has one interval"
    fresh = [str(tmp_path / "a"), "history:acceptance"]
    assert main(["compare", *fresh, "--file", file, "--format", "json"]) == 0
    (found,) = json.loads(said(capsys))["comparisons"]
    assert found["ratio"]["value"] == pytest.approx(1, rel=1e-12)
    assert found["a"]["ci95"] == pytest.approx(found["b"]["ci95"])
    assert found["differences"] == {"free": [], "machine": [], "not_shown": []}
    assert main(["compare", *fresh, "--file", file]) == 0
    assert "3 run(s) of B are runs of A" in said(capsys)


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
        (["history", "show", "x"], "takes one ID"),
        (["history", "show", "7"], "has no run 7"),
        (["history", "list", "--output", "x"], "--output does not go with history list"),
        (["history", "trend", "--format", "csv"], "history trend has no --format csv"),
        (["history", "add", ".", "--name", "last"], "could be taken for"),
        (["history", "add", ".", "--name", "1"], "begins with a letter"),
        (["history", "add", ".", "--name", "a b"], "begins with a letter"),
        (["history", "list", "--file", "nowhere/h"], "does not exist; fill it with"),
    ],
)
def test_bad_words(words: list[str], message: str, tmp_path: Path, file: str, capsys: Capture) -> None:
    add(file, write_log(tmp_path / "a.log", 65000))
    said(capsys)
    assert main([*words, *([] if "--file" in words else ["--file", file])]) == 2
    caught = capsys.readouterr()
    assert message in caught.err
    assert caught.out == ""


def test_text_of_others_stays_on_its_line(file: str, row: Make, capsys: Capture) -> None:
    with open_to_write(Path(file)) as store:
        store.add([row(1, 5.0, source="a\nb\x1b[31m", model="m\nn", name="n\x07")])
    for action in (["list"], ["show", "1"], ["trend"]):
        assert main(["history", *action, "--file", file]) == 0
        assert "\x1b" not in said(capsys)


@pytest.mark.slow
def test_the_plot_of_ten_thousand_runs(tmp_path: Path, file: str, row: Make, capsys: Capture) -> None:
    with open_to_write(Path(file)) as store:
        store.add(row(day, 1000.0 + day % 7 + day / 1e6, f"{day % 10:012x}", system="$x_1$") for day in range(10_000))
    assert main(["history", "trend", "--file", file, "--output", str(tmp_path / "out")]) == 0
    assert len(said(capsys).splitlines()) == 14
    assert main(["history", "list", "--file", file, "--last", "10000"]) == 0
    assert len(said(capsys).splitlines()) == 10_002
    assert (tmp_path / "out/trend.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "out/trend.svg").stat().st_size < 5_000_000


def test_the_plot_of_two_nights_has_each_time_once_and_its_whole_title(tmp_path: Path, file: str, row: Make) -> None:
    with open_to_write(Path(file)) as store:
        store.add(row(day, 1000.0 + day, system="a-system-with-a-long-name") for day in (1, 2))
    assert main(["history", "trend", "--file", file, "--output", str(tmp_path / "out")]) == 0
    texts = re.findall(r">([^<>\n]+)</text>", (tmp_path / "out/trend.svg").read_text())
    times = [text for text in texts if re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", text)]
    assert len(times) == len({*times}) == 5
    assert any(text.startswith("0123456789ab: tiny, a-system") and text.endswith(", 2 runs") for text in texts), texts


def test_an_empty_plot_says_so(tmp_path: Path, file: str, row: Make, capsys: Capture) -> None:
    with open_to_write(Path(file)) as store:
        store.add([row(1, None)])
    assert main(["history", "trend", "--file", file, "--output", str(tmp_path / "out")]) == 0
    caught = capsys.readouterr()
    assert caught.out == ""
    assert "1 runs, none with a number" in caught.err
    assert (tmp_path / "out/trend.svg").exists()


def test_nights_that_failed_before_their_first_line_are_all_kept_and_told(
    tmp_path: Path, file: str, capsys: Capture
) -> None:
    add(file, write_series_run(tmp_path / "good"))
    for night in (1, 2):
        run = write_series_run(tmp_path / f"night{night}", outcome="NODE_FAIL")
        outcome = json.loads((run / "outcome.json").read_text())
        (run / "outcome.json").write_text(json.dumps({**outcome, "job_id": str(night)}))
        assert add(file, run) == 0
        assert add(file, run) == 0  # the same one
    assert [row.outcome for row in rows(file)] == ["VALID", "NODE_FAIL", "NODE_FAIL"]
    capsys.readouterr()
    assert main(["history", "trend", "--file", file]) == 0
    assert "2 without a number" in (err := capsys.readouterr().err)
    assert "run 2 NODE_FAIL, run 3 NODE_FAIL" in err
