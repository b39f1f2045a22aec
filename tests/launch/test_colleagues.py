"""Runs of colleagues, folders that go away, and a JUBE that was killed: each is named with its remedy."""

import errno
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.command import Cli
from support.following import forgets, program, sandbox_run, undecided
from support.ours import seal_run, write_our_run
from support.processes import CHECKOUT, text_of, until
from support.published import write_run
from support.users import ANNA, BERT, GROUP, ROOT, as_user, open_folder, run_as

from faults import stand_in
from nlp_bench import marker
from nlp_bench.cli.main import main
from nlp_bench.config.scheduler import Job
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.folder import take_snapshot
from nlp_bench.launch.follow import runs
from nlp_bench.launch.scheduler import slurm
from nlp_bench.launch.scheduler.slurm import Slurm
from nlp_bench.launch.submission import Submission

__all__ = ["open_folder"]


@pytest.mark.jube
@pytest.mark.skipif(shutil.which("jube") is None, reason="no JUBE on this machine")
def test_jube_goes_on_from_a_step_whose_submit_was_killed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JUBE has a step whose command failed for one that never ends; the step's own job decided how it ended."""
    for name, value in CHECKOUT.items():
        monkeypatch.setenv(name, value)
    file = stand_in.jube_file(tmp_path, point=stand_in.stub_run("hang", launcher="local"))
    jube = subprocess.Popen(["jube", "run", str(file), "--hide-animation"], cwd=tmp_path, stdout=subprocess.DEVNULL)
    work = tmp_path / "runs/000000/000000_train/work"
    until(lambda: "iteration " in text_of(work / "job.out"))
    os.kill(json.loads((work / "submit.json").read_text())["pid"], signal.SIGKILL)
    assert jube.wait(timeout=60) == 0
    until((work / "ready").exists)

    def said(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
        return done.stdout + done.stderr

    watched = said(sys.executable, "-m", "nlp_bench", "watch", "--continue", "--every", "1", "runs")
    assert "JUBE: FINISHED" in watched, watched
    assert "point,FAILED" in said("jube", "result", "-a", "runs", "--id", "0")


def test_the_error_of_jubes_is_removed_where_a_step_has_its_outcome(tmp_path: Path, cli: Cli) -> None:
    step = tmp_path / "runs/000007/000003_train"
    run = write_run(step / "work", outcome="FAILED", exit_status=1)
    (step.parent / "configuration.xml").write_text("")
    for path in (step / "error", tmp_path / "error"):
        path.write_text("")
    Submission().write(run)
    said = cli("sync", tmp_path / "runs").err
    assert (
        f"{step}/error of JUBE is removed: the step has its outcome now; next: jube continue {tmp_path}/runs --id 7"
        in said
    )
    assert not (step / "error").exists()
    assert (tmp_path / "error").exists()


def test_what_jube_has_for_failed_stays_without_an_outcome(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = tmp_path / "runs/000000/000003_train"
    run = write_our_run(step / "work")
    (step.parent / "configuration.xml").write_text("")
    (step / "error").write_text("")
    (run / "outcome.json").unlink()
    Submission(comment="c", job_ids=["7"]).write(run)
    monkeypatch.setattr(Slurm, "query", lambda *_, **__: slurm.job("RUNNING", job_id="7"))
    assert main(["sync", str(tmp_path)]) == 0
    assert (step / "error").exists()
    monkeypatch.setattr(runs, "_jube", lambda *_: "000000 ERROR")
    said = cli("watch", "--once", "--continue", tmp_path / "runs", code=1).err
    assert f"000000: JUBE: ERROR; why: cat {step}/error; once that is mended: rm {step}/error; jube continue" in said


def test_commands_to_type_hold_a_folder_whose_name_has_a_blank(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = tmp_path / "night runs"
    step = above / "000000/000003_train"
    Submission().write(write_our_run(step / "work"))
    (step.parent / "configuration.xml").write_text("")
    monkeypatch.setattr(runs, "_jube", lambda *_: "000000 FINISHED")
    said = cli("watch", "--once", "--continue", above).err
    assert f"000000: JUBE: FINISHED; next: jube result -a '{above}' --id 0" in said
    said = cli("history", "list", "--file", above / "none.sqlite3", code=2).err
    assert f"fill it with: nlp-bench history add PATH --file '{above}/none.sqlite3'" in said


@pytest.mark.slow
def test_a_colleagues_report_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """In a folder that a group may write to, everybody may replace everybody's files."""
    words = ["report", str(write_our_run(tmp_path / "run")), "--output", str(tmp_path / "latest")]
    assert main(words) == main(words) == 0
    real = Path.lstat
    monkeypatch.setattr(os, "geteuid", lambda: 4712)
    assert main(words) == 0  # on a file system that gives everything one owner: a new file of this user's has it too
    monkeypatch.setattr(Path, "lstat", lambda self: os.stat_result([*real(self)[:4], 4711, *real(self)[5:10]]))
    before = (tmp_path / "latest/report.csv").stat().st_ino
    said = cli(*words, code=2).err
    assert "loss.png there belongs to user 4711 and would be replaced; move it, or give another folder" in said
    assert (tmp_path / "latest/report.csv").stat().st_ino == before
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(words) == 0


def test_a_log_that_was_packed_behind_its_run_is_named(tmp_path: Path, cli: Cli) -> None:
    """Cleaning jobs of a site pack what is old; a VALID result is not replaced by what follows from no log."""
    run = write_our_run(tmp_path / "run")
    seal_run(run)
    assert main(["measure", str(run)]) == 0
    log, result = run / "job.out", (run / "result.json").read_text()
    (run / "job.out.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    said = f"job.out is missing, and job.out.gz lies beside it; unpack that and repeat: gunzip -k {run}/job.out.gz"
    for words in (
        ["measure"],
        ["bundle", "--output", str(tmp_path / "e.tar.gz")],
        ["report"],
        ["report", f"{run}/job.out.gz"],
    ):
        printed = cli(*(words if words[-1].endswith("job.out.gz") else [*words, str(run)]), code=1)
        assert said in " ".join((printed.out + printed.err).split())
    assert (run / "result.json").read_text() == result
    assert not (tmp_path / "e.tar.gz").exists()


def test_a_run_whose_log_was_packed_before_its_end_was_decided_is_not_decided_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    undecided(tmp_path)
    (tmp_path / "job.out.xz").write_bytes(b"\xfd7zXZ")
    monkeypatch.setattr(Slurm, "query", lambda *_, **__: slurm.job("COMPLETED", job_id="7"))
    said = cli("sync", tmp_path, code=1).err
    assert f"job.out.xz lies beside it; unpack that and repeat: unxz -k {tmp_path}/job.out.xz" in said
    assert not (tmp_path / "outcome.json").exists()


@pytest.mark.slow
def test_a_colleagues_record_that_may_not_be_read_is_named(open_folder: Path) -> None:
    """A sync of the same group under umask 077 decides, and keeps the record to itself."""
    run = write_our_run(open_folder / "run")
    Submission(comment="c", job_ids=["7"]).write(run)
    marker.write_marker(run)
    for path in (run, *run.iterdir()):
        os.chown(path, ANNA, GROUP) if os.geteuid() == 0 else None
    for name in ("outcome.json", "ready"):
        os.chown(run / name, BERT, GROUP) if os.geteuid() == 0 else None
        (run / name).chmod(0o600)

    def said(*words: str) -> str:
        done = run_as(ANNA, open_folder, *words, str(run))
        assert done.returncode == 1, done
        assert "Errno" not in done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).split())

    for words in (["sync"], ["watch", "--once"], ["measure"], ["report"]):
        found = said(*words)
        assert f"belongs to user {BERT} and may not be read by you: let user {BERT} type chmod g+r {run}/" in found
        assert f"rm -f {run}/outcome.json {run}/ready; nlp-bench sync {run}" in found
        assert "run it again" not in found
    (run / "ready").chmod(0o644)
    assert f"{run}/outcome.json belongs to user {BERT}" in said("sync")


@pytest.mark.parametrize("private", ["none", "jobs,usage"])
def test_a_job_that_slurm_hides_from_colleagues_is_not_taken_for_lost(open_folder: Path, private: str) -> None:
    """PrivateData=jobs: a colleague's sync ended the run of a job that waited, which then trained nothing."""
    run = undecided(open_folder / "run")
    os.utime(run / "submit.json", (0, 0))
    for path in (run, *run.iterdir()):
        os.chown(path, ANNA, GROUP) if os.geteuid() == 0 else None
        path.chmod(0o2770 if path == run else 0o660)
    (tools := open_folder / "tools").mkdir()
    forgets(tools, "echo 'JobID|State|ExitCode|Submit|WorkDir'")
    known = (tools / "scontrol").read_text().partition("\n")[2]
    program(tools, "scontrol", f"[[ $2 != config ]] || {{ echo 'PrivateData = {private}'; exit; }}; {known}")
    done = run_as(BERT, open_folder, "sync", "run", PATH=f"{tools}:{os.environ['PATH']}")
    is_hidden = private != "none"
    assert (f"Slurm shows job 7 to user {ANNA} alone" in done.stdout) == is_hidden, done
    assert (run / "outcome.json").exists() != is_hidden


@pytest.mark.slow
def test_the_doctor_says_that_a_folder_for_runs_is_closed(open_folder: Path) -> None:
    (open_folder / "closed").mkdir(mode=0o700)
    runs = open_folder / "closed/runs"
    words = ("doctor", "--system", "local", "--checks", "writable,disk", "--runs", str(runs))
    done = run_as(ANNA, open_folder, *words, groups=())
    assert f"{open_folder}/closed: cannot create a file" in done.stdout
    assert "broke" not in done.stdout


def test_a_snapshot_that_finds_no_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota of files, or a file system without free inodes: it was a list of Python's, cut in the middle."""
    mkdir = os.mkdir

    def full(path: str | Path, *words: int, **options: int) -> None:
        if ".snapshot." in str(path) and "/src/nlp_bench/" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        mkdir(path, *words, **options)

    monkeypatch.setattr(os, "mkdir", full)
    said = (
        f"--snapshot-code: cannot write {tmp_path}/snapshot: No space left on device; the file system is full: make room "
        "(`df -h`, `df -i`) and repeat; nothing was submitted"
    )
    with pytest.raises(NlpBenchError, match=f"^{re.escape(said)}$"):
        take_snapshot(sandbox_run(), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("words", [["sync"], ["watch", "--once"], ["measure"]])
def test_runs_are_followed_where_a_login_node_allows_no_more_processes(open_folder: Path, words: list[str]) -> None:
    """OpenBLAS starts a thread for each core, and interrupts the process where it may not."""
    run, uid = write_our_run(open_folder / "run"), 20077
    seal_run(run)
    for path in (run, *run.iterdir()):
        os.chown(path, uid, GROUP) if os.geteuid() == 0 else None
    done = subprocess.run(
        [*as_user(uid, GROUP), "bash", "-c", 'ulimit -u 1; exec "$@"', "bash", sys.executable, "-m", "nlp_bench", *words, str(run)],
        cwd=open_folder, capture_output=True, text=True, check=False, timeout=100,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "OpenBLAS" not in done.stderr


def test_the_one_thread_of_numpy_is_not_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that sync submits again, or a training of JUBE's, would compute with it."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    run = write_our_run(tmp_path / "run")
    seal_run(run)
    for words in (["sync"], ["watch", "--once"]):
        assert main([*words, str(run)]) == 0
        assert "OPENBLAS_NUM_THREADS" not in os.environ


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["watch", "sync"])
def test_a_folder_that_a_file_server_hides_for_a_moment_is_followed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, verb: str
) -> None:
    run = undecided(tmp_path / "run")
    asked = list[object]()

    def query(*words: object, **_: object) -> Job:
        asked.append(words)
        if len(asked) == 1:
            run.rename(tmp_path / "hidden")
            threading.Timer(1.0, (tmp_path / "hidden").rename, [run]).start()
        return slurm.job("PENDING" if len(asked) < 3 else "TIMEOUT", job_id="7")

    monkeypatch.setattr(Slurm, "query", query)
    words = ["watch", "--every", "0.01"] if verb == "watch" else ["sync", "--wait", "--every", "0.01"]
    done = cli(*words, run, code=None)
    assert "TIMEOUT" in done.out + done.err
    assert "gone" not in done.err


def test_a_folder_that_the_file_system_refuses_for_a_moment_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower ended where a Kerberos ticket had expired: nobody noticed the end of its job."""

    def refuses(_: Path) -> bool:
        raise OSError(errno.EKEYEXPIRED, "Key has expired")

    monkeypatch.setattr(runs, "UNSEEN_S", 0.0)
    monkeypatch.setattr(Path, "is_dir", refuses)
    assert runs.gone([tmp_path]) == set()


@pytest.mark.slow
def test_a_watched_folder_that_goes_away_ends_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    run = undecided(tmp_path / "run")

    def query(*_: object, **__: object) -> Job:
        run.rename(tmp_path / "archived")
        return slurm.job("PENDING", job_id="7")

    monkeypatch.setattr(runs, "UNSEEN_S", 0.5)
    monkeypatch.setattr(Slurm, "query", query)
    said = cli("watch", "--every", "0.01", run, code=1).err
    assert f"{run} is gone or was moved" in said
    assert "no submitted run below" not in said


@pytest.mark.slow
def test_a_run_that_jube_removes_ends_the_watch_that_drives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """It said that the run was gone, and waited for JUBE's RUNNING of before for ever."""
    run, tools = tmp_path / "bench/000000", tmp_path / "tools"
    undecided(run / "000003_train/work")
    (run / "configuration.xml").write_text("<jube/>")
    tools.mkdir()
    program(tools, "jube", "echo RUNNING")
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    asked = list[object]()

    def query(*words: object, **_: object) -> Job:
        asked.append(words)
        if len(asked) == 2:
            shutil.rmtree(run)
        return slurm.job("PENDING", job_id="7")

    monkeypatch.setattr(runs, "UNSEEN_S", 0.5)
    monkeypatch.setattr(Slurm, "query", query)
    said = cli("watch", "--continue", "--every", "0.01", "--max-hours", "0.003", tmp_path / "bench", code=1).err
    assert "is gone or was moved" in said


def test_measure_of_a_folder_that_can_only_be_read_names_report(open_folder: Path) -> None:
    run = write_our_run(open_folder / "run")
    done = run_as(ANNA, open_folder, "measure", str(run), groups=())
    assert done.returncode == 1
    assert f"the same numbers without that file: nlp-bench report {run}\n" in done.stderr
    assert "name a folder of another one" not in done.stderr


def test_a_closed_run_that_is_to_be_measured_is_said_to_be_closed_and_whose_it_is(open_folder: Path) -> None:
    """`report` cannot read it either: it is no other way to its numbers."""
    run = write_our_run(open_folder / "run")
    os.chown(run, BERT, BERT) if os.geteuid() == 0 else None
    run.chmod(0o700)
    done = run_as(ANNA, open_folder, "measure", str(run), groups=())
    assert done.returncode == 1
    assert f"cannot read {run}: Permission denied; it belongs to user {BERT}, who may measure it or" in done.stderr
    assert "nlp-bench report" not in done.stderr
