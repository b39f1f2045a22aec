"""A nightly benchmark as an operator runs it, by docs/nightly.md: what each command says, and with which exit code, night by night."""

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import Cli, Done
from support.pages import ROOT
from support.repeated import write_log

DAY_S, FIRST_S = 86_400, 1.77e9
SCATTER = 0.004
CRASH = "torch.distributed.DistBackendError: NCCL error: unhandled system error\n"

Night = Callable[..., tuple[Done, Done]]


@pytest.fixture
def night(tmp_path: Path, file: str, history: Cli, cli: Cli) -> Night:
    """night(day, speed): the recipe of that day at a share of the usual speed (None: it crashed at its start), and what the gate and the trend say."""
    source = random.Random(11)  # noqa: S311  # a repeatable test

    def play(
        day: int, speed: float | None = 1.0, *, gate: int | None = None, trend: int | None = None
    ) -> tuple[Done, Done]:
        log = tmp_path / f"{day:02}.log"
        if speed is None:
            log.write_text(CRASH)
        else:
            write_log(log, 65000 * speed * (1 + source.gauss(0, SCATTER)), day)
        os.utime(log, (FIRST_S + DAY_S * day,) * 2)
        history("add", log, code=None)
        found = cli("compare", "history:last-10", log, "--gate", "3", "--file", file, code=gate)
        return found, history("trend", "--gate", code=trend)

    return play


def baseline(history: Cli) -> list[int]:
    runs = history("export", "--format", "json").json["runs"]
    return [run["id"] for run in runs if run["baseline"] == "accepted"]


def test_a_step_fails_each_night_until_it_is_accepted(history: Cli, night: Night) -> None:
    """Seven nights, a day off, a crash, and 7 % slower from night 9 on; the first slow night is accepted on day 13."""
    first, _ = night(0, gate=0, trend=0)
    assert "GATE NOT PROVEN: nothing to compare yet, this run is the baseline" in first.out
    for day in range(1, 7):
        assert "GATE FAIL" not in night(day, gate=0, trend=0)[0].out
    crash, _ = night(8, None, gate=1)  # day 7 is off
    assert re.search(r"GATE FAIL: B has no number: \S+/08.log is \w+: .*no whole training line", crash.out)
    for day in range(9, 13):
        found, _ = night(day, 0.93, gate=1, trend=1)
        assert "GATE FAIL: it is proven that B is slower than A by more than 3 %" in found.out
        assert f"run {day - 1} failed its gate and is no baseline; if this speed is right" in found.err
        assert "nlp-bench history accept" in found.err
    assert baseline(history) == [1, 2, 3, 4, 5, 6, 7]
    said = history("accept", "8", "--why", "the cooling is as it is").out
    assert "run 8 accepted: the baseline of d133ec100874 begins with it: run 8, 9, 10, 11" in said
    for day in (13, 14):
        assert "GATE PASS" in night(day, 0.93, gate=0, trend=0)[0].out
    assert "GATE FAIL" in night(15, 0.86, gate=1, trend=1)[0].out
    assert baseline(history) == [8, 9, 10, 11, 12, 13]
    shown = history("list").out + history("show", "8").out
    assert len(re.findall(r"accepted \(.+, 20\S+\): the cooling is as it is", shown)) == 2


def test_a_creep_is_found_and_stays_found(history: Cli, night: Night) -> None:
    """Each of 14 nights is 0.8 % slower than the one before: too little for any gate of two nights."""
    codes = [night(day, 0.992**day)[1].code for day in range(14)]
    found = codes.index(1)
    assert found < 9, codes
    assert codes[found:] == [1] * (14 - found)
    assert max(baseline(history)) <= 5
    assert night(14, 0.992**14, gate=1)[0].code == 1


def test_a_repaired_machine_needs_no_word(history: Cli, night: Night) -> None:
    """Seven nights, two slow ones, a creep of two and back: what is slow is in no baseline, what is as before is."""
    for day in range(7):
        night(day, gate=0, trend=0)
    for day in range(7, 12):
        night(day, 0.93, gate=1, trend=1)
    for day in range(12, 18):
        night(day, gate=0, trend=0)
    assert baseline(history) == [*range(1, 8), *range(13, 19)]


def test_one_night_after_an_acceptance_is_judged_by_the_scatter_of_before(history: Cli, night: Night) -> None:
    for day in range(7):
        night(day)
    night(7, 0.93, gate=1)
    history("accept", "8")
    assert "GATE PASS" in night(8, 0.93, gate=0)[0].out
    assert "GATE FAIL" in night(9, 0.8, gate=1)[0].out
    assert baseline(history) == [8, 9]


def test_who_accepts_an_earlier_run_takes_an_acceptance_back(tmp_path: Path, history: Cli, night: Night) -> None:
    for day in range(7):
        night(day)
    night(7, 0.93)
    night(8, 0.93)
    history("accept", str(tmp_path / "08.log"))
    assert baseline(history) == [9]
    assert "run 9 counts already" in history("accept", "9").out
    history("accept", "8")
    assert baseline(history) == [8, 9]
    history("accept", "1")
    assert baseline(history) == [*range(1, 8)]


def test_a_gate_says_last_what_counts(tmp_path: Path, file: str, history: Cli, cli: Cli, night: Night) -> None:
    for day in range(7):
        night(day)
    log = tmp_path / "06.log"
    words = ("compare", "history:last-10", log, "--file", file, "--gate")
    for percent, is_in in (("0.01", True), ("3", True)):
        cli(*words, percent, code=None)
        assert (7 in baseline(history)) is is_in
    write_log(log, 64000, 6)
    os.utime(log, (FIRST_S + DAY_S * 6,) * 2)
    history("add", log)
    cli(*words, "0.1", code=1)
    assert 8 not in baseline(history)
    cli(*words, "10", code=0)
    assert "gate of 10 %: PASS" in history("show", "8").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["accept"], "history accept takes one run"),
        (["accept", "7"], "7 is 0 runs of"),
        (["accept", "2"], "run 2 is TIMEOUT and has no number"),
        (["list", "--why", "x"], "--why does not go with history list"),
        (["add", "x", "--gate"], "--gate does not go with history add"),
    ],
)
def test_what_cannot_be_accepted(file: str, history: Cli, words: list[str], message: str) -> None:
    from support.nights import row  # here alone

    from nlp_bench.analysis.store import open_to_write  # here alone

    with open_to_write(Path(file)) as store:
        store.add([row(1, 100.0), row(2, None)])
    assert message in history(*words, code=2).err


def test_a_night_that_nothing_shows_whole_is_no_baseline_by_itself(
    tmp_path: Path, file: str, history: Cli, cli: Cli
) -> None:
    """MEASURED: its log stops early. Every night like it said "nothing to compare", and the gate watched nothing."""
    for number in range(3):
        log = write_log(tmp_path / f"{number}.log", 65000 + number, number)
        log.write_text(log.read_text().replace("/     300", "/    5000"))
        os.utime(log, (FIRST_S + DAY_S * number,) * 2)
        history("add", log)
        if number < 2:
            said = cli("compare", "history:last-10", log, "--gate", "3", "--file", file, code=1).out
            assert f"B is no baseline by itself: {log} is MEASURED: " in said
            assert f"if it is whole: nlp-bench history accept {log}" in said
    assert history("trend", "--gate", code=1).out == "GATE FAIL: there is no run to judge\n"
    history("accept", "2")
    assert baseline(history) == [2]
    cli("compare", "history:last-10", log, "--gate", "3", "--file", file, code=0)


def test_a_colleague_who_may_not_write_the_history_gets_the_verdict(
    file: str, history: Cli, cli: Cli, night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(7):
        night(day)

    def closed(*_: object) -> None:
        raise OSError(13, "Permission denied")

    log = write_log(tmp_path / "slow.log", 55000, 9)
    history("add", log)
    monkeypatch.setattr("nlp_bench.analysis.store.locked", closed)
    said = cli("compare", "history:last-10", log, "--gate", "3", "--file", file, code=1)
    assert "GATE FAIL" in said.out
    assert "the verdict is not in the history: " in said.err


def test_a_first_night_in_each_form(tmp_path: Path, file: str, history: Cli, cli: Cli) -> None:
    log = write_log(tmp_path / "a.log", 65000)
    history("add", log)
    words = ("compare", "history:last-10", log, "--gate", "3", "--file", file)
    record = cli(*words, "--format", "json").json
    assert (record["comparisons"], record["gate"]["verdict"]) == ([], "NOT PROVEN")
    assert "- nothing to compare yet, this run is the baseline" in cli(*words, "--format", "markdown").out
    cli(*words, "--strict", code=1)
    cli(*words[:3], "--file", file, code=0)


def test_a_crash_is_named_before_there_is_a_history(tmp_path: Path, file: str, cli: Cli) -> None:
    (tmp_path / "a.log").write_text(CRASH)
    words = ("compare", "history:last-10", tmp_path / "a.log", "--file", file)
    for more in ([], ["--gate", "3"]):
        assert "B has no number: " in cli(*words, *more, code=1).out
    assert (
        "does not exist; fill it with" in cli(*words[:2], write_log(tmp_path / "b.log", 65000), *words[3:], code=2).err
    )


def test_a_verdict_on_a_run_that_is_not_in_the_history_is_said_to_be_lost(
    tmp_path: Path, file: str, history: Cli, cli: Cli, night: Night
) -> None:
    for day in range(5):
        night(day)
    slow = write_log(tmp_path / "slow.log", 55000, 9)
    said = cli("compare", "history:last-10", slow, "--gate", "3", "--file", file, code=1).err
    assert (
        f"B is not in the history, so that its verdict is not kept; first: nlp-bench history add PATH --file {file}"
        in said
    )
    history("add", slow)
    history("accept", slow, "--why", "a\x1b[31m\udcff\nb")
    for action in (["list"], ["show", "6"], ["trend"]):
        said = history(*action).out
        assert "\x1b" not in said
        assert re.search(r"accepted \(.+\): a.*31m", said)


NIGHTLY = (ROOT / "docs/nightly.md").read_text(encoding="utf-8")
INSTEAD = """#!/bin/bash
case $1 in
submit) mkdir -p "$8" && cp -p "$HOME/$NIGHT.log" "$8/job.out" ;;
watch) ;;
*) exec "PYTHON" -m nlp_bench "$@" ;;
esac
"""
"""In place of nlp-bench: tonight's run is a log that is there."""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("flock"), reason="no flock")
def test_the_script_and_the_crontab_of_the_page_mail_on_failure_alone(tmp_path: Path) -> None:
    script = NIGHTLY.partition("```bash\n")[2].partition("```")[0]
    (tmp_path / "nightly.sh").write_text(script)
    (tmp_path / "nightly.sh").chmod(0o755)
    line = next(line for line in NIGHTLY.splitlines() if line.startswith("30 1 * * *"))
    command = line.removeprefix("30 1 * * *").replace(r"\%", "%")  # as crontab(5) does
    (tmp_path / "nlp-bench/benchmark/models").mkdir(parents=True)
    (tmp_path / "nlp-bench/benchmark/env").mkdir()
    (tmp_path / "nlp-bench/benchmark/env/activate.bash").touch()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in {
        "nlp-bench": INSTEAD.replace("PYTHON", sys.executable),
        "date": '#!/bin/sh\necho "$NIGHT"\n',
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    mails = []
    for number, rate in enumerate((65000, 65300, 64800, 60000), start=1):
        day = f"2026-03-{number:02}"
        os.utime(write_log(tmp_path / f"{day}.log", rate, number), (FIRST_S + DAY_S * number,) * 2)
        surroundings = {"HOME": str(tmp_path), "PATH": f"{tools}:{os.environ['PATH']}", "NIGHT": day}
        surroundings |= {"NLP_BENCH_ROOT": str(tmp_path / "nlp-bench")}
        done = subprocess.run(["bash", "-c", command], env=surroundings, capture_output=True, text=True, check=False)
        mails.append(done.stdout + done.stderr)
    assert mails[:3] == ["", "", ""]
    assert mails[3].startswith("exit code 1\n")
    assert "GATE FAIL: it is proven that B is slower than A by more than 3 %" in mails[3]
    assert sorted(path.name for path in (tmp_path / "nlp-bench/reports/runs").iterdir()) == [
        f"2026-03-0{n}" for n in range(1, 5)
    ]
