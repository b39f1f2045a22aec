"""What an operator of a nightly benchmark relies on: a failed night counts, a copy is no repeat and moves no date, a name is what ran."""

import contextlib
import datetime as dt
import gzip
import json
import os
import re
import shutil
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Cli
from support.published import OUTCOME
from support.repeated import write_log, write_runs
from support.ruled_run import STEPS, asked, log_of


def write_night(folder: Path, model: str, *, seed: int = 0, failed: bool = False, **choices: object) -> Path:
    """Write the folder of a run of ours; one that failed was cancelled before its trainer printed its arguments."""
    run = asked(model, **choices)
    run = replace(run, training=replace(run.training, iterations=run.training.log_interval * len(STEPS)))
    folder.mkdir(parents=True)
    run.write(folder)
    seconds = [one * (1 + 0.001 * ((7 * seed + number) % 5)) for number, one in enumerate(STEPS)]
    ended = {"job_id": str(seed), "ended": f"2026-01-{seed + 1:02d}T00:00:00+00:00"}
    ended |= {"outcome": "CANCELLED", "exit_status": 143} if failed else {}
    (folder / "outcome.json").write_text(json.dumps(OUTCOME | ended))
    (folder / "job.out").write_text("Submitted batch job 8\n" if failed else log_of(run, seconds=seconds))
    return folder


@pytest.mark.parametrize(
    ("model", "choices"),
    [
        ("13", {}),
        ("13", {"num_layers_per_virtual_pipeline_stage": 5, "pipeline": 4, "gradient_accumulation_steps": 16}),
        ("llama_8b", {}),
        ("t5_3b", {}),
        ("bert_large", {}),
    ],
)
def test_a_night_that_failed_at_its_start_is_one_of_its_configuration(
    tmp_path: Path, file: str, history: Cli, cli: Cli, model: str, choices: dict[str, object]
) -> None:
    for night in range(3):
        history("add", write_night(tmp_path / str(night), model, seed=night, **choices))
    lost = write_night(tmp_path / "lost", model, seed=9, failed=True, **choices)
    said = cli("compare", "history:last", lost, "--gate", "5", "--allow-measured", "--file", file, code=1).out
    assert "GATE FAIL: B has no number" in said
    history("add", lost)
    runs = history("export", "--format", "json").json["runs"]
    assert [run["outcome"] for run in runs] == ["VALID", "VALID", "VALID", "CANCELLED"], runs[0]["entry"]["reasons"]
    assert len({run["identity"] for run in runs}) == 1
    record = history("trend", "--format", "json").json
    assert [each["num_failed"] for each in record["configurations"]] == [1]


def dates(history: Cli) -> list[float]:
    return [run["ended_s"] for run in history("export", "--format", "json").json["runs"]]


def test_a_copy_moves_no_date(tmp_path: Path, history: Cli) -> None:
    """Of two times of files the earlier one stays, in either order."""
    log = write_log(tmp_path / "a.log", 65000)
    for moment, wanted in ((1.75e9, 1.75e9), (1.7e9, 1.7e9), (1.74e9, 1.7e9)):
        os.utime(log, (moment, moment))
        history("add", log)
        assert dates(history) == [wanted]


@pytest.mark.parametrize(
    "ended",
    ["2099-01-01T00:00:00+00:00", "1970-01-01T00:20:00+00:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59"],
)
def test_a_node_whose_clock_is_years_off_dates_no_run(tmp_path: Path, history: Cli, ended: str) -> None:
    """The run was the last one for every night behind it; its file has the file server's time, which is no later than now."""
    run = write_night(tmp_path / "run", "175")
    path = run / "outcome.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ended": ended}))
    for moment, wanted in ((1.75e9, 1.75e9), (4e9, 1.75e9)):
        os.utime(run / "job.out", (moment, moment))
        history("add", run)
        assert dates(history) == [wanted]
    os.utime(write_log(tmp_path / "a.log", 65000), (4e9, 4e9))
    history("add", tmp_path / "a.log")
    assert dates(history)[-1] <= time.time()
    os.utime(write_log(tmp_path / "b.log", 65100), (0, 0))
    history("add", tmp_path / "b.log")
    assert min(dates(history)) >= 1.75e9  # it was added now


def test_a_clock_without_a_year_changes_no_date(tmp_path: Path, history: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_night(tmp_path / "run", "175")
    ended = dt.datetime.fromisoformat(json.loads((run / "outcome.json").read_text())["ended"]).timestamp()
    monkeypatch.setattr("nlp_bench.analysis.store.now", lambda: "1970-01-01T00:16:40+00:00")
    history("add", run)
    assert dates(history) == [ended]


def test_a_log_is_dated_by_its_last_line(tmp_path: Path, history: Cli) -> None:
    """A run folder of ours by its outcome.json."""
    run = write_night(tmp_path / "run", "175")
    log = Path(shutil.copy(run / "job.out", tmp_path / "a.log"))
    log.write_text(log.read_text().replace("unix time: 18", "unix time: 17"))  # of 2023, not of 2027
    last = float(re.findall(r"unix time: ([0-9.]+)", log.read_text())[-1])
    history("add", log, run)
    assert dates(history) == [pytest.approx(last), pytest.approx(1767225600.0)]


@pytest.mark.parametrize(
    ("stamp", "ended"), [("2026-01-02 00:02:00", 1767330120), ("2026-01-02T00:02:00Z", 1767312120)]
)
def test_a_time_without_a_zone_is_of_this_machines(
    tmp_path: Path, history: Cli, monkeypatch: pytest.MonkeyPatch, stamp: str, ended: int
) -> None:
    """One with a zone is what it says, and so is what is packed."""
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        log = write_log(tmp_path / "a.log", 65000)
        log.write_bytes(gzip.compress(re.sub("(?m)^ iteration", f"[{stamp}] iteration", log.read_text()).encode()))
        history("add", log)
        assert dates(history) == [ended]
        said = history("list", "--name", "none").err
        assert said == "nlp-bench: 0 of 1 runs; the options leave the others out\n"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "before", ["", "2026-11-28T10:00:00.123456789Z ", "Nov 28 10:00:00 n1 python[1]: ", "INFO:root:", "[default0]:"]
)
def test_a_log_of_cpu_ranks_is_one_of_cpu_ranks(tmp_path: Path, history: Cli, cli: Cli, before: str) -> None:
    """Without its run folder, too, and with what a collector puts before its lines: report, history and compare say the same."""
    log = write_log(tmp_path / "a.log", 65000)
    log.write_text(f"{before} > device: CPU, 1 threads per rank\n{log.read_text()}")
    calls = (["add", log], ["list"], ["trend", "--allow-measured"])
    said = "".join(history(*words).out for words in calls) + cli("report", log, "--allow-measured").out
    assert said.count("16 CPU") == 4
    assert "16 GPUs" not in said


def test_what_a_log_is_sealed_with_is_no_setting(tmp_path: Path, cli: Cli) -> None:
    """Nor how far the clocks of its ranks were apart: neither is a choice in which configurations differ."""
    for number, batch in enumerate((1, 2), start=1):
        sizes = {"micro_batch_size": batch, "pipeline_model_parallel_size": 1}
        log = write_log(tmp_path / f"{number}.log", 65000, number, **sizes)
        seal = f" > seal: opened; run.json SHA-256 {str(number) * 64}; nonce none"
        log.write_text(f"{seal}\n > clocks of the ranks: within 0.00{number} s after a barrier\n{log.read_text()}")
    said = cli("report", tmp_path, "--sweep", "--allow-measured").out
    assert "micro batch" in said
    assert "clock spread" not in said
    assert "run sha256" not in said


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    """A log; the same with other line ends, packed and cut."""
    whole = write_log(tmp_path / "a.log", 65000, seed=3)
    other, packed, cut = (tmp_path / name for name in ("b.log", "a.log.gz", "c.log"))
    other.write_bytes(whole.read_bytes().replace(b"\n", b"\r\n"))
    packed.write_bytes(gzip.compress(whole.read_bytes()))
    cut.write_text("".join(whole.read_text().splitlines(keepends=True)[:32]))
    return [cut, whole, other, packed]


def test_a_copy_of_a_run_is_no_repeat_of_it(copies: list[Path], file: str, history: Cli, cli: Cli) -> None:
    """One truth for report, history and compare: packed, with other line ends or cut."""
    assert len(re.findall("a copy, counted once", cli("report", *copies, "--allow-measured").out)) == 3
    for path in copies:
        history("add", path)
    said = history("trend", "--allow-measured", "--format", "json")
    assert [each["runs"] for each in said.json["configurations"]] == [[2]]
    assert "run 1, 3, 4: a copy of another run, whole or cut: counted once" in said.err
    record = history("variance", "--allow-measured", "--format", "json").json
    assert [each["runs"] for each in record["configurations"]] == [[2]]
    for one, two in ((str(copies[1]), str(copies[0])), ("history:2", str(copies[3])), (str(copies[1]), "history:1")):
        words = ("--gate", "3", "--strict", "--allow-measured", "--file", file)
        text = cli("compare", one, two, *words, code=1).out
        assert "1 run(s) of B are runs of A, whole or cut" in text
        assert "GATE NOT PROVEN: a run that is on both sides says nothing" in text
    said = cli("compare", "history:last", copies[3], "--file", file)
    assert "nothing to compare yet" in said.out


def test_runs_of_rounded_times_are_no_copies(tmp_path: Path, cli: Cli) -> None:
    """Two runs that print whole seconds may begin alike."""
    folder = write_runs(tmp_path, 65000, 65010)
    for path in folder.iterdir():
        path.write_text(re.sub(r"(elapsed.*?: )(\d+)\.\d", r"\g<1>4000.0", path.read_text(), count=12))
    assert "a copy" not in cli("report", folder, "--allow-measured").out


@pytest.mark.slow
def test_who_waits_is_told_for_whom(tmp_path: Path, file: str, history: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.files.PATIENCE_S", 0.1)
    monkeypatch.setattr("nlp_bench.analysis.store.WAIT_S", 1.0)
    log = write_log(tmp_path / "a.log", 65000)
    history("add", log)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        said = history("add", log, code=1).err
    assert f"nlp-bench: waiting for another process that is writing {file}" in said
    assert "database is locked; another process is writing it" in said
