"""Exactly once: what is recorded before sbatch, how its answers are read, and what a Slurm that is silent does not mean."""

import fcntl
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Cli
from support.following import Site, ending_of, submission_of
from support.processes import until

from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import locked
from nlp_bench.launch import folder, lock, once
from nlp_bench.launch.end.ending import Ending, write_ending
from nlp_bench.launch.follow.sync import sync
from nlp_bench.launch.scheduler import local, slurm
from nlp_bench.launch.submission import Submission, read_submission
from nlp_bench.launch.submit import submit
from nlp_bench.outcome import Outcome

HEADER = "nlp-bench|JOBID|WORK_DIR|nlp-bench|COMMENT"
HANDLE = os.open(os.devnull, os.O_RDONLY)


HandOver = Callable[..., list[str]]


@pytest.fixture
def hand_over(run: Run, run_dir: Path) -> HandOver:
    """Return what hands the run over, as one job or as `jobs`."""
    (run_dir / "submit.job").touch()
    return lambda run=run, jobs=1: submit(run, run_dir / "submit.job", follow=False, jobs=jobs, lock=HANDLE)


@pytest.mark.parametrize(
    "answer",
    [
        "echo 7", "echo '7;cluster'", "echo 'Submitted batch job 7'", "echo 'Submitted batch job 7 on cluster big'", "echo '  7 '",
        "printf '7\\r\\n'", "printf '\\e[32m7\\e[0m\\n'", "echo 'Welcome to node 12'; echo 7", "echo 7; echo 'charged to: project'",
        "echo", "echo 'job 7 is 8'", "printf '\\xff\\n7\\n'", "printf '12\\n7\\n'",
        "echo 'Project balance (core-h):'; echo 12; echo 'job 7 was accepted'", "echo 12; echo 7; exit 1", "echo 'Submitted batch job 7'; exit 1",
    ],
)  # fmt: skip
def test_the_number_is_found_in_whatever_sbatch_prints(
    site: Site, run_dir: Path, hand_over: HandOver, answer: str
) -> None:
    """What cannot be read is looked up by the job's own comment, instead of being called a failure."""
    site.sbatch(f"make; {answer}")
    assert hand_over() == ["7"]
    assert submission_of(run_dir).is_complete


@pytest.mark.parametrize(
    "said",
    ["Batch job submission failed: Socket timed out on send/recv operation", "Unable to contact slurm controller"],
)
def test_a_job_that_sbatch_knows_nothing_of_is_found(site: Site, hand_over: HandOver, said: str) -> None:
    site.sbatch(f"make; echo 'sbatch: error: {said}' >&2; exit 1")
    assert hand_over() == ["7"]


def test_a_late_sbatch_is_looked_up(
    site: Site, hand_over: HandOver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slurm, "SUBMIT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(slurm, "ANSWER_S", 0.1)
    site.sbatch("make; exec sleep 5")
    assert hand_over() == ["7"]
    assert "sbatch has not answered for 0.1 s (Slurm may be full, or slow); waiting" in capsys.readouterr().err


@pytest.mark.parametrize("status", [1, 255])  # sbatch itself ends with 255 where an option is wrong
def test_a_refusal_leaves_nothing(
    site: Site, run_dir: Path, hand_over: HandOver, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """And is said at once: no job is looked for."""
    monkeypatch.setattr(once, "LOOK_S", 3600)
    site.sbatch(f"echo 'sbatch: error: Invalid account or account/partition combination specified' >&2; exit {status}")
    with pytest.raises(NlpBenchError, match=r"refused .*Invalid account or .* specified; nothing was submitted"):
        hand_over()
    assert not (run_dir / "submit.json").exists()


@pytest.mark.parametrize(
    ("said", "last"),
    [
        ("no hours left; this node has no connection to the budget, please contact us", "Batch job submission failed: Unspecified error"),
        ("no hours left; please contact us", "cli_filter plugin terminated with error"),
    ],
)  # fmt: skip
def test_a_refusal_of_the_sites_policy_is_one_whatever_its_words(
    site: Site, run_dir: Path, hand_over: HandOver, said: str, last: str
) -> None:
    site.sbatch(f"echo '98 of 100 hours are used'; printf 'sbatch: error: %s\\n' '{said}' '{last}' >&2; exit 1")
    with pytest.raises(
        NlpBenchError,
        match=r"(?s)refused .*no hours left.*; 98 of 100 hours are used; nothing was submitted; .*type: nlp-bench submit --run ",
    ):
        hand_over()
    assert not (run_dir / "submit.json").exists()


def test_a_run_that_trains_in_the_job_of_its_terminal_says_so(
    site: Site,
    run: Run,
    run_dir: Path,
    hand_over: HandOver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """JupyterHub's job, say: what was asked for by --queue or --mem is not what it has."""
    site.sbatch("exit 1")
    (run_dir / "submit.job").write_text("env > variables")
    shell = {"JOB_ID": "55", "JOB_NUM_NODES": str(run.parallel.nodes), "LABELIO": "1", "CPU_BIND_LIST": "0x1"}
    for name, value in shell.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert hand_over() == []
    known = {line.partition("=")[0] for line in (run_dir / "variables").read_text().splitlines()}
    assert {"SLURM_JOB_ID", "SLURM_OVERLAP"} <= known
    assert not {"SLURM_LABELIO", "SLURM_CPU_BIND_LIST"} & known  # what its own step is bound to, and how it prints
    assert "nlp-bench: trains inside job 55, where this was called" in capsys.readouterr().err
    assert not site.was_called()
    monkeypatch.setenv(
        "SLURM_JOB_NUM_NODES", "9"
    )  # salloc --nodes 9: a second job waited in the queue, and nothing said why
    with pytest.raises(NlpBenchError):
        hand_over()
    assert (
        f"job 55, where this was called, has 9 node(s), the run asks for {run.parallel.nodes}"
        in capsys.readouterr().err
    )
    monkeypatch.delenv("SLURM_JOB_NUM_NODES")  # salloc -N1 : -N1
    monkeypatch.setenv("SLURM_HET_SIZE", "2")
    with pytest.raises(NlpBenchError):
        hand_over()
    assert "job 55, where this was called, has several groups of node(s), the run asks" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("is_in_a_job", [True, False])
def test_of_two_runs_in_one_allocation_or_on_one_machines_gpus_the_second_waits_for_the_first(
    is_in_a_job: bool,
    site: Site,
    run: Run,
    run_dir: Path,
    hand_over: HandOver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Both would have all of its GPUs, and half of their time, without a word in either log."""
    site.sbatch("exit 1")
    ended = tmp_path / "the first has ended"
    (run_dir / "submit.job").write_text(f"test -e '{ended}' && touch '{tmp_path}/began behind it'")
    for name, value in {"JOB_ID": "77", "JOB_NUM_NODES": str(run.parallel.nodes)}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = "job-77"
    if not is_in_a_job:
        run = replace(run, launch=replace(run.launch, launcher="local"), system=replace(run.system, accelerator="cuda"))
        place = str(local.gpus(run))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        first = local.gpus(run)
        assert first != place  # another GPU than all: nobody waits
        named = replace(run, system=replace(run.system, environment={"CUDA_VISIBLE_DEVICES": "$CUDA_VISIBLE_DEVICES"}))
        assert local.gpus(named) == first  # its value, which others see by another name
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert local.gpus(replace(run, system=replace(run.system, accelerator="cpu"))) is None

    def end(release: threading.Event) -> None:
        with lock.alone_in(place, on_wait=lambda: None):
            release.set()
            time.sleep(1.5)
            ended.touch()

    began = threading.Event()
    first = threading.Thread(target=end, args=(began,))
    first.start()
    began.wait(20)
    assert hand_over(run) == []
    first.join()
    assert (tmp_path / "began behind it").exists()
    where = "in it" if is_in_a_job else "on these GPUs, and CUDA_VISIBLE_DEVICES names no others for this one"
    assert capsys.readouterr().err.count(f"another run trains {where}; this one begins when that ends") == 1


def test_the_intent_stands_before_sbatch_is_called(site: Site, run_dir: Path, hand_over: HandOver) -> None:
    site.sbatch(f'cat "{run_dir}/submit.json" >&2; exit 1')
    with pytest.raises(NlpBenchError, match='"comment": "nlp-bench:'):
        hand_over()


@pytest.mark.usefixtures("site")
def test_a_run_that_ends_while_it_is_submitted_again(
    run: Run, run_dir: Path, hand_over: HandOver, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """JUBE was killed and repeats the step; its job ends between the first look at the folder and the lock."""

    def end(*_: object) -> None:
        write_ending(run_dir, Ending(outcome=Outcome.VALID), exit_status=0, job_id="7")

    hand_over()
    monkeypatch.setattr(folder, "preflight", end)
    assert cli("submit", "--run", run.write(run_dir), "--run-dir", run_dir).out == "VALID\n"


def test_cannot_ask_is_not_not_there(site: Site, hand_over: HandOver) -> None:
    site.sbatch("echo 7")
    site.program(
        "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    )
    said = r"Slurm does not answer .*: nothing was submitted; when it answers again, type the same command: nlp-bench submit --run"
    with pytest.raises(NlpBenchError, match=said):
        hand_over()
    assert not site.was_called()  # sbatch was not even called


def test_a_silent_slurm_behind_sbatch_keeps_the_intent(site: Site, run_dir: Path, hand_over: HandOver) -> None:
    silent = f"mv '{site.tools}/silent' '{site.tools}/squeue'"
    site.sbatch(f"make; {silent}; echo 'Unable to contact slurm controller' >&2; exit 1")
    site.program("silent", "exit 1")
    with pytest.raises(NlpBenchError, match="whether the job was queued is not known"):
        hand_over()
    assert submission_of(run_dir).is_intent
    assert sync(run_dir) == (None, "Slurm does not answer")
    site.program("squeue", site.listing)
    assert hand_over() == ["7"]
    assert site.numbers() == ["7"]


def test_sync_completes_a_submission_that_was_cut_off(site: Site, run_dir: Path, hand_over: HandOver) -> None:
    hand_over()
    Submission(parts_left=1, comment=site.comment("7")).write(run_dir)
    assert sync(run_dir) == (None, "submitted")
    assert submission_of(run_dir).is_complete
    Submission(parts_left=1, comment="another").write(run_dir)
    assert "repeat it: nlp-bench submit --run" in sync(run_dir)[1]


def test_a_chain_that_was_cut_off_is_completed_by_the_command_that_is_printed(
    site: Site, run_dir: Path, hand_over: HandOver
) -> None:
    """`submit --run RUN_DIR/run.json --run-dir RUN_DIR` says nothing of a chain: its record does."""
    assert hand_over(jobs=3) == ["7", "8", "9"]
    comment = site.comment("7")
    (site.jobs / "9").unlink()  # killed behind the second sbatch, before its record
    Submission(job_ids=["7"], parts_left=2, comment=comment).write(run_dir)
    site.program("squeue", "exit 1")
    with pytest.raises(NlpBenchError, match=r"nlp-bench submit --run \S+ --run-dir \S+$"):
        hand_over()
    site.program("squeue", site.listing)
    assert hand_over() == ["7", "8", "9"]
    assert site.comment("9") == f"{comment}-3"
    assert submission_of(run_dir).is_complete


@pytest.mark.parametrize("is_known", [True, False])
def test_no_job_is_older_than_its_submission(site: Site, run_dir: Path, hand_over: HandOver, *, is_known: bool) -> None:
    """An intent that was cut off keeps its time where its job is found, and gets a new one where none was made."""
    Submission(parts_left=1, comment="nlp-bench:1", submitted="2026-01-01T00:00:00+00:00").write(run_dir)
    if is_known:
        site.put("7", ".", "nlp-bench:1")
    assert hand_over() == ["7"]
    assert (submission_of(run_dir).submitted == "2026-01-01T00:00:00+00:00") is is_known


def test_a_job_that_slurm_has_forgotten_is_known_by_its_log(site: Site, run_dir: Path, hand_over: HandOver) -> None:
    Submission(parts_left=1, comment="nlp-bench:1").write(run_dir)
    (run_dir / "job.out").write_text("hello\nSubmitted batch job 5\n")
    site.sbatch("exit 1")
    assert hand_over() == ["5"]


def test_an_earlier_folder_of_this_name_is_another_run(site: Site, run_dir: Path, hand_over: HandOver) -> None:
    """Its job has ended: Slurm still knows it, and the new run does not take it for its own."""
    assert once.new_comment(run_dir) != once.new_comment(run_dir)
    site.program("squeue", f'case " $* " in *states=all*) {site.listing} ;; *) echo "{HEADER}" ;; esac')
    first = hand_over()
    (run_dir / "submit.json").unlink()
    assert hand_over() != first


@pytest.mark.slow
def test_the_lock_outlives_a_killed_holder(tmp_path: Path) -> None:
    """A child that has inherited it keeps it; sync sees that, and the next one waits."""
    code = (
        "import subprocess, sys; from pathlib import Path; from nlp_bench.launch import lock\n"
        "with lock.held(Path(sys.argv[1])) as handle:\n"
        "    subprocess.Popen(['sleep', '30'], pass_fds=(handle,)); print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        process.kill()
        process.wait()
        assert lock.is_held(tmp_path)
        calls: list[float] = []

        def waiting() -> None:
            calls.append(time.monotonic())
            os.killpg(process.pid, 9)  # the child goes as well

        with lock.held(tmp_path, on_wait=waiting):
            assert calls
            assert lock.is_held(tmp_path)
    assert not lock.is_held(tmp_path)


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_handle: int, _operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock.held(tmp_path):
        assert "has no locks" in capsys.readouterr().err
    assert lock.is_held(tmp_path) is None


def test_a_lock_daemon_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.files.PATIENCE_S", 0.05)
    monkeypatch.setattr(sys, "stderr", said := io.StringIO())
    calls = itertools.count(1)

    def reported() -> int:
        return said.getvalue().count("waiting for the file system to answer for the lock")

    def answer_once_reported(*_: object) -> None:
        number = next(calls)
        until(lambda: reported() >= number, shown=said.getvalue)

    monkeypatch.setattr(fcntl, "flock", answer_once_reported)
    with lock.held(tmp_path), locked(tmp_path / "x", "another"):
        pass
    assert reported() == 2


def local_run(run_dir: Path, **fields: object) -> Path:
    """Return the folder of a local run that this process, as `submit`, has begun."""
    Submission(script_pid=os.getpid()).write(run_dir)
    path = run_dir / "submit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return run_dir


def test_without_locks_the_process_says_that_a_run_goes_on(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre mounted without flock: a sync must not end the run of a living submit."""
    monkeypatch.setattr(lock, "is_held", lambda _: None)
    monkeypatch.setattr(local, "_command", lambda _: "python -m nlp_bench submit --run run.json")
    local_run(run_dir)
    assert sync(run_dir) == (None, "running here")
    monkeypatch.setattr(local, "_command", lambda _: "")
    ending = ending_of(sync(run_dir))
    assert ending.texts[0].startswith("the launcher was killed")
    assert ending.reasons[0].code == "killed-launcher"


def test_a_run_of_another_container_of_this_name_goes_on(run_dir: Path) -> None:
    """Its process numbers say nothing here and its lock may not reach here; behind a restart the run counts as ended after an hour."""
    local_run(run_dir, place="another-start pid:[4026531836]")
    ending, state = sync(run_dir)
    assert (ending, state[:43]) == (None, "running on another machine or container tha")
    for path in run_dir.iterdir():
        os.utime(path, (0, time.time() - 3700))
    assert sync(run_dir)[0] is not None


@pytest.mark.slow
def test_two_at_once_submit_once(site: Site, run_dir: Path, hand_over: HandOver) -> None:
    """The one that comes second waits, and finds the record of the first."""
    site.sbatch('make; sleep 0.3; echo "$number"')
    found: list[str] = []

    def one() -> None:
        with lock.held(run_dir):
            earlier = read_submission(run_dir)
            found.extend(earlier.job_ids if earlier and earlier.is_complete else hand_over())

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["7"] * 4
    assert site.numbers() == ["7"]
