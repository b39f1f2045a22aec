"""What the PATHs of a report may be: folders of logs, patterns, links, broken files, very many files."""

import gzip
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.published import published_log, write_run

from nlp_bench.inputs import read
from nlp_bench.inputs.sources import read_sources
from nlp_bench.measure.sizes import Overrides
from nlp_bench.report.report import Report

SEQUENCE = ["--sequence-length", "2048"]
Report1 = Callable[..., dict[str, Any]]


@pytest.fixture
def record(report: Cli) -> Report1:
    def run(*words: object) -> dict[str, Any]:
        found = report(*words, *SEQUENCE, "--format", "json")
        return {**found.json, "code": found.code}

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three logs of others among files that are none."""
    top = tmp_path / "logs"
    (top / "b").mkdir(parents=True)
    (top / ".hidden").mkdir()
    for name in ("a.out", "b/any name", "b/z.log.txt", ".hidden/c.log", ".d.log"):
        (top / name).write_text(published_log())
    (top / "b/y.gz").write_bytes(gzip.compress(published_log().encode()))
    for name in ("README", "b/config.yaml", "empty"):
        (top / name).write_text("learning_rate: 1\n" if name != "empty" else "")
    (top / "b/model.pt").write_bytes(b"PK\x03\x04" + bytes(range(256)) * 40)
    (top / "b/weights.gz").write_bytes(gzip.compress(bytes(range(256)) * 40))
    return top


@pytest.mark.usefixtures("here")
def test_hidden_logs_are_named_where_no_other_file_has_a_training_line(cli: Cli, log: Path) -> None:
    """Hydra with submitit: the log of the training is below .submitit, and a train.log of Hydra's has one line."""
    Path("d/.submitit/77").mkdir(parents=True)
    log.rename("d/.submitit/77/77_0_log.out")
    Path("d/.config").write_text("")
    Path("d/train.log").write_text("[2026-11-28 07:00:00,000][__main__][INFO] - start\n")
    said = " ".join(cli("report", "d", code=1).out.split())
    assert "none of its 1 file(s) holds a training line" in said
    assert "hidden files are left out: d/.submitit/77/77_0_log.out; name it to have it read too" in said


@pytest.mark.usefixtures("here")
def test_the_text_of_a_log_in_place_of_its_path_is_not_repeated(cli: Cli, log: Path) -> None:
    for text in (log.read_text(), "a line\nof a log", "x" * 5000):
        said = cli("report", text, code=2).err
        assert len(said) < 300
        assert "PATH is the text " in said
        assert "write it into a file and give its name, or -" in said


def test_standard_input_that_stays_open_is_told(log: Path) -> None:
    """`tail -f job.out | nlp-bench report -` waited without a word."""
    words = [
        "import sys; import nlp_bench.inputs.read as r; r.OPEN_S = 0.1; import nlp_bench.cli.main as m",
        "sys.exit(m.main(sys.argv[1:]))",
    ]
    command = [sys.executable, "-c", "; ".join(words), "report", "-", "--sequence-length", "2048"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stderr
        process.stdin.write(log.read_bytes())
        process.stdin.flush()
        said = process.stderr.readline()
        out, _ = process.communicate()
    assert b"standard input is read until it ends; one that is followed (tail -f, kubectl logs -f) never does" in said
    assert b"MEASURED" in out
    assert process.returncode == 0


def test_a_python_without_a_library_is_named(
    cli: Cli, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built where the headers of xz and sqlite were missing: tracebacks, and `reading failed: ModuleNotFoundError`."""
    packed = tmp_path / "a.log.xz"
    packed.write_bytes(lzma.compress(log.read_bytes()))
    for name in ("_lzma", "_sqlite3"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("lzma", "sqlite3", "sqlite3.dbapi2", "nlp_bench.analysis.store"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    words = ["--sequence-length", "2048"]
    table = cli("report", packed, log, *words, "--format", "csv", code=1).out.splitlines()
    assert "reading it needs Python's own module lzma, which " in table[1]
    assert ",MEASURED," in table[2]
    assert "needs Python's own module lzma, which " in cli("report", packed, *words, code=1).err
    said = cli("history", "add", log, "--file", tmp_path / "h.sqlite3", code=1).err
    assert "this command needs Python's own module sqlite3, which " in said
    assert "NLP_BENCH_PYTHON=" in said


def test_a_folder_of_hidden_logs_alone_names_them(cli: Cli, tmp_path: Path) -> None:
    """Nextflow's logs have hidden names only: `no file that could be a log` was said of them."""
    task = tmp_path / "work/3a/9f1c"
    task.mkdir(parents=True)
    for name in (".command.log", ".command.out", ".exitcode"):
        (task / name).write_text(published_log())
    (tmp_path / "gone.log").symlink_to("nowhere")
    assert "gone.log is a link to nowhere, which does not exist" in cli("report", tmp_path / "gone.log", code=2).err
    said = cli("report", tmp_path, *SEQUENCE, code=2).err
    assert f"hidden files are left out: {task}/.command.log, {task}/.command.out and 1 more; name it to have it" in said
    assert f"{task}/.command.log" in cli("report", task / ".command.log", *SEQUENCE).flat


def names(record: dict[str, Any], top: Path) -> list[str]:
    return [run["source"].removeprefix(f"{top}/") for run in record["runs"]]


@pytest.mark.slow
def test_a_folder_gives_every_log_by_content_and_names_the_rest_in_one_line(
    record: Report1, folder: Path, cli: Cli
) -> None:
    found = record(folder)
    assert (found["code"], names(found, folder)) == (0, ["a.out", "b/any name", "b/y.gz", "b/z.log.txt"])
    assert found["passed_over"] == [
        {
            "folder": str(folder),
            "no_training_line": ["README", "b/config.yaml", "empty"],
            "binary": ["b/model.pt", "b/weights.gz"],
        }
    ]
    for form, stream in (("table", "out"), ("markdown", "out"), ("html", "out"), ("csv", "err")):
        said = cli("report", folder, *SEQUENCE, "--format", form)
        text = " ".join(getattr(said, stream).replace("\\", "").split())
        assert text.count("3 file(s) hold no training line: README, b/config.yaml, empty") == 1
        assert "2 binary file(s) are passed over: b/model.pt, b/weights.gz" in text


def test_hundreds_of_other_files_are_one_line(record: Report1, folder: Path, cli: Cli) -> None:
    for number in range(100):
        (folder / f"x{number:03d}.py").write_text("import os\n")
    assert len(record(folder)["runs"]) == 4
    found = cli("report", folder, *SEQUENCE, code=None)
    assert "103 file(s) hold no training line" in found.flat
    assert len(found.out.splitlines()) < 20


def test_a_folder_without_any_log_is_refused_in_one_row(record: Report1, folder: Path) -> None:
    for path in (folder / "a.out", folder / "b/any name", folder / "b/y.gz", folder / "b/z.log.txt"):
        path.unlink()
    found = record(folder)
    (run,) = found["runs"]
    assert (found["code"], run["outcome"], run["source"]) == (1, "REFUSED", str(folder))
    assert "none of its 5 file(s) holds a training line" in run["reasons"][0]


def test_links_that_lead_back_or_up_or_nowhere_end(record: Report1, folder: Path) -> None:
    (folder.parent / "other.log").write_text(published_log())
    (folder / "b/up").symlink_to(folder)
    (folder / "b/out").symlink_to(folder.parent)
    (folder / "b/self").symlink_to("self")
    (folder / "gone").symlink_to("nowhere")
    (folder / "0_same").symlink_to("b", target_is_directory=True)
    (folder / "1_same").symlink_to("a.out")
    os.link(folder / "a.out", folder / "2_same")
    os.mkfifo(folder / "pipe")  # opening it would wait for ever
    # One file with several names is one run; the first name that is no link is kept.
    assert names(record(folder), folder) == ["2_same", "b/any name", "b/y.gz", "b/z.log.txt"]


def test_what_is_reached_twice_counts_once(record: Report1, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link.log").symlink_to(folder / "a.out")
    log = folder / "a.out"
    assert len(record(log, log, tmp_path / "link.log", f"{folder}/../logs/a.out")["runs"]) == 1
    assert names(record(log, folder, folder), folder) == ["a.out", "b/any name", "b/y.gz", "b/z.log.txt"]
    assert names(record(folder, log), folder) == ["a.out", "b/any name", "b/y.gz", "b/z.log.txt"]


def test_a_share_that_gives_all_files_one_number_loses_no_log(
    record: Report1, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of SMB, FUSE and 9p do; three logs were one row, without a word."""
    real, wanted = Path.stat, ["a.out", "b/any name", "b/y.gz", "b/z.log.txt"]

    def one_number(self: Path, **how: bool) -> os.stat_result:
        found = real(self, **how)
        return os.stat_result([found[0], 7, *found[2:10]], {"st_mtime_ns": found.st_mtime_ns})

    monkeypatch.setattr(Path, "stat", one_number)
    assert names(record(folder), folder) == names(record(*(folder / name for name in wanted)), folder) == wanted


def test_a_run_of_ours_by_its_folder_and_its_log_counts_once(record: Report1, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert len(record(run, run / "job.out", run / "../run")["runs"]) == 1


def test_a_run_that_waits_for_its_job_is_a_row_that_says_so(record: Report1, tmp_path: Path) -> None:
    """It has no log yet: its records were taken for somebody's files without a line of a training."""
    run = write_run(tmp_path / "run")
    (run / "submit.json").write_text("{}")
    for name in ("job.out", "outcome.json"):
        (run / name).unlink()
    found = record(tmp_path)
    assert (found["code"], [one["outcome"] for one in found["runs"]]) == (1, ["UNKNOWN"])
    assert f"decide it with: nlp-bench sync {run}" in str(found["runs"][0])


def test_a_pattern_in_quotes_is_what_the_shell_makes_of_it(record: Report1, folder: Path) -> None:
    assert names(record(f"{folder}/*.out"), folder) == ["a.out"]
    found = record(f"{folder}/b/*")  # what is named is a row each, logs or not
    assert [run["source"] for run in found["runs"]] == sorted(map(str, (folder / "b").iterdir()))
    assert sum(run["outcome"] == "MEASURED" for run in found["runs"]) == 3
    assert "b/z.log.txt" in names(record(f"{folder}/**/*.txt"), folder)
    (folder / "b").rename(folder / "1234[7].server")  # of a job array of PBS
    assert names(record(f"{folder}/1234[7].server/*.txt"), folder) == ["1234[7].server/z.log.txt"]
    (folder / "[1].log").write_text(published_log())
    assert names(record(folder / "[1].log"), folder) == ["[1].log"]


def test_among_several_what_is_missing_or_broken_is_a_row(record: Report1, folder: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gz"
    cut.write_bytes((folder / "b/y.gz").read_bytes()[:40])
    found = record("no/such.log", folder / "a.out", cut, tmp_path / "none*", "a\0b")
    assert found["code"] == 1
    assert [run["outcome"] for run in found["runs"]] == ["REFUSED", "MEASURED", "REFUSED", "REFUSED", "REFUSED"]
    assert "does not exist" in found["runs"][0]["reasons"][0]
    assert "cut" in found["runs"][2]["reasons"][0]


def test_a_cut_file_in_a_folder_is_a_row_and_not_passed_over(record: Report1, folder: Path) -> None:
    (folder / "c.gz").write_bytes((folder / "b/y.gz").read_bytes()[:40])
    found = record(folder)
    assert [run["outcome"] for run in found["runs"] if run["source"].endswith("c.gz")] == ["REFUSED"]


def test_a_fault_of_this_program_in_one_log_hides_no_other(
    record: Report1, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = read.measured_log

    def faulty(path: str, *rest: Any, **more: Any) -> Any:
        return 1 // 0 if path.endswith("any name") else true(path, *rest, **more)

    monkeypatch.setattr(read, "measured_log", faulty)
    found = record(folder)
    assert [run["outcome"] for run in found["runs"]] == ["MEASURED", "REFUSED", "MEASURED", "MEASURED"]
    assert "ZeroDivisionError" in found["runs"][1]["reasons"][0]
    with pytest.raises(ZeroDivisionError):
        record(folder / "b/any name")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_a_row(record: Report1, folder: Path) -> None:
    (folder / "b").chmod(0)
    found = record(folder)
    (folder / "b").chmod(0o700)
    assert [run["outcome"] for run in found["runs"]] == ["MEASURED", "REFUSED"]
    assert "Permission denied" in found["runs"][1]["reasons"][0]


def test_the_same_note_of_many_runs_stands_once(folder: Path, cli: Cli) -> None:
    for number in range(6):
        shutil.copy(folder / "a.out", folder / f"c{number:02d}.log")
    out = cli("report", folder, *SEQUENCE, code=None).flat
    assert out.count("the log stops at iteration 50 of 3125000") == 1
    assert "and 9 more: the log stops" in out


def test_curves_are_kept_for_plots_only(folder: Path) -> None:
    overrides = Overrides(sequence_length=2048)
    kept = read_sources([str(folder)], overrides, with_samples=True)
    lean = read_sources([str(folder)], overrides)
    texts = [
        Report(entries=found.entries, tokens=20_000_000, passed_over=found.passed_over).to_json()
        for found in (kept, lean)
    ]
    assert texts[0] == texts[1]
    assert [bool(entry.curves) for entry in kept.entries] == [bool(entry.throughput) for entry in kept.entries]
    assert any(entry.curves for entry in kept.entries)
    assert not any(entry.curves for entry in lean.entries)


# A record or a report of our own in place of a log.


@pytest.mark.usefixtures("here")
def test_a_record_names_what_it_was_made_from(log: Path, cli: Cli) -> None:
    write_run(Path("a run"))
    cli("measure", "a run")
    Path("two words.log").write_bytes(log.read_bytes())
    said = cli("report", "two words.log", "a run", "--sequence-length", "2048", "--format", "json")
    Path("report.json").write_text(said.out)
    Path("report.html").write_text("the page")
    Path("other.json").write_text('{"by": "nlp-bench/report/1"}')  # somebody else's: read as a log
    said = cli("report", "report.json", "a run/result.json", "other.json", "--format", "csv", code=1).out
    ours, result, other = said.splitlines()[1:]
    assert ours.startswith("report.json,,REFUSED,")
    assert "(nlp-bench/report/1)" in ours
    assert "nlp-bench report 'two words.log' 'a run'; its table is in report.html" in ours
    assert "(nlp-bench/result/1)" in result
    assert "nlp-bench report 'a run'" in result
    assert "no whole training line" in other


@pytest.mark.usefixtures("here")
def test_a_bid_sheet_is_said_to_be_predicted(cli: Cli) -> None:
    cli("plan", "--model", "13", "--system", "juwels-booster", "--nodes", "2", "--bid", "--output", "bid.json")
    for words in (("compare", "bid.json", "bid.json"), ("export", "bigger", "bid.json")):
        said = cli(*words, code=None).err
        assert "a bid is predicted: give the logs of a run that proves it, or hold two sheets side by side" in said


@pytest.mark.parametrize("name", ["out", "out/rehearsal.json"])
@pytest.mark.usefixtures("here")
def test_a_rehearsal_is_said_to_have_no_times(name: str, cli: Cli) -> None:
    Path("out").mkdir()
    Path("out/rehearsal.json").write_text('{"schema": "nlp-bench/rehearsal/1", "ranks": []}')
    said = cli("report", name, "--format", "csv", code=1).out
    assert "a rehearsal has no times: give the logs of a run" in said


@pytest.mark.parametrize("name", ["out", "out/report.csv", "out/report.md", "out/report.html", "out/report.json"])
@pytest.mark.usefixtures("here")
def test_the_files_of_a_report_name_what_they_were_made_from(log: Path, name: str, cli: Cli) -> None:
    log.rename("a.log")
    cli("report", "a.log", "--sequence-length", "2048", "--output", "out")
    said = cli("report", name, "--format", "csv", code=1).out.splitlines()
    assert len(said) == 2
    assert ",REFUSED," in said[1]
    assert "nlp-bench report a.log; its table is in out/report.html" in said[1]
    assert "nlp-bench report a.log" in cli("compare", name, "a.log", code=2).err


@pytest.mark.parametrize("name", ["report.csv", "report.md"])
@pytest.mark.usefixtures("here")
def test_a_table_that_was_sent_alone_is_no_log(log: Path, name: str, cli: Cli) -> None:
    log.rename("a.log")
    cli("report", "a.log", "--sequence-length", "2048", "--output", "out")
    Path("out", name).rename(name)
    assert "a report of nlp-bench, which quotes" in cli("report", name, "--format", "csv", code=1).out


@pytest.mark.parametrize("options", ["", "--scaling", "--sweep", "--format html", "--format csv"])
@pytest.mark.usefixtures("here")
def test_a_report_that_quotes_lines_is_no_log(log: Path, options: str, cli: Cli) -> None:
    log.rename("a.log")
    words = ["--sequence-length", "2048"]
    explained = cli("report", "a.log", *words, "--explain", *options.split())
    Path("explained.txt").write_text(explained.err if "csv" in options else explained.out)
    found = cli("report", ".", *words, "--format", "csv")
    assert [line.split(",")[0] for line in found.out.splitlines()] == ["source", "a.log"]
    assert "1 file(s) hold no training line: explained.txt" in found.err
    assert "explained.txt,,REFUSED," in (text := cli("report", "explained.txt", *words, "--format", "csv", code=1).out)
    assert "a report of nlp-bench, which quotes lines of the logs" in text
