"""Faults of the second round of fresh eyes, through the command line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.ours import seal_run, write_our_run
from support.published import published_log
from support.repeated import write_log, write_runs

from faults import stand_in
from nlp_bench.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SIZES = ("--sequence-length", "2048", "--num-gpus", "384")


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_an_archive_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str) -> None:
    (tmp_path / "a.log").write_text(published_log())
    path = tmp_path / f"logs.tar{ending}"
    with tarfile.open(path, f"w:{ending[1:]}") as archive:
        archive.add(tmp_path / "a.log", "a.log")
        archive.add(tmp_path / "a.log", "b.log")
    assert main(["report", str(path), *SIZES, "--format", "json"]) == 1
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["outcome"], run["tokens_per_second"]["steady"]) for run in runs] == [("REFUSED", None)]
    assert "tar is not read; unpack it" in " ".join(runs[0]["reasons"])


def test_a_run_that_is_on_both_sides_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in (0, 5, 9):
            (tmp_path / name / f"{number}.log").write_text(published_log().replace("7.2310", f"7.23{number}0"))
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), *SIZES, "--same-workload", "--allow-measured"]
    assert main([*words, "--gate", "3", "--strict"]) == 1
    said = capsys.readouterr().out
    assert "GATE NOT PROVEN: a run that is on both sides says nothing" in said
    assert "run(s) of B are runs of A" in said


def test_a_shared_run_does_not_hide_that_the_others_are_slower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_runs(tmp_path / "a", 65000, 65600, 64700, 65300, 65100)
    after = write_runs(
        tmp_path / "b", *[0.8 * rate for rate in (65000, 65600, 64700, 65300, 65100, 65200) * 2], seed=40
    )
    shutil.copy(before / "run1.log", after / "shared.log")
    assert main(["compare", str(before), str(after), "--gate", "3"]) == 1
    said = capsys.readouterr().out
    assert "1 run(s) of B are runs of A" in said
    assert "GATE FAIL" in said


def test_a_data_file_that_is_a_pipe_is_refused_and_one_with_a_byte_order_mark_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nlp_bench.files.PIPE_S", 0.2)
    os.mkfifo(tmp_path / "model.toml")
    words = ["check", "--system", "local", "--launcher", "local", "--offline", "--model"]
    assert main([*words, str(tmp_path / "model.toml")]) == 2
    assert "it is a pipe" in capsys.readouterr().err
    tiny = Path(__file__).resolve().parents[2] / "benchmark/models/tiny.toml"
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf" + tiny.read_bytes())
    assert main([*words, str(tmp_path / "marked.toml")]) == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("memory_gib = -1", "system.gpu.memory_gib: -1 is not within 0.1 to 16384 GiB"),
        ("peak_bf16_tflops = 1e308", "system.gpu.peak_bf16_tflops: 1e+308 is not within 0.001 to 100000 TFLOP/s"),
        ("link_gbit_per_s = 1e-300", "system.network.link_gbit_per_s: 1e-300 is not within 0.01 to 100000 Gbit/s"),
        ("links_per_node = 0", "system.network.links_per_node: 0 is not within 1 to 1024 adapters"),
    ],
)
def test_what_no_machine_has_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    booster = (Path(__file__).resolve().parents[2] / "benchmark/systems/juwels-booster.toml").read_text()
    name = line.split(" ", maxsplit=1)[0]
    lines = [line if old.startswith(f"{name} ") else old for old in booster.splitlines()]
    (tmp_path / "odd.toml").write_text("\n".join(lines).replace('name = "juwels-booster"', 'name = "odd"'))
    assert main(["plan", "--model", "13", "--system", str(tmp_path / "odd.toml"), "--nodes", "8"]) == 2
    assert said in capsys.readouterr().err


def test_plan_replaces_no_file_of_its_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, points = tmp_path / "mine", tmp_path / "points.csv"
    plan = ["plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8"]
    published = "reports/reference/published_points/points.csv"
    points.write_text("\n".join((Path(__file__).resolve().parents[2] / published).read_text().splitlines()[:3]))
    for option in ("--output", "--emit-jube", "--plot"):
        path = mine.with_suffix(".svg")
        path.write_text("precious")
        assert main([*plan, option, str(path)]) == 2
        assert f"{option} {path} exists; name another file, or give --overwrite" in capsys.readouterr().err
        assert path.read_text() == "precious"
        assert main([*plan, option, str(path), "--overwrite"]) == 0
        assert path.read_text() != "precious"
    os.mkfifo(tmp_path / "pipe.svg")
    for option in ("--output", "--emit-jube", "--plot"):
        assert main([*plan, option, str(tmp_path / "pipe.svg"), "--overwrite"]) == 2
        assert f"{option} {tmp_path}/pipe.svg is a pipe, which a file would replace" in capsys.readouterr().err
    assert (tmp_path / "pipe.svg").is_fifo()
    predict = ["plan", "predict", str(points), "--output", str(tmp_path / "mine.csv")]
    for _ in range(2):  # the second time over its own
        assert main(predict) == 0
    assert main([*predict[:-1], str(points)]) == 2
    for verb in ("calibrate", "learn"):
        words = ["--from", "nowhere.json"] if verb == "calibrate" else ["nowhere"]
        mine.with_suffix(".toml").write_text("precious = 1")
        capsys.readouterr()
        assert main(["plan", verb, *words, "--output", str(mine.with_suffix(".toml"))]) == 2
        assert f"{mine}.toml exists; name another file" in capsys.readouterr().err


def test_a_rehearsal_of_more_gpus_than_any_machine_has_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rehearse", "--model", "175", "--system", "juwels-booster", "--tp", "8", "--pp", "8", "--gas", "1"]
    assert main([*words, "--nodes", "1000000"]) == 2
    assert "4000000 GPUs in all are more than the 1048576" in capsys.readouterr().err


def test_a_long_rehearsal_says_what_takes_so_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nlp_bench.files.PATIENCE_S", 0.001)
    assert main(["rehearse", "--model", "tiny", "--system", "local", "--nodes", "1"]) == 0
    assert "each makes the process groups of all" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--output", ""), ("--output=",)])
def test_an_empty_path_is_not_the_current_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_text(published_log())
    assert main(["report", "a.log", *SIZES, *words]) == 2
    assert "--output: it is empty" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a.log"]
    assert main(["verify", "a.log", "--nonce", ""]) == 2
    assert "--nonce: it is empty" in capsys.readouterr().err


def test_of_a_refused_log_no_attempt_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = write_log(tmp_path / "a.log", 65000).read_text().splitlines()
    path = tmp_path / "reversed.log"
    path.write_text("\n".join(reversed(lines)))
    assert main(["report", str(path), *SIZES, "--format", "json"]) == 1
    reasons = " ".join(json.loads(capsys.readouterr().out)["runs"][0]["reasons"])
    assert "the lines of this log stand newest first" in reasons
    assert "is measured" not in reasons


@pytest.mark.parametrize(("left_out", "said"), [((), "with nothing left out"), ((-6, -5), "without the 2 lines that are missing"), ((-6,), "without the 1 line that is missing")])  # fmt: skip
def test_what_is_missing_is_no_part_of_the_sustained_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left_out: tuple[int, ...], said: str
) -> None:
    lines = write_log(tmp_path / "a.log", 65000).read_text().splitlines(keepends=True)
    (tmp_path / "a.log").write_text(
        "".join(line for number, line in enumerate(lines) if number - len(lines) not in left_out)
    )
    assert main(["report", str(tmp_path / "a.log"), *SIZES]) == 0
    assert f"Sustained, {said} from iterations" in capsys.readouterr().out


def test_a_pattern_that_hangs_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("iteration 111111111111111111111111 y\n" * 40)
    program = (
        "import sys; from nlp_bench.inputs import read; read.SLOW_S = 0.3;"
        "from nlp_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    pattern = r"(?P<iteration>(\d+)+)+ (?P<elapsed_ms>x)$"
    words = [sys.executable, "-c", program, "report", str(tmp_path / "a.log"), "--pattern", pattern]
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert running.stderr
    with running:
        assert "a.log: still searching for --pattern '(?P<iteration>" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
    assert running.returncode == 130


def test_a_folder_as_standard_input_is_a_sentence(tmp_path: Path) -> None:
    command = Path(__file__).resolve().parents[2] / "benchmark/env/nlp-bench"
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        done = subprocess.run(
            [command, "report", "-"], stdin=folder, capture_output=True, text=True, check=False, timeout=60
        )
    finally:
        os.close(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nlp-bench: error: standard input is a folder")


@contextmanager
def training(
    folder: Path, mode: str, after: str = "iteration        2/", *before: str
) -> Iterator["subprocess.Popen[str]"]:
    """Train on this machine by `nlp-bench submit`, and go on once job.out holds `after`."""
    record = stand_in.stub_run(mode, launcher="local").write(folder)
    words = [*before, sys.executable, "-m", "nlp_bench", *stand_in.submit(record, folder / "run")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
    environment = {**kept, "NLP_BENCH_VENV": sys.prefix, "NLP_BENCH_ROOT": str(ROOT), "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as submit:
        end = time.monotonic() + 60
        while after not in ((folder / "run/job.out").read_text() if (folder / "run/job.out").exists() else ""):
            assert submit.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        yield submit


def outcome_of(run_dir: Path) -> tuple[str, str]:
    ended = json.loads((run_dir / "outcome.json").read_text())
    return ended["outcome"], "; ".join(ended["reasons"])


@pytest.mark.parametrize(("name", "outcome"), [("QUIT", "CANCELLED"), ("ALRM", "TIMEOUT"), ("USR1", "TIMEOUT")])
def test_a_signal_to_submit_ends_the_run_with_a_word(tmp_path: Path, name: str, outcome: str) -> None:
    with training(tmp_path, "hang") as submit:
        submit.send_signal(getattr(signal, f"SIG{name}"))
        said, talk = submit.communicate(timeout=60)
    assert said.startswith(f"{outcome}: ")
    assert outcome_of(tmp_path / "run")[0] == outcome
    assert name == "QUIT" or f"signal SIG{name}: the run is told that its time is nearly over" in talk


def test_a_hang_up_that_is_ignored_ends_nothing(tmp_path: Path) -> None:
    with training(tmp_path, "slow 1", "iteration        1/", "nohup") as submit:
        submit.send_signal(signal.SIGHUP)
        submit.communicate(timeout=60)
    assert outcome_of(tmp_path / "run") == ("VALID", "")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_log_that_is_removed_while_the_run_trains_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_replaced: bool
) -> None:
    with training(tmp_path, "slow 1", after="iteration        1/") as submit:
        (tmp_path / "run/job.out").unlink()
        if is_replaced:
            (tmp_path / "run/job.out").touch()
        submit.communicate(timeout=60)
    word, reasons = outcome_of(tmp_path / "run")
    assert word == "INCOMPLETE"
    assert ("removed and replaced" if is_replaced else "job.out is gone") in reasons
    assert main(["report", str(tmp_path / "run")]) == 1
    assert "keep programs that clean up or rotate logs away" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["run.json", "command.txt", "environment.json", "submit.job"])
def test_a_folder_with_files_of_somebody_else_is_no_run_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("nlp_bench.launch.folder.preflight", lambda *_: None)
    record = stand_in.stub_run("ok", launcher="local").write(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    (own / name).write_text("precious")
    (own / ".lock").touch()
    assert main(stand_in.submit(record, own)) == 2
    assert f"{own} holds {name}, which is of no run that was submitted there" in capsys.readouterr().err
    assert (own / name).read_text() == "precious"


@pytest.mark.parametrize("place", ["/", "checkout"])
def test_a_root_is_no_run_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("nlp_bench.launch.folder.preflight", lambda *_: None)
    record = stand_in.stub_run("ok", launcher="local").write(tmp_path)
    (tmp_path / "checkout/.git").mkdir(parents=True)
    assert main(stand_in.submit(record, tmp_path / place)) == 2
    assert "is the root of " in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "checkout").iterdir()) == [".git"]


def test_an_edited_run_is_told_to_be_put_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_our_run(tmp_path / "run")
    seal_run(folder)
    (folder / "run.json").write_text((folder / "run.json").read_text().replace("{", "{ ", 1))
    assert main(["report", str(folder)]) == 1
    said = capsys.readouterr().err
    assert "put the original of the file that is named back" in said
    assert "precision" not in said


def test_a_bundle_of_a_run_that_goes_on_proves_no_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_our_run(tmp_path / "run")
    (folder / "outcome.json").unlink()
    assert main(["bundle", str(folder), "--output", str(tmp_path / "evidence")]) == 0
    talk = capsys.readouterr().err
    assert "1 of 1 run(s) have not ended, or left no record of it" in talk
    assert "proves how they ended" not in talk


def test_an_earlier_bundle_below_a_run_is_left_out_and_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_our_run(tmp_path / "run")
    assert main(["bundle", str(folder), "--output", str(folder / "first")]) == 0
    assert main(["bundle", str(folder), "--output", str(tmp_path / "second")]) == 0
    assert "a bundle that was made before" in capsys.readouterr().err
    assert not list(tmp_path.glob("second/runs/*/first"))
    assert len(json.loads((tmp_path / "second/manifest.json").read_text())["runs"]) == 1
    assert main(["report", str(tmp_path / "second"), "--format", "json"]) == 0
    assert [run["outcome"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["VALID"]
