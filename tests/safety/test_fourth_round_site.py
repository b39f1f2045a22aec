"""What a site, its file systems and other users do to a run: faults that a fourth round of fresh eyes thought of."""

import os
import re
import resource
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.stand_in import stub_run
from nlp_bench.cli.main import main
from nlp_bench.config import catalog
from nlp_bench.config.scheduler import Job, State
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.launch.end.ending import Ending, write_ending
from nlp_bench.launch.end.log_facts import ScriptRecord, write_record
from nlp_bench.launch.folder import run_folder
from nlp_bench.launch.follow import sync as syncing
from nlp_bench.launch.follow.runs import continue_jube
from nlp_bench.launch.follow.sync import sync
from nlp_bench.launch.scheduler import slurm
from nlp_bench.launch.scheduler.slurm import Slurm
from nlp_bench.launch.submission import Submission
from nlp_bench.outcome import Outcome
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.machines import against_sheet

ROOT = Path(__file__).resolve().parents[2]
POINTS = ROOT / "reports/reference/published_points/points.csv"


@pytest.fixture
def unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose job 7 has ended on a node whose files are not visible from here yet."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    stub_run("well").write(tmp_path)
    Submission(job_ids=["7"], comment="nlp-bench:1").write(tmp_path)
    os.utime(tmp_path / "submit.json", (time.time() - 86400,) * 2)  # it has waited in the queue for a day
    job = slurm.job("COMPLETED", job_id="7", exit_code="0:0")
    monkeypatch.setattr(Slurm, "query", lambda *_, **__: job)
    return tmp_path


def test_a_log_that_is_not_visible_yet_is_waited_for(unseen: Path) -> None:
    for _ in range(2):
        ending, state = sync(unseen)
        assert ending is None
        assert "job.out and the job's own records are not visible from here yet; waiting up to 300 s" in state
    assert not (unseen / "outcome.json").exists()
    own = Ending(outcome=Outcome.VALID)
    write_ending(unseen, own, exit_status=0, job_id="7")  # the job's own word arrives
    assert sync(unseen) == (own, "ended")


def test_a_log_that_never_comes_is_decided_without_it(unseen: Path) -> None:
    sync(unseen)
    (trace,) = unseen.glob(".ended-without-a-log.*")
    os.utime(trace, (time.time() - syncing.GONE_S - 60,) * 2)
    ending, _ = sync(unseen)
    assert ending
    assert ending.outcome is Outcome.INCOMPLETE
    assert "job.out is gone" in ending.text()
    assert not trace.exists()


def test_a_record_of_the_job_script_is_enough_to_decide(unseen: Path) -> None:
    write_record(unseen, ScriptRecord(exit_status=0, signal="", job_id="7", restarts=0))
    assert sync(unseen)[0]


@pytest.mark.parametrize(
    "job",
    [
        slurm.job("CANCELLED", job_id="7", exit_code="0:15"),
        slurm.job("FAILED", job_id="7", exit_code="0:53", reason="JobLaunchFailure"),
    ],
)
def test_a_job_that_never_started_is_not_waited_for(unseen: Path, monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    assert job.state is State.ENDED
    monkeypatch.setattr(Slurm, "query", lambda *_, **__: job)
    assert sync(unseen)[0]


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


@pytest.mark.parametrize(
    "words",
    [
        ("data", "prepare", "PIPE", "--output", "out/", "--vocab-file", "FILE", "--merge-file", "FILE"),
        ("data", "prepare", "FILE", "--output", "out/", "--vocab-file", "PIPE", "--merge-file", "FILE"),
        ("data", "prepare", "FILE", "--output", "out/", "--vocab-file", "FILE", "--merge-file", "PIPE"),
        ("data", "prepare", "FILE", "--output", "out/", "--tokenizer-model", "PIPE"),
        ("data", "--input", "PIPE", "--output", "out", "--vocab-file", "FILE", "--merge-file", "FILE"),
    ],
)
def test_a_pipe_as_data_does_not_hang(tmp_path: Path, words: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "p")
    (tmp_path / "f").write_text('{"text": "a"}\n')
    names = {"PIPE": "p", "FILE": "f"}
    command = [sys.executable, "-P", "-m", "nlp_bench", *(names.get(word, word) for word in words)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == UsageError.exit_code
    assert "p is a pipe, and it is read more than once; write it into a file" in done.stderr


def test_a_tar_archive_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vocab, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    vocab.write_text('{"a": 0, "<|endoftext|>": 1}')
    merges.write_text("#version: 0.2\n")
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with tarfile.open(tmp_path / "a.jsonl.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.jsonl", "a.jsonl")
    words = ["--output", str(tmp_path / "out/"), "--vocab-file", str(vocab), "--merge-file", str(merges)]
    assert main(["data", "prepare", str(tmp_path / "a.jsonl.tar.gz"), *words]) == UsageError.exit_code
    assert "a.jsonl.tar.gz is a tar archive; unpack it" in capsys.readouterr().err


def test_a_table_of_points_may_come_out_of_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "p")
    few = "".join(POINTS.read_text(encoding="utf-8").splitlines(keepends=True)[:3])
    writer = threading.Thread(target=(tmp_path / "p").write_text, args=(few,), daemon=True)
    writer.start()
    assert main(["plan", "predict", str(tmp_path / "p")]) == 0
    writer.join(10)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_what_gives_no_table_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nlp_bench.files.PIPE_S", 0.1)
    os.mkfifo(tmp_path / "p")
    silent = "it is a pipe, and nothing came out of it within 0.1 s"
    for path, said in ((str(tmp_path / "p"), silent), ("/dev/zero", "it is a device")):
        assert main(["plan", "predict", path]) == UsageError.exit_code
        assert f"cannot read {path}: {said}; name a file of comma-separated values" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda head, row: (f"{head},mbs", f"{row},1"), "column mbs stands 2 times in the header; leave one of them"),
        (lambda head, row: (head, f"{row},7"), "line 2: 1 more cell(s) than the header has columns; put a cell"),
        (lambda head, row: (head.replace(",", ";"), row), "its columns are divided by semicolons; save the table"),
        (lambda head, row: (head.replace(",", "\t"), row), "its columns are divided by tabs"),
    ],
)
def test_a_table_whose_cells_are_not_where_they_seem_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[str, str], tuple[str, str]], said: str
) -> None:
    head, row, *_ = POINTS.read_text(encoding="utf-8").splitlines()
    path = tmp_path / "points.csv"
    path.write_text("\n".join(change(head, row)) + "\n")
    assert main(["plan", "predict", str(path)]) == UsageError.exit_code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["benchmark/env/nlp-bench", "--version"],
        ["-c", "source benchmark/env/activate.bash --system local"],
        ["benchmark/run.sh", "--help"],
        ["src/compile_build.sh", "--system", "local", "--no-such-option"],
    ],
)
def test_scripts_work_with_a_cdpath(words: list[str]) -> None:
    """`cd` prints the folder that it finds by CDPATH, and takes one of another place first."""
    ways = []
    for further in ({}, {"CDPATH": ".:.."}):
        variables = {**os.environ, **further}
        done = subprocess.run(
            ["bash", *words], cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=120
        )
        ways.append((done.returncode, done.stdout, done.stderr))
    assert ways[1] == ways[0]


def test_no_script_looks_a_folder_up_by_cdpath() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    scripts = [ROOT / name for name in tracked if name.endswith((".sh", ".bash", "env/nlp-bench"))]
    assert scripts
    assert not [path for path in scripts if re.search(r"\$\(\s*cd ", path.read_text(encoding="utf-8"))]


def test_a_folder_without_room_for_1_mib_is_not_writable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first write is a short one, as on a file system that is nearly full; the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    try:
        assert main(["doctor", "--system", "local", "--checks", "writable", "--runs", str(tmp_path)]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"{tmp_path}: cannot write 1 MiB: File too large" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["00:00:00", "0-00:00:00", "0s", "0min", "0d"])
def test_a_time_limit_of_zero_is_none_to_slurm(capsys: pytest.CaptureFixture[str], text: str) -> None:
    words = ["check", "--model", "tiny", "--system", "slurm-sandbox", "--offline", "--data-path", "mock"]
    assert main([*words, "--timelimit", text]) == UsageError.exit_code
    said = capsys.readouterr().err
    assert f"--timelimit: {text!r} is not a time limit; write HH:MM:SS" in said
    assert "90min or 2h above zero, which is no limit to Slurm" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-h", "train_args: -h prints the trainer's options and trains nothing"),
        ("--help", "train_args: --help prints the trainer's options and trains nothing"),
        ("--data-path X", "train_args: --data-path would have no effect, for run.json records the data"),
        ("--data-cache-path=X", "train_args: --data-cache-path would have no effect"),
        ("--mock-data", "train_args: --mock-data would have no effect, for run.json records the data"),
    ],
)
def test_words_of_the_trainer_that_train_nothing_are_refused(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    shared = ["--model", "tiny", "--system", "local", "--launcher", "local", f"--train-args={words}"]
    for command in (["check", "--offline"], ["submit", "--print"]):
        assert main([*command, *shared]) == UsageError.exit_code
        captured = capsys.readouterr()
        assert said in captured.err
        assert "usage" not in captured.out


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("attention_hopper", 1.2, "is a share of the peak: no attention is faster than that; it is at most 1"),
        ("memory_share", 85, "is a share of the memory's bandwidth: .*; it is at most 1"),
        ("link_share", 2.5, "is a share of the links' bandwidth: .*; it is at most 2"),
        ("fabric_share", 1.01, "is a share of the adapters' bandwidth: .*; it is at most 1"),
        ("score_traffic", 0.1, "is the bytes moved over their least count; it is at least 1"),
        ("stream_eager", 0.5, "is the bytes moved over their least count; it is at least 1"),
        ("products_hopper", 1.5, "is a share of the peak: no product is faster than that; it is at most 1"),
    ],
)
def test_a_constant_that_no_machine_has_is_refused(tmp_path: Path, name: str, value: float, rule: str) -> None:
    path = tmp_path / "own.toml"
    text = 'schema = "nlp-bench/plan/1"\n[time]\n{} = {{ value = {}, source = "mine" }}\n'
    path.write_text(text.format(name, value))
    with pytest.raises(UsageError, match=rf"\[time\] {name}: {value:g} {rule}"):
        read_constants(path)
    path.write_text(text.format(name, 1))
    assert read_constants(path)[name] == 1
    for short in ("attention_short", "attention_narrow"):  # tokens, and a width
        path.write_text(text.format(short, 300))
        assert read_constants(path)[short] == 300


def test_a_run_of_jube_of_another_user_is_not_driven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "bench" / "000000"
    run.mkdir(parents=True)
    (run / "configuration.xml").write_text("<jube/>")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "jube").write_text("#!/bin/sh\ntouch was-called\necho RUNNING\n")
    (programs / "jube").chmod(0o755)
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


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that was installed, with one file of more than 64 KiB among those that `init` copies."""
    shipped = tmp_path / "package" / "shipped"
    shipped.mkdir(parents=True)
    (shipped / "large").write_bytes(bytes(200_000))
    monkeypatch.setattr(catalog, "checkout", lambda: None)
    monkeypatch.setattr(catalog, "shipped", lambda: shipped)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("13", "--system: 13 is a model: as a tag of JUBE it would not mean the machine; take another name"),
        ("slurm", "--system: slurm is a tag of its own"),
        ("rehearse", "--system: rehearse is a tag of its own"),
        ("x.toml", "--system: x.toml: name the machine, without .toml: --system x"),
    ],
)
def test_a_machine_is_not_called_like_a_tag(
    installed: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    assert main(["init", str(installed / "bench"), "--system", name]) == UsageError.exit_code
    assert said in capsys.readouterr().err
    assert not (installed / "bench").exists()


def test_init_without_room_says_so_in_words(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    try:
        assert main(["init", str(installed / "bench")]) == UsageError.exit_code
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot be written: File too large; name another" in capsys.readouterr().err


@pytest.mark.parametrize("mode", [0o444, 0o664])
def test_what_init_writes_has_the_modes_of_new_files(installed: Path, mode: int) -> None:
    """An installation may be read-only (EasyBuild, Nix), or open to a group that is none of this user's."""
    scripts = installed / "package/shipped/benchmark/env"
    scripts.mkdir(parents=True)
    (scripts / "constraints.txt").write_text("")
    (scripts / "nlp-bench").write_text("#!/bin/bash\n")
    for path in (installed / "package").rglob("*"):
        path.chmod(mode | 0o111 if path.is_dir() else mode)
    before = os.umask(0o027)
    try:
        assert main(["init", str(installed / "bench")]) == 0
    finally:
        os.umask(before)
    made = [installed / "bench", *(installed / "bench").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} <= {0o640, 0o750}


@pytest.mark.parametrize(
    ("encoding", "name"), [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16"), ("latin-1", "ISO-8859-1")]
)
def test_a_data_file_in_another_encoding_has_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str, name: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes("# Jülich\n".encode(encoding) + 'schema = "nlp-bench/model/1"\n'.encode(encoding))
    assert main(["check", "--model", str(path), "--offline"]) == UsageError.exit_code
    said = capsys.readouterr().err
    assert f"is no text in UTF-8, which TOML is; save it as UTF-8: iconv -f {name} -t UTF-8 {path} > NEW" in said


@pytest.mark.parametrize(
    ("peak", "said"),
    [
        (1979.0, "the prediction takes the data sheet's; is it the sparse one?"),
        (0.989, "the prediction takes the data sheet's; write it in TFLOP/s"),
        (989e3, "the prediction takes the data sheet's; write it in TFLOP/s"),
        (700.0, "the prediction takes the data sheet's"),
    ],
)
def test_a_peak_in_another_unit_is_not_called_sparse(peak: float, said: str) -> None:
    (line,) = against_sheet("H100 SXM", 80.0, peak)
    assert line.endswith(said)


def test_apex_of_a_folder_without_git_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "--apex", str(tmp_path), "--root", str(tmp_path)]) == UsageError.exit_code
    assert f"--apex: {tmp_path} is no git repository, and a commit of it is built; clone it" in capsys.readouterr().err


def test_the_variables_that_lead_to_no_slurm_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    monkeypatch.setenv("SLURM_CLUSTERS", "elsewhere")
    monkeypatch.setenv("SLURM_JWT", "a-secret")
    assert (
        main(["check", "--model", "tiny", "--launcher", "slurm", "--system", "slurm-sandbox"]) == UsageError.exit_code
    )
    said = capsys.readouterr().err
    assert (
        f"; asked by SLURM_CONF={tmp_path / 'none'} SLURM_CLUSTERS=elsewhere SLURM_JWT: unset or correct what" in said
    )
    assert "a-secret" not in said


def test_a_requeued_job_that_waits_shows_no_progress_of_its_earlier_start(
    unseen: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = " iteration        2/       4 | consumed samples: 480 | elapsed time per iteration (s): 0.1000 | lm loss: 1.0E+00 |"
    (unseen / "job.out").write_text(f"Submitted batch job 7\n{line}\n")
    for word, shown in (("RUNNING", "iteration 2/4"), ("PENDING", "PENDING (BeginTime)")):
        job = slurm.job(word, job_id="7", reason="BeginTime")
        monkeypatch.setattr(Slurm, "query", lambda *_, job=job, **__: job)
        assert main(["watch", str(unseen), "--once"]) == 1
        said = capsys.readouterr().err
        assert shown in said
        assert ("iteration" in said) == (word == "RUNNING")
