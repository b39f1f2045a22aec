"""The line that tells how far a reading has come."""

import contextlib
import gzip
import io
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.command import Terminal
from support.published import published_log

from nlp_bench.inputs import sources as progress
from nlp_bench.inputs.sources import ReadProgress
from nlp_bench.terminal import StatusLine


class Clock:
    """A clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(StatusLine, "_columns", lambda _: 200)
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now_s)


def test_it_is_silent_for_a_second_and_then_speaks_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = Clock(monkeypatch), Terminal()
    with contextlib.closing(ReadProgress(10, 8_000_000, stream)) as line:
        for now_s in (100.0, 100.9):
            clock.now_s = now_s
            line.show(1, 1_000_000)
            assert not stream.getvalue()
        clock.now_s = 102.0
        line.show(3, 2_000_000)
        first = stream.getvalue()
        assert first == "\rreading [#####               ] 25 %, 6 s left, 3 of 10 files, 2.00 of 8.00 MB, 1.00 MB/s"
        clock.now_s = 102.05
        line.show(4, 3_000_000)
        assert stream.getvalue() == first
        clock.now_s = 110.0
        line.show(10, 8_000_000)
        assert "100 %" in stream.getvalue()
        assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().split("\r")[-2].isspace()
    assert stream.getvalue().endswith("\r")


def test_a_pipe_has_no_end_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    assert ReadProgress(1, None, Terminal()).text(0, 3_000_000, 2.0) == "reading 3.00 MB, 1.50 MB/s"


def test_it_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatusLine, "_columns", lambda _: 20)
    stream = Terminal()
    StatusLine(stream).show("x" * 100)
    assert stream.getvalue() == "\r" + "x" * 19


def test_it_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = Clock(monkeypatch), io.StringIO()
    with contextlib.closing(ReadProgress(10, 8_000_000, stream)) as line:
        clock.now_s = 200.0
        line.show(3, 2_000_000)
    assert not stream.getvalue()


def _read_all(terminal: int, seen: bytearray) -> None:
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(terminal, 4096):
            seen.extend(chunk)


@pytest.mark.slow
@pytest.mark.parametrize("alone_s", [0, 1000])
def test_a_real_terminal_sees_it_and_then_nothing(tmp_path: Path, alone_s: float) -> None:
    (tmp_path / "0.log").write_text(published_log())
    for number in range(1, 4):
        member = gzip.compress(b"NCCL INFO noise that is no record\n" * 100_000, 1)
        (tmp_path / f"{number}.log").write_bytes(member * 8 + gzip.compress(published_log().encode()))
    program = (
        "import sys; from nlp_bench.inputs import sources as progress, sources; progress.QUIET_S = 0.05;"
        f"sources.read_sources.__kwdefaults__['alone_s'] = {alone_s};"
        "from nlp_bench.cli.main import main; sys.exit(main(['report', sys.argv[1], '--sequence-length', '2048']))"
    )
    ours, theirs = pty.openpty()
    seen = bytearray()
    reader = threading.Thread(target=_read_all, args=(ours, seen))
    reader.start()  # a terminal that nobody reads is full after a while, and then holds the program up
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, stderr=theirs, check=True
    )
    os.close(theirs)
    reader.join(timeout=30)
    os.close(ours)
    assert done.stdout.count(b"MEASURED") == 4
    assert b"of 4 files" in seen
    assert b"% " in seen.replace(b"%,", b"% ")
    assert seen.rstrip(b"\r").split(b"\r")[-1].strip() == b""
