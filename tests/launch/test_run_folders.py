"""Which folder a run may begin in, and what a signal or a removed log does to a local run."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest
from support.command import Cli
from support.following import offline
from support.ours import write_our_run
from support.processes import NLP_BENCH, ROOT, surroundings, text_of, until

from faults import stand_in
from faults.stand_in import stub_run
from nlp_bench.config import catalog
from nlp_bench.errors import UsageError
from nlp_bench.launch.folder import preflight, run_folder
from nlp_bench.launch.submission import Submission


@pytest.mark.parametrize("name", ["job.out", "job.err", "sync.log", "submit.json", ".lock"])
def test_a_link_in_a_folder_of_somebody_else_is_not_written_through(tmp_path: Path, name: str) -> None:
    run, folder = stub_run("well"), tmp_path / "run"
    folder.mkdir()
    (tmp_path / "precious").write_text("mine")
    (folder / name).symlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match=rf"--run-dir: .*{name} is a link, .* remove it, or name a new folder"):
        run_folder(tmp_path, run, folder, recorded=None)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UsageError, match=rf"--run-dir: .*{name} is no regular file"):
        run_folder(tmp_path, run, folder, recorded=None)


def test_a_log_that_lies_there_is_no_log_of_a_new_run(tmp_path: Path) -> None:
    run, folder = stub_run("well"), tmp_path / "run"
    folder.mkdir()
    (folder / "stdout").write_text("JUBE's own")
    (folder / "job.out").write_text("iteration 1/")
    with pytest.raises(
        UsageError, match=r"holds job\.out, the log of a run that was not submitted there.*a new folder"
    ):
        run_folder(tmp_path, run, folder, recorded=None)
    run.write(folder)
    Submission(job_ids=["7"], comment="nlp-bench:1").write(folder)
    assert run_folder(tmp_path, run, folder, recorded=None) == folder  # submitted again: a retry, or what was cut off
    (folder / "job.out").unlink()
    (folder / "submit.json").unlink()
    assert run_folder(tmp_path, run, folder, recorded=None) == folder


@contextmanager
def training(
    folder: Path, mode: str, after: str = "iteration        2/", *before: str
) -> Iterator["subprocess.Popen[str]"]:
    """Train on this machine by `nlp-bench submit`, and go on once job.out holds `after`."""
    record = stand_in.stub_run(mode, launcher="local").write(folder)
    words = [*before, *NLP_BENCH, *stand_in.submit(record, folder / "run")]
    with subprocess.Popen(
        words, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as submit:
        until(lambda: after in text_of(folder / "run/job.out") or submit.poll() is not None)
        assert submit.poll() is None
        yield submit


def outcome_of(run_dir: Path) -> tuple[str, str]:
    ended = json.loads((run_dir / "outcome.json").read_text())
    return ended["outcome"], "; ".join(ended["reasons"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "outcome"), [("QUIT", "CANCELLED"), ("ALRM", "TIMEOUT"), ("USR1", "TIMEOUT")])
def test_a_signal_to_submit_ends_the_run_with_a_word(tmp_path: Path, name: str, outcome: str) -> None:
    with training(tmp_path, "hang") as submit:
        submit.send_signal(getattr(signal, f"SIG{name}"))
        said, talk = submit.communicate(timeout=60)
    assert said.startswith(f"{outcome}: ")
    assert outcome_of(tmp_path / "run")[0] == outcome
    assert name == "QUIT" or f"signal SIG{name}: the run is told that its time is nearly over" in talk


@pytest.mark.slow
def test_a_hang_up_that_is_ignored_ends_nothing(tmp_path: Path) -> None:
    with training(tmp_path, "slow 1", "iteration        1/", "nohup") as submit:
        submit.send_signal(signal.SIGHUP)
        submit.communicate(timeout=60)
    assert outcome_of(tmp_path / "run") == ("VALID", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("rm job.out", "job.out is gone"),
        ("rm job.out; touch job.out", "removed and replaced"),
        # The program that trains here has no torchrun, which keeps what each rank prints.
        ("sed -i s/x/x/ job.out; mkdir -p ranks/a/0; echo ' iteration        4/       4 |' > ranks/a/0/stdout.log", "stdout.log goes on to iteration 4: job.out was replaced (by an editor, sed -i), or cut, "),
    ],
)  # fmt: skip
def test_a_log_that_is_removed_while_the_run_trains_is_said(tmp_path: Path, cli: Cli, how: str, said: str) -> None:
    with training(tmp_path, "slow 1", after="iteration        1/") as submit:
        subprocess.run(["bash", "-c", how], cwd=tmp_path / "run", check=True)
        submit.communicate(timeout=60)
    word, reasons = outcome_of(tmp_path / "run")
    assert word == "INCOMPLETE"
    assert said in reasons
    assert "keep programs that clean up or rotate logs away" in cli("report", tmp_path / "run", code=1).err


@pytest.mark.parametrize("name", ["run.json", "command.txt", "environment.json", "submit.job"])
def test_a_folder_with_files_of_somebody_else_is_no_run_folder(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("nlp_bench.launch.folder.preflight", lambda *_: None)
    record = stand_in.stub_run("ok", launcher="local").write(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    (own / name).write_text("precious")
    (own / ".lock").touch()
    said = cli(*stand_in.submit(record, own), code=2).err
    assert f"{own} holds {name}, which is of no run that was submitted there" in said
    assert (own / name).read_text() == "precious"


@pytest.mark.parametrize("place", ["/", "checkout"])
def test_a_root_is_no_run_folder(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr("nlp_bench.launch.folder.preflight", lambda *_: None)
    record = stand_in.stub_run("ok", launcher="local").write(tmp_path)
    (tmp_path / "checkout/.git").mkdir(parents=True)
    assert "is the root of " in cli(*stand_in.submit(record, tmp_path / place), code=2).err
    assert sorted(path.name for path in (tmp_path / "checkout").iterdir()) == [".git"]


def test_an_environment_of_other_pins_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a git pull that changed them; doctor alone said so."""
    monkeypatch.setenv("NLP_BENCH_VENV", sys.prefix)
    (tmp_path / "pins").write_text("numpy==0.1\n")
    monkeypatch.setattr(catalog, "part", lambda _: tmp_path / "pins")
    preflight(offline("tiny", "local", data_path="mock"), ROOT, None)
    said = f"warning: {os.path.realpath(sys.prefix)} has other versions than the pins, as before a git pull or after a pip install by hand: numpy {metadata.version('numpy')}, pinned is 0.1; renew it"
    assert said in capsys.readouterr().err


def test_a_runs_own_folders_hold_no_other_run(tmp_path: Path, cli: Cli) -> None:
    """Another user's `ranks/` may be closed: it is not searched, so it is no row that was refused."""
    run = write_our_run(tmp_path / "run")
    for name in ("ranks", "machine", "snapshot"):
        write_our_run(run / name / "inner")
    assert [one["source"] for one in json.loads(cli("report", tmp_path, "--format", "json").out)["runs"]] == [str(run)]


def test_ranks_that_are_started_by_hand_replace_no_record_of_an_ended_run(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    stub_run("well", launcher="local").write(folder)
    (folder / "outcome.json").write_text("{}")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert f"a new run of the same: nlp-bench submit --run {folder}/run.json" in cli("launch", folder, code=1).err
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_run_that_has_ended_is_not_trained_again_and_says_so(tmp_path: Path, cli: Cli) -> None:
    """A finished folder was copied for another run of the same: VALID came at once, as if it had been trained."""
    folder = write_our_run(tmp_path / "copy")
    done = cli("submit", "--run", folder / "run.json", "--run-dir", folder)
    assert done.out.startswith("VALID")
    assert done.err.startswith("nlp-bench: this run ended at 2026-01-01T00:00:00+00:00; nothing was started\n")


@pytest.mark.slow
def test_the_same_day_is_run_again_and_both_runs_stay(tmp_path: Path) -> None:
    """The recipe of docs/nightly.md names the folder by the day; a link to it stays one."""
    record = stand_in.stub_run("ok", launcher="local").write(tmp_path)
    day = tmp_path / "2026-03-10"
    (tmp_path / "scratch").mkdir()
    day.symlink_to(tmp_path / "scratch")
    for number, words in enumerate(([], ["--again"], ["--again"])):
        done = subprocess.run(
            [*NLP_BENCH, *stand_in.submit(record, day, *words)],
            env=surroundings(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.startswith("VALID"), done
        kept = [tmp_path / f"scratch.{one}" for one in range(1, number + 1)]
        assert all((folder / "outcome.json").is_file() for folder in (day, *kept))
    assert len({(folder / "outcome.json").read_bytes() for folder in (day, *kept)}) == 3


def test_only_a_finished_run_is_moved_aside(tmp_path: Path) -> None:
    run, folder = stub_run("well"), tmp_path / "run"
    run_folder(tmp_path, run, folder, recorded=None)
    (folder / "mine").touch()
    assert run_folder(tmp_path, run, folder, recorded=None, again=True) == folder
    assert (folder / "mine").exists()
    (folder / "outcome.json").write_text("{}")
    with pytest.raises(UsageError, match=r"a finished run .* give --again to `submit`, which keeps this one as run\.1"):
        run_folder(tmp_path, run, folder, recorded=None)
    assert run_folder(tmp_path, run, folder, recorded=None, again=True) == folder
    assert not list(folder.iterdir())
    assert (tmp_path / "run.1/mine").exists()
    with pytest.raises(UsageError, match="--again: it goes with --run-dir"):
        run_folder(tmp_path, run, None, recorded=None, again=True)
