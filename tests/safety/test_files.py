"""Files: whole or not at all, with sane modes, whatever the disk, the name, the signal or the thread does."""

import contextlib
import errno
import os
import resource
import shlex
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.command import Capture, Cli
from support.ours import write_our_run
from support.processes import HEARING, NLP_BENCH, execute
from support.users import on_tmpfs

from nlp_bench import files
from nlp_bench.cli import main as command_line
from nlp_bench.cli.main import main
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import parse_json, read_json, recover_folder, replace_folder, write_json, write_text, writing
from nlp_bench.logs.source import open_log

SCHEMA = "nlp-bench/x/1"
BYTES = os.fsdecode(b"/runs/\xff\xfe/job")
"""A path that is no UTF-8."""


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        write_text(tmp_path / "x", "text")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o666 & ~mask


def test_a_file_that_others_may_not_read_stays_so(tmp_path: Path) -> None:
    write_text(tmp_path / "x", "old")
    (tmp_path / "x").chmod(0o600)
    write_text(tmp_path / "x", "new")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def test_writing_never_changes_the_umask_of_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """os.umask(0), for a moment, made the files of other threads writable for all."""
    monkeypatch.setattr(os, "umask", Mock(side_effect=AssertionError))
    write_text(tmp_path / "x", "text")


@pytest.mark.parametrize("fault", [OSError("no"), ValueError("no"), KeyboardInterrupt(), SystemExit(143)])
def test_whatever_ends_the_block_the_old_file_stays_and_nothing_else(tmp_path: Path, fault: BaseException) -> None:
    write_text(tmp_path / "x", "old")

    def fail() -> None:
        with writing(tmp_path / "x") as stream:
            stream.write(b"new")
            raise fault

    with pytest.raises((NlpBenchError, type(fault))):
        fail()
    assert (tmp_path / "x").read_text() == "old"
    assert names(tmp_path) == ["x"]


def test_a_signal_as_soon_as_the_file_is_there_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def opened(path: Path, *flags: int) -> int:
        os.close(real(path, *flags))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "x", "text")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["a b", "ä", "x" * 255, "ü" * 127, "-rf", "$(x)", "a\nb", '"', "\U0001f600", os.fsdecode(b"no\xffutf8")]
)
def test_weird_names(tmp_path: Path, name: str) -> None:
    write_text(tmp_path / name, "text")
    assert names(tmp_path) == [name]


def test_a_record_with_a_path_that_is_no_utf8_comes_back_as_it_was(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"schema": SCHEMA, "path": BYTES, "half": "\ud800"})
    assert read_json(tmp_path / "x.json", SCHEMA)["path"] == BYTES


def test_a_script_holds_the_bytes_themselves(tmp_path: Path) -> None:
    write_text(tmp_path / "x", f"cd '{BYTES}'\n", errors="surrogateescape")
    assert (tmp_path / "x").read_bytes() == b"cd '/runs/\xff\xfe/job'\n"
    write_text(tmp_path / "x", "\ud800", errors="surrogateescape")
    assert (tmp_path / "x").read_bytes() == b"\\ud800"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, '{"schema": "nlp-bench/x/1", "b": ' + "[" * 100_000])
def test_a_record_that_is_nested_too_deeply_is_no_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(NlpBenchError, match="is not JSON"):
        read_json(tmp_path / "x.json", SCHEMA)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(text)
    assert files.read_object(tmp_path / "x.json") == {}


def test_no_module_reads_json_of_a_file_without_that_care() -> None:
    """json.loads raises RecursionError, which no `except ValueError` catches."""
    root = Path(__file__).resolve().parents[2] / "src/nlp_bench"
    own = {
        "files.py",  # the helper itself
        "launch/folder.py", "launch/jube_rehearsal.py", "evidence/derive.py",  # what json.dumps has just made
        "analysis/listing.py", "analysis/row.py", "analysis/variance.py",  # columns that this program wrote
        "logs/dialects/pytorch.py",  # catches RecursionError itself, and needs a hook
    }  # fmt: skip
    found = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if "json.loads(" in path.read_text()}
    assert found == own


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
def test_a_number_that_is_not_finite_is_missing(tmp_path: Path, number: str) -> None:
    """A run.json with NaN in it ended `report --format json` with a traceback."""
    (tmp_path / "x.json").write_text(f'{{"schema": "{SCHEMA}", "a": {number}, "b": [{number}, 1e3]}}')
    record = read_json(tmp_path / "x.json", SCHEMA)
    assert (record["a"], record["b"]) == (None, [None, 1000.0])
    write_json(tmp_path / "y.json", {"schema": SCHEMA, "a": float(number), "b": ({"c": float(number)}, 1)})
    assert parse_json((tmp_path / "y.json").read_text()) == {"schema": SCHEMA, "a": None, "b": [{"c": None}, 1]}


@pytest.mark.parametrize("version", ["2", "99999999999999999999", "9" * 5000])
def test_a_newer_version_is_refused_with_what_to_do(tmp_path: Path, version: str) -> None:
    write_json(tmp_path / "x.json", {"schema": f"nlp-bench/x/{version}"})
    with pytest.raises(NlpBenchError, match="install a newer one"):
        read_json(tmp_path / "x.json", SCHEMA)


@pytest.mark.parametrize("version", ["²", "٣", "", "-1", "1.0", "x"])
def test_a_version_that_is_none_is_refused(tmp_path: Path, version: str) -> None:
    write_json(tmp_path / "x.json", {"schema": f"nlp-bench/x/{version}"})
    with pytest.raises(NlpBenchError, match="expected 'nlp-bench/x/1'"):
        read_json(tmp_path / "x.json", SCHEMA)


def test_a_swap_that_was_killed_is_mended_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("data", "old"), ("fresh", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(text)
    real, calls = Path.rename, []

    def die_at_the_second(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt  # as a kill: nothing behind it runs
        return real(self, target)

    monkeypatch.setattr(Path, "rename", die_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        replace_folder(tmp_path / "fresh", tmp_path / "data")
    monkeypatch.undo()
    assert not (tmp_path / "data").exists()
    recover_folder(tmp_path / "data")
    assert (tmp_path / "data/x").read_text() == "old"
    replace_folder(tmp_path / "fresh", tmp_path / "data")
    assert (tmp_path / "data/x").read_text() == "new"
    assert names(tmp_path) == ["data"]


@pytest.mark.slow
def test_a_limit_of_the_file_size_is_said_and_the_old_result_stays(tmp_path: Path, cli: Cli) -> None:
    run = write_our_run(tmp_path / "run")
    cli("measure", run)
    before = (run / "result.json").read_bytes()

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = execute(*NLP_BENCH, "measure", run, preexec_fn=small)
    assert done.returncode == 1
    assert f"cannot write {run}/result.json: File too large; " in done.stderr
    assert "ulimit -f" in done.stderr
    assert (run / "result.json").read_bytes() == before
    assert not list(run.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "error", "remedy"),
    [
        ("head -c 200000 /dev/zero > fill 2> /dev/null; true", "No space left on device", "df -h"),
        ("mount -o remount,ro .", "Read-only file system", "nlp-bench report ."),
    ],
)
def test_a_full_and_a_read_only_disk_are_said_and_the_old_result_stays(
    tmp_path: Path, then: str, error: str, remedy: str
) -> None:
    run, disk = write_our_run(tmp_path / "run"), tmp_path / "disk"
    disk.mkdir()
    program = f"{shlex.quote(sys.executable)} -m nlp_bench measure ."
    script = (
        f"cd {disk} && cp {run}/* . && {program} > first && cp result.json {tmp_path}/before; {then}; {program} > /dev/null; "
        f"echo $? > {tmp_path}/code; cp result.json {tmp_path}/after; ls -A > {tmp_path}/names"
    )
    done = execute(*on_tmpfs(disk, "size=64k"), "sh", "-c", script)
    assert (tmp_path / "code").read_text() == "1\n", done.stderr
    assert f"result.json: {error}; " in done.stderr
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    assert not [name for name in (tmp_path / "names").read_text().splitlines() if name.startswith(".")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_with_a_word_its_code_and_no_half_file(tmp_path: Path, number: signal.Signals) -> None:
    """The program is stopped inside a file that it is writing."""
    code = (
        "import sys, time; from pathlib import Path; from nlp_bench.cli import main as m; from nlp_bench.files import writing\n"
        "def stay(words):\n"
        f"    with writing(Path({str(tmp_path / 'x')!r})) as stream:\n"
        "        stream.write(b'half'); print('there', flush=True)\n"
        # A signal just before a long sleep is heard only at its end.
        "        for _ in range(600): time.sleep(0.1)\n"
        "m._dispatch = stay; sys.exit(m.main([]))"
    )
    process = subprocess.Popen(
        [*HEARING, sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said.startswith("nlp-bench: "), said
    assert len(said.splitlines()) == 1
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "made",
    [
        # Up to Python 3.11 what __set_name__ raises comes out as a RuntimeError.
        "type('Series', (), {'points': type('Field', (), {'__set_name__': lambda *_: stop()})()})",
        # An import of numpy that is broken off may end in its own __getattr__, which calls itself.
        "recurse()",
    ],
    ids=["class", "import"],
)
def test_a_signal_that_foreign_code_turns_into_another_exception(made: str, number: signal.Signals) -> None:
    """Both were found by tests/soak/signals.py."""
    code = (
        "import os, sys, time; from nlp_bench.cli import main as m\n"
        f"def stop(): os.kill(os.getpid(), {int(number)}); time.sleep(60)\n"
        "def recurse():\n"
        "    try: stop()\n"
        "    except BaseException: raise RecursionError\n"
        f"m._dispatch = lambda words: {made} and 0; sys.exit(m.main([]))"
    )
    done = execute(*HEARING, sys.executable, "-c", code, timeout=60)
    assert done.returncode == 128 + number
    assert done.stderr.startswith(("nlp-bench: stopped by SIGTERM; repeat", "nlp-bench: interrupted; repeat"))
    assert "Traceback" not in done.stderr


def test_nohup_is_heeded(tmp_path: Path) -> None:
    code = (
        "import os, signal, time; from nlp_bench.cli import main as m\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "m._dispatch = lambda words: os.kill(os.getpid(), signal.SIGHUP) or time.sleep(0.1) or 0\n"
        "raise SystemExit(m.main([]))"
    )
    done = execute(sys.executable, "-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_main_leaves_the_handlers_as_they_were() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


NUMBERS = (errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.ENOSPC, errno.ESTALE)
SYSTEM = [OSError(number, os.strerror(number), "/some/file") for number in NUMBERS]


@pytest.mark.parametrize(
    ("fault", "said"),
    [(error, f"/some/file: {error.strerror}; ") for error in SYSTEM]
    + [(MemoryError(), "the memory is used up: check `free -h`, `ulimit -v`")],
)
def test_an_error_of_the_system_is_a_sentence_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, fault: Exception, said: str
) -> None:
    def fail(_: list[str]) -> int:
        raise fault

    monkeypatch.setattr(command_line, "_dispatch", fail)
    assert command_line.main(["x"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"nlp-bench: error: {said}")
    assert "check that the folder exists" not in printed  # each has a remedy of its own


@pytest.mark.parametrize("zone", ["XXX-99:99", "Foo/Bar", ":/nonexistent"])
def test_a_time_zone_that_is_none(zone: str) -> None:
    code = "from nlp_bench.clock import now, stamp; print(now(), stamp())"
    assert "+" in execute(sys.executable, "-c", code, env={**os.environ, "TZ": zone}, check=True).stdout


def wait_until_it_sleeps(pid: int) -> None:
    num_asleep, end = 0, time.monotonic() + 60
    while num_asleep < 5:
        assert time.monotonic() < end
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        num_asleep = num_asleep + 1 if state == "S" else 0
        time.sleep(0.02)


@pytest.mark.slow
def test_a_reader_that_is_stopped_in_a_long_log_leaves_with_a_word(tmp_path: Path) -> None:
    text = write_our_run(tmp_path / "run").joinpath("job.out").read_bytes()
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([*NLP_BENCH, "report", "-"], **pipes) as process:
        assert process.stdin is not None
        process.stdin.write(text * (1 + (1 << 20) // len(text)))  # more than a pipe holds: it has begun to read
        # A signal between two reads of one buffer is seen by Python behind the second.
        wait_until_it_sleeps(process.pid)
        process.terminate()
        process.wait(timeout=60)
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert process.returncode == 143
    assert said == "nlp-bench: stopped by SIGTERM; repeat the same command to go on\n"


@pytest.mark.slow
def test_a_pipe_without_a_writer_and_a_device_are_refused(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIPE_S", 0.2)
    os.mkfifo(tmp_path / "pipe")
    for command in ("report", "verify"):
        assert "nothing came out of it within" in cli(command, tmp_path / "pipe", code=2).err
        assert "it is a device" in cli(command, "/dev/zero", code=2).err


def test_a_pipe_into_which_somebody_writes_is_a_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    text = "no training line\n" * 10
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(text,))
    writer.start()
    with open_log(str(tmp_path / "pipe")) as source:
        assert b"".join(bytes(block.data[block.begin : block.end]) for block in source.blocks()).decode() == text
    writer.join()


@pytest.mark.parametrize("target", ["x", "nowhere/at/all", "folder"])
def test_a_link_is_replaced_and_never_followed(tmp_path: Path, target: str) -> None:
    """One to itself ended with "cannot write", one to a folder made the new file executable."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "x").symlink_to(target)
    with umask(0o022):
        write_text(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "x").lstat().st_mode) == 0o644
    assert not list((tmp_path / "folder").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("report", "RUN", "--output", "LINK"),
        ("report", "RUN", "--output", "LINK/below"),
        ("bundle", "RUN", "--output", "LINK"),
        ("check", "--model", "tiny", "--system", "local", "--nodes", "1", "--output", "LINK"),
        ("plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8", "--output", "LINK/below"),
        ("data", "--output", "LINK", "--documents", "20", "--vocab-size", "260"),
        ("history", "add", "RUN", "--file", "LINK"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("target", ["/nowhere/at/all", "link"])
def test_a_link_that_leads_nowhere_is_named_with_its_target(
    tmp_path: Path, words: tuple[str, ...], target: str, cli: Cli
) -> None:
    """It was "File exists; give a folder that you may write to"."""
    link, run = tmp_path / "link", write_our_run(tmp_path / "run")
    link.symlink_to(target)
    done = cli(*(word.replace("RUN", str(run)).replace("LINK", str(link)) for word in words), code=None)
    assert done.code > 0
    assert f"{link} is a link to {target}, which does not exist: make that, or remove the link" in done.err
    assert link.is_symlink()


def test_a_link_to_nothing_above_the_runs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """A scratch that was purged; it was "999 runs of this second exist already"."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/nlp-bench.key").touch()
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path / "venv"))
    monkeypatch.setenv("NLP_BENCH_ROOT", str(tmp_path))
    (tmp_path / "reports").symlink_to("/nowhere/reports")
    said = cli("submit", "--model", "tiny", "--system", "local", "--mock-data", code=2).err
    assert f"{tmp_path}/reports is a link to /nowhere/reports, which does not exist: make that, or remove" in said


def test_what_the_system_has_open_is_written_to_and_stays(tmp_path: Path) -> None:
    """As root, --output /dev/null or /dev/stdout put a plain file in its place; /dev/fd does no harm where that comes back."""
    with (tmp_path / "x").open("wb") as stream:
        write_text(Path(f"/dev/fd/{stream.fileno()}"), "text")
    assert (tmp_path / "x").read_text() == "text"


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_does_not_fit_is_said_with_unbuffered_streams_too(tmp_path: Path, unbuffered: str) -> None:
    run = write_our_run(tmp_path / "run")
    limited = ("bash", "-c", 'ulimit -f 8; exec "$@" > "$0"', tmp_path / "cut")
    words = (*NLP_BENCH, "report", run, "--format", "json", "--explain")
    found = execute(*limited, *words, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    assert found.returncode == 1
    assert "File too large" in found.stderr
