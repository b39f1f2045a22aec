"""How a run is followed at a site: records that are late or lost, machines with other names, clocks."""

import contextlib
import dataclasses
import datetime as dt
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command import Cli
from support.following import Says, ending_of, program, rest_for
from support.ours import write_our_run
from support.published import published_log, write_run

from faults.stand_in import stub_run
from nlp_bench.config.run import Limits
from nlp_bench.config.scheduler import Job, State
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.launch import lock, once
from nlp_bench.launch.end.log_facts import ScriptRecord, write_record
from nlp_bench.launch.follow import sync as syncing
from nlp_bench.launch.follow.runs import continue_jube
from nlp_bench.launch.follow.sync import sync
from nlp_bench.launch.scheduler import slurm
from nlp_bench.launch.scheduler.slurm import Slurm
from nlp_bench.launch.submission import Submission, machine_identity
from nlp_bench.outcome import Outcome
from nlp_bench.programs import Answer

LINE = "[default0]: iteration {:8d}/       4 | consumed samples: 480 | elapsed time per iteration (s): 0.1000 | lm loss: 1.0E+00 |\n"
WHOLE = "Submitted batch job 7\n" + "".join(map(LINE.format, range(1, 5))) + " training finished: 4 iterations\n"
HALF = WHOLE[: WHOLE.index("3/")]


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> Path:
    """A run of 50 iterations whose job 7 Slurm calls COMPLETED, as a login node sees it that sees none of the job's records."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    run = tmp_path / "run"
    run.mkdir()
    stub_run("well").write(run)
    Submission(job_ids=["7"], comment="nlp-bench:1").write(run)
    rest_for(run, 86400)  # it has waited in the queue for a day
    says("COMPLETED", exit_code="0:0")
    return run


def test_a_record_of_the_job_script_is_enough_to_decide(ended: Path) -> None:
    write_record(ended, ScriptRecord(exit_status=0, signal="", job_id="7", restarts=0))
    assert sync(ended)[0]


@pytest.mark.parametrize(
    "job",
    [
        slurm.job("CANCELLED", job_id="7", exit_code="0:15"),
        slurm.job("FAILED", job_id="7", exit_code="0:53", reason="JobLaunchFailure"),
    ],
)
def test_a_job_that_never_started_is_not_waited_for(ended: Path, monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    assert job.state is State.ENDED
    monkeypatch.setattr(Slurm, "query", lambda *_, **__: job)
    assert sync(ended)[0]


def test_a_run_of_jube_of_another_user_is_not_driven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "bench" / "000000"
    run.mkdir(parents=True)
    (run / "configuration.xml").write_text("<jube/>")
    programs = tmp_path / "programs"
    programs.mkdir()
    program(programs, "jube", "touch was-called; echo RUNNING")
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.chdir(tmp_path)
    assert continue_jube(run) == "RUNNING"
    (tmp_path / "was-called").unlink()
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 4711)
    with pytest.raises(
        NlpBenchError, match=r"000000 belongs to .*: jube would run its steps as user \d+; let .* go on"
    ):
        continue_jube(run)
    assert not (tmp_path / "was-called").exists()


def test_the_variables_that_lead_to_no_slurm_are_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    monkeypatch.setenv("SLURM_CLUSTERS", "elsewhere")
    monkeypatch.setenv("SLURM_JWT", "a-secret")
    printed = cli(
        "check", "--model", "tiny", "--launcher", "slurm", "--system", "slurm-sandbox", code=UsageError.exit_code
    ).err
    said = printed
    assert (
        f"; asked by SLURM_CONF={tmp_path / 'none'} SLURM_CLUSTERS=elsewhere SLURM_JWT: unset or correct what" in said
    )
    assert "a-secret" not in said


def test_a_requeued_job_that_waits_shows_no_progress_of_its_earlier_start(ended: Path, says: Says, cli: Cli) -> None:
    line = " iteration        2/       4 | consumed samples: 480 | elapsed time per iteration (s): 0.1000 | lm loss: 1.0E+00 |"
    (ended / "job.out").write_text(f"Submitted batch job 7\n{line}\n")
    for word, shown in (("RUNNING", "iteration 2/4"), ("PENDING", "PENDING (BeginTime)")):
        says(word, reason="BeginTime")
        said = cli("watch", ended, "--once", code=1).err
        assert shown in said
        assert ("iteration" in said) == (word == "RUNNING")


def rows(cli: Cli, *paths: Path) -> list[tuple[str, str]]:
    """Return outcome and reasons of each row of a report on `paths`."""
    runs = cli("report", *paths, "--sequence-length", "2048", "--format", "json", code=None).json["runs"]
    return [(one["outcome"], "; ".join(one["reasons"])) for one in runs]


@pytest.mark.parametrize("record", ["outcome.json", "submit.json", "empty", "closed"])
def test_a_run_whose_run_json_is_not_seen_has_no_number(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    """Its log alone would give one, whatever outcome.json says of it."""
    run = write_run(tmp_path / "run", outcome="INVALID", reasons=["Slurm suspended the job for 60 s"])
    (run / "run.json").unlink()
    (run / "ranks").mkdir()
    (run / "ranks/rank0.log").write_text(published_log())
    if record == "submit.json":
        (run / "outcome.json").unlink()
        (run / "submit.json").write_text(json.dumps({"schema": "nlp-bench/submit/1"}, indent=1))
    elif record == "empty":
        (run / "outcome.json").write_text("")
    elif record == "closed":
        lose(monkeypatch, "outcome.json")
    for path in (run, tmp_path, run / "job.out"):
        ((outcome, why),) = rows(cli, path)
        assert outcome == "UNKNOWN"
        assert "run.json is missing, or not seen from here yet" in why


def test_a_run_without_its_run_json_has_no_number_in_bundle_and_history(tmp_path: Path, cli: Cli) -> None:
    run = write_run(tmp_path / "run", outcome="INVALID")
    (run / "run.json").unlink()
    bundle = tmp_path / "evidence.tar.gz"
    cli("bundle", run, "--output", bundle)
    printed = cli("verify", bundle).out
    assert "runs/001 (" in printed
    assert ": UNKNOWN" in printed
    cli("history", "add", "--file", tmp_path / "h.db", run, code=1)
    assert not (tmp_path / "h.db").exists()


@pytest.mark.parametrize(
    ("seen", "said"), [(None, "job.out"), ("", "the end of job.out"), (HALF, "the end of job.out")]
)
def test_a_log_that_is_not_seen_to_its_end_is_waited_for(ended: Path, cli: Cli, seen: str | None, said: str) -> None:
    if seen is not None:
        (ended / "job.out").write_text(seen)
    for _ in range(2):
        printed = cli("sync", ended, code=None).out
        assert f"; {said} and the job's own records are not visible from here yet; waiting up to 300 s" in printed
    assert not (ended / "outcome.json").exists()
    (ended / "job.out").write_text(WHOLE)
    assert ending_of(sync(ended)).outcome is Outcome.VALID
    assert not list(ended.glob(".ended-without-a-log.*"))


@pytest.mark.parametrize("seen", [None, HALF])
def test_a_log_whose_end_never_comes_is_decided_without_it(ended: Path, seen: str | None) -> None:
    if seen is not None:
        (ended / "job.out").write_text(seen)
    sync(ended)
    (trace,) = ended.glob(".ended-without-a-log.*")
    os.utime(trace, (time.time() - syncing.GONE_S - 60,) * 2)
    ending = ending_of(sync(ended))
    assert ending.outcome is Outcome.INCOMPLETE
    assert ("job.out is gone" in ending.text()) is (seen is None)
    assert not trace.exists()


def test_a_training_that_says_it_is_done_is_not_waited_for(ended: Path) -> None:
    """Its log ends as it should, and lacks iterations for another reason."""
    (ended / "job.out").write_text(HALF + "\n training finished: 2 iterations\n")
    assert ending_of(sync(ended)).outcome is Outcome.INCOMPLETE


def lose(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the file server lose files of this name: they are listed, and cannot be opened."""
    read = Path.open

    def lost(path: Path, *args: str, **options: int) -> object:
        if path.name == name:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return read(path, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", lost)


def test_a_record_that_cannot_be_read_at_the_moment_decides_nothing(
    ended: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """Slurm has forgotten the job long ago: the record of its script is all that says how it ended."""
    (ended / "job.out").write_text(WHOLE)
    write_record(ended, ScriptRecord(exit_status=0, signal="", job_id="7", restarts=0))
    rest_for(ended, 86400)
    says("GONE")
    with monkeypatch.context() as moment:
        lose(moment, "ended.json")
        printed = cli("sync", ended, code=1)
        assert f"cannot read {ended}/ended.json: Stale file handle" in printed.out + printed.err
    assert not (ended / "outcome.json").exists()
    assert ending_of(sync(ended)).outcome is Outcome.VALID


@pytest.mark.parametrize("name", ["run.json", "outcome.json"])
def test_a_record_that_the_file_server_has_lost_has_its_remedy(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run = write_run(tmp_path / "run")
    lose(monkeypatch, name)
    ((outcome, why),) = rows(cli, run)
    assert outcome == "UNKNOWN"
    assert f"cannot read {run}/{name}: Stale file handle; the file server has lost the file: repeat" in why


HERE = machine_identity()


ELSEWHERE = "another-start pid:[4026531836]"


def local_run(run: Path, place: str | None, age_s: float) -> Path:
    """Write a local run of a machine of another name, whose log is `age_s` old."""
    run.mkdir()
    stub_run("well", launcher="local").write(run)
    Submission(script_pid=2**22 + 1, pid=2**22 + 1, host="a1b2c3d4e5f6", place=place).write(run)
    (run / "job.out").write_text(HALF)
    rest_for(run, age_s)
    return run


@pytest.mark.parametrize(("place", "age_s"), [(HERE, 10), (ELSEWHERE, 86400)])
def test_a_dead_run_of_a_machine_that_has_another_name_now_ends(
    tmp_path: Path, cli: Cli, place: str | None, age_s: float
) -> None:
    """A container gets a random name at each start, and a machine may be renamed."""
    run = local_run(tmp_path / "run", place, age_s)
    assert "running on" not in cli("sync", run, code=None).out
    outcome = json.loads((run / "outcome.json").read_text())["outcome"]
    assert outcome == ("FAILED" if place == HERE else "UNKNOWN")


@pytest.mark.parametrize(("place", "age_s"), [(HERE, 86400), (ELSEWHERE, 60), (ELSEWHERE, 86400)])
def test_a_run_of_a_machine_of_another_name_that_goes_on_is_not_ended(
    tmp_path: Path, cli: Cli, place: str | None, age_s: float
) -> None:
    """It is known by the lock of its folder, where that reaches here, and by its log."""
    run = local_run(tmp_path / "run", place, age_s)
    with lock.held(run) if age_s > syncing.ELSEWHERE_S else contextlib.nullcontext():
        found = cli("sync", run, code=None).out
    assert "running on a1b2c3d4e5f6" in found or place == HERE
    assert not (run / "outcome.json").exists()


@pytest.mark.slow
def test_a_training_whose_lock_was_deleted_goes_on(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge of empty files: a look decided UNKNOWN beside the training, and a second one started in its folder."""
    monkeypatch.setenv("NLP_BENCH_VENV", sys.prefix)
    run = local_run(tmp_path / "run", HERE, 10)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(6)", "submit"]) as process:
        while b"submit" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():  # empty while it is started
            time.sleep(0.01)
        record = json.loads((run / "submit.json").read_text())
        (run / "submit.json").write_text(json.dumps({**record, "pid": process.pid}))
        assert "running here" in cli("sync", run, code=None).out
        assert not (run / "outcome.json").exists()
        done = cli("submit", "--run", run / "run.json", "--run-dir", run, code=1)
        assert process.poll() is not None
    assert f"{run} is in use by an earlier submit; waiting for its end" in done.err
    assert done.out.startswith("FAILED: the launcher was killed")
    assert (run / "job.out").read_text() == HALF
    assert (run / ".lock").stat().st_size > 0


def test_a_run_elsewhere_with_long_intervals_is_not_ended_between_two_lines(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the lock does not reach here, the log alone tells: it is no hour late whose lines are an hour apart."""
    monkeypatch.setattr(lock, "is_held", lambda _: None)
    run = local_run(tmp_path / "run", ELSEWHERE, 0)
    (run / "job.out").write_text(HALF.replace("0.1000", "3000.0"))
    rest_for(run, 1.1 * syncing.ELSEWHERE_S)
    assert "running on a1b2c3d4e5f6" in cli("sync", run, code=None).out
    assert not (run / "outcome.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("age_s", "is_refused"), [(60, True), (86400, False)])
def test_a_folder_that_another_machine_trains_in_gets_no_second_training(
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    age_s: float,
    *,
    is_refused: bool,
) -> None:
    """The locks of its file system hold on one node alone, so that the lock is free here."""
    monkeypatch.setenv("NLP_BENCH_VENV", sys.prefix)
    run = local_run(tmp_path / "run", ELSEWHERE, age_s)
    record = (run / "submit.json").read_text()
    # The stand-in of a training does not end well either.
    said = cli("submit", "--run", run / "run.json", "--run-dir", run, code=1 if is_refused else None).err
    refusal = (
        f"{run} is running on a1b2c3d4e5f6 as far as can be seen from here; let it end there, or name a new folder"
    )
    assert (refusal in said) is is_refused, said
    assert ((run / "submit.json").read_text() == record) is is_refused
    assert ((run / "job.out").read_text() == HALF) is is_refused


@pytest.mark.parametrize(("ahead_s", "age_s"), [(86400, 1), (-86400, 7200), (7200, 7200)])
def test_a_job_is_not_cancelled_by_the_clock_of_another_machine(
    ended: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    says: Says,
    ahead_s: int,
    age_s: int,
) -> None:
    """The clock of the machine that looks is a day ahead of the submission's, or behind; the file server's dates the record."""
    dataclasses.replace(stub_run("well"), limits=Limits(max_pending_s=3600)).write(ended)
    at = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=ahead_s)
    Submission(job_ids=["7"], comment=once.new_comment(ended), submitted=at.isoformat()).write(ended)
    rest_for(ended, age_s)
    asked: list[tuple[str, ...]] = []

    def ask(*words: str, **_: object) -> Answer:
        asked.append(words)
        return Answer(0)

    monkeypatch.setattr(slurm, "ask", ask)
    says("PENDING", reason="Resources")
    found, has_waited = cli("sync", ended, code=None).out, ahead_s == age_s
    assert asked == ([("scancel", "--state=PENDING", "7")] if has_waited else [])
    assert ("`scancel 7` was called: it has waited too long" in found) is has_waited


@pytest.mark.parametrize("off_s", [1000, -1000])
def test_a_log_that_grows_is_not_stalled_whatever_its_time_says(
    ended: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, off_s: int
) -> None:
    """The clock of the node that dates it is ahead, or behind."""
    (ended / "job.out").write_text("")
    lines = [LINE.format(number) for number in (1, 2, 3)]

    def grows(_: float) -> None:
        with (ended / "job.out").open("a") as log:
            log.write(lines.pop(0))
        os.utime(ended / "job.out", (time.time() + off_s,) * 2)

    monkeypatch.setattr(Slurm, "query", lambda *_, **__: slurm.job("RUNNING", job_id="7") if lines else done)
    done = slurm.job("CANCELLED", job_id="7")
    monkeypatch.setattr("nlp_bench.launch.follow.watch.time.sleep", grows)
    grows(0)
    said = cli("watch", ended, code=None).err
    (first, second) = [line for line in said.splitlines() if "iteration" in line and "/4" in line][:2]
    assert "iteration 1/4" in first
    assert "STALLED" in first  # nothing else is known
    assert "iteration 2/4" in second
    assert "STALLED" not in second


@pytest.mark.parametrize(
    ("old", "new", "remedy"),
    [
        (
            "unix time: 18000002",
            "unix time: 18000402",
            "the time of day of its lines and the times that they log disagree",
        ),
        ("loss: 7.000000E+00", "loss: nan", "a loss that is not finite asks for another precision"),
    ],
)
def test_an_invalid_run_has_the_remedy_of_its_reason(tmp_path: Path, cli: Cli, old: str, new: str, remedy: str) -> None:
    run = write_our_run(tmp_path / "run")
    (run / "job.out").write_text((run / "job.out").read_text().replace(old, new))
    done = cli("report", run, code=1)
    assert "INVALID" in done.out
    assert f"its number must not be used: {remedy}" in done.out + done.err


def test_logs_beside_somebody_elses_records_are_read(tmp_path: Path, cli: Cli) -> None:
    """A folder of plain logs, and a log that is copied away from its run."""
    (tmp_path / "job.out").write_text(published_log())
    (tmp_path / "outcome.json").write_text('{"outcome": "fine"}')  # of another program
    run = write_our_run(tmp_path / "run")
    shutil.copy(run / "job.out", tmp_path / "copy.log")
    shutil.rmtree(run)
    for path in (tmp_path, tmp_path / "job.out"):
        assert {outcome for outcome, _ in rows(cli, path)} <= {"MEASURED", "VALID"}


SNAPSHOTS = (
    ".snapshot/hourly.0",
    ".snapshots/1",
    ".zfs/snapshot/a",
    ".Trash-1000/files",
    "#recycle",
    "@Recycle/a",
    "@eaDir/a.log",
)


@pytest.mark.parametrize("place", SNAPSHOTS)
def test_a_snapshot_of_the_file_system_is_no_further_run(ended: Path, cli: Cli, place: str) -> None:
    """It shows a run in progress as it was, can only be read, and would be followed for ever."""
    (ended / "job.out").write_text(WHOLE)
    top = ended.parent
    shutil.copytree(ended, top / place / "run")
    (top / "link").symlink_to(top / place)
    printed = cli("sync", top)
    assert printed.out.count("VALID") == 1
    assert f"passed over: {top / Path(place).parts[0]}: copies of folders, by the file system" in printed.err
    assert f"passed over: {top}/link is a link to {top / place}, copies of folders by the file system" in printed.err
    assert not (top / place / "run/outcome.json").exists()
    shutil.copy(ended / "outcome.json", top / place / "run")
    for named in (top, top / Path(place).parts[0], top / place, top / place / "run"):
        assert len(rows(cli, named)) == 1


def test_logs_in_a_named_snapshot_are_read(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / ".snapshot").mkdir()
    (tmp_path / ".snapshot/a.log").write_text(published_log())
    (tmp_path / "b.log").write_text(published_log())
    assert len(rows(cli, tmp_path / ".snapshot")) == 1
    assert len(rows(cli, tmp_path)) == 1
