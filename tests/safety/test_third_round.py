"""Faults of the third round of fresh eyes, through the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.ours import write_our_run
from support.published import published_log
from support.repeated import write_runs

import nlp_bench
from nlp_bench.cli.main import main
from nlp_bench.errors import UsageError

PLAN = Path(__file__).resolve().parents[2] / "benchmark/plan.toml"
DUMP = """------------------------ arguments ------------------------
  global_batch_size ............................... 96
  seq_length ...................................... 8192
  world_size ...................................... 4
-------------------- end of arguments ---------------------
"""


@pytest.mark.parametrize(("before", "behind", "length"), [("", DUMP, None), (DUMP, "", 8192)])
def test_the_settings_of_a_start_that_printed_no_line_are_not_those_of_the_run_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, behind: str, length: int | None
) -> None:
    path = tmp_path / "a.log"
    path.write_text(before + published_log() + behind)
    assert main(["report", str(path), "--format", "json"]) == (1 if length is None else 0)
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["sequence_length"] == length


def test_a_size_against_the_logs_compares_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write_runs(tmp_path / "a", 65000, 65600, 64700)
    after = write_runs(tmp_path / "b", 55000, 55600, 54700, seed=40)
    words = ["compare", str(before), str(after), "--gate", "3", "--same-workload"]
    assert main([*words, "--global-batch-size", "192"]) == UsageError.exit_code
    said = capsys.readouterr()
    assert "the option --global-batch-size 192 is used although the log says" in said.err
    assert "PASS" not in said.out


@pytest.mark.parametrize("words", [["export", "bigger"], ["bundle", "--output", "HERE/x.tar.gz"]])
def test_a_size_against_the_log_is_not_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (tmp_path / "a.log").write_text(DUMP + published_log())
    placed = [word.replace("HERE", str(tmp_path)) for word in words]
    assert main([*placed, str(tmp_path / "a.log"), "--global-batch-size", "960"]) == UsageError.exit_code
    assert "is used although the log says 96. Leave the option out" in capsys.readouterr().err
    assert not (tmp_path / "x.tar.gz").exists()


@pytest.mark.parametrize(
    "name", ["run.json", "outcome.json", "submit.json", "environment.json", "ended.json", "machine/n1.samples.csv"]
)
@pytest.mark.parametrize("command", ["report", "measure", "sync"])
def test_a_record_that_is_a_pipe_hangs_nobody(tmp_path: Path, name: str, command: str) -> None:
    run = write_our_run(tmp_path / "run")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    words = [sys.executable, "-m", "nlp_bench", command, str(run)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
    if name == "run.json" and command != "sync":
        assert (done.returncode, "run.json: it is no regular file" in done.stdout + done.stderr) == (1, True)


def test_a_record_without_end_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_our_run(tmp_path / "run")
    with (run / "run.json").open("r+b") as stream:
        stream.truncate(3 << 30)  # a hole
    assert main(["measure", str(run)]) == 1
    assert "run.json: it is larger than 64 MiB, which no record is" in capsys.readouterr().err


def test_a_time_without_its_unit_is_not_called_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = " iteration {:8}/ 400 | consumed samples: {:12} | elapsed time per iteration: 10600.0 | global batch size: 64 | lm loss: 9.1E+00 |\n"
    (tmp_path / "a.log").write_text("".join(line.format(n, 64 * n) for n in range(10, 60, 10)))
    assert main(["report", str(tmp_path / "a.log")]) == 1
    assert "begin like one, but are cut, spliced, or lack a word, such as a unit" in capsys.readouterr().out


def test_measure_replaces_no_file_but_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_our_run(tmp_path / "run")
    before = (run / "job.out").read_bytes()
    assert main(["measure", str(run), "--metrics", str(run / "job.out")]) == UsageError.exit_code
    assert "--metrics" in capsys.readouterr().err
    assert (run / "job.out").read_bytes() == before
    for _ in range(2):  # its own of the time before is replaced
        assert main(["measure", str(run), "--metrics", str(tmp_path / "metrics.txt")]) == 0


def test_export_replaces_no_file_but_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(DUMP + published_log())
    words = ["export", "mllog", str(tmp_path / "a.log"), "--allow-measured", "--output", str(tmp_path / "out")]
    assert main(words) == 0
    (written,) = (tmp_path / "out").iterdir()
    assert main(words) == 0
    written.write_text("mine\n")
    assert main(words) == UsageError.exit_code
    assert f"{written.name} exists; name another" in capsys.readouterr().err
    assert written.read_text() == "mine\n"


@pytest.mark.parametrize("words", [["report", ""], ["compare", "", "x"], ["history", "add", ""], ["bundle", ""]])
def test_an_empty_path_is_not_the_current_folder(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == UsageError.exit_code
    assert "it is empty; give a path" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8", "--emit-jube", "."], "name a file"),
        (["bundle", "a.out", "--output", "."], "--output . is a folder; name a file in it, or a new folder"),
    ],
    ids=["plan", "bundle"],
)
def test_the_current_folder_is_no_file(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) in {1, 2}
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["report", "a.out", "--output=~/out"],
        ["bundle", "a.out", "--output=~/e.tar.gz"],
        ["data", "prepare", "x.jsonl", "--output=~/x"],
    ],
)
def test_a_tilde_that_no_shell_replaced_makes_no_folder_of_that_name(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.out").write_text(DUMP + published_log())
    assert main(words) == UsageError.exit_code
    assert "begins with a ~ that the shell left as it is; write a blank in place of =" in capsys.readouterr().err
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("words", [["report", "a.out", "\u2013limit", "560"], ["plan", "\u2014model", "13"]])
def test_a_dash_that_a_text_made_of_hyphens_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == UsageError.exit_code
    said = capsys.readouterr().err
    assert "begins with a dash that is no hyphen (U+201" in said
    assert f"; write --{words[-2][1:]}" in said


def test_the_api_names_the_argument_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(DUMP + published_log())
    with pytest.raises(UsageError, match="PATH is empty"):
        nlp_bench.read_logs("")
    with pytest.raises(UsageError, match="gpu: 3 is no name"):
        nlp_bench.read_log(tmp_path / "a.log", gpu=3)  # type: ignore[arg-type]
    log = nlp_bench.read_log(tmp_path / "a.log")
    with pytest.raises(UsageError, match="limit: True"):
        nlp_bench.measure(log, limit=True)
    with pytest.raises(UsageError, match="results: one of them is no Result"):
        nlp_bench.to_frame(log)  # type: ignore[arg-type]


def test_the_planners_own_file_is_no_file_of_changes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8", "--constants", str(PLAN)]
    assert main(words) == UsageError.exit_code
    assert "leave out those of benchmark/plan.toml" in capsys.readouterr().err


def test_a_runs_own_folders_hold_no_other_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another user's `ranks/` may be closed: it is not searched, so it is no row that was refused."""
    run = write_our_run(tmp_path / "run")
    for name in ("ranks", "machine", "snapshot"):
        write_our_run(run / name / "inner")
    assert main(["report", str(tmp_path), "--format", "json"]) == 0
    assert [one["source"] for one in json.loads(capsys.readouterr().out)["runs"]] == [str(run)]
