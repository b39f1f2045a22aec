"""A file that is written while it is read: one state of it, or a word that there was none."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nlp_bench.logs.reader import read_log
from nlp_bench.logs.source import ANEW, open_log
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides

LINES = b"".join(b"line %010d of the first log\n" % number for number in range(300_000))
OTHER = LINES.replace(b"first", b"other")
Change = Callable[[Path], object]


def read_with(path: Path, change: Change, num_blocks: int = 1) -> tuple[bytes, str | None]:
    """Read `path`, and change it behind some blocks; return what was read, and what was said."""
    with open_log(str(path)) as log:
        found = bytearray()
        for index, block in enumerate(log.blocks(), start=1):
            found += block.data[block.begin : block.end]
            if index == num_blocks:
                change(path)
        return bytes(found), log.damage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "log").write_bytes(LINES)
    return tmp_path / "log"


def append(path: Path, content: bytes = OTHER) -> None:
    with path.open("ab") as stream:
        stream.write(content)


def replace(path: Path) -> None:
    path.with_name("new").write_bytes(OTHER)
    path.with_name("new").replace(path)


@pytest.mark.parametrize("change", [append, replace, Path.unlink, lambda path: path.rename(path.with_name("log.1"))])
def test_what_was_opened_is_read_whole(path: Path, change: Change) -> None:
    assert read_with(path, change) == (LINES, None)


def test_a_line_that_is_being_written_is_cut_there(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(LINES[:-7])
    assert read_with(path, append) == (LINES[:-7], None)


@pytest.mark.parametrize("size", [0, 1000, 3_000_000])
def test_a_file_that_is_cut_is_said(path: Path, size: int) -> None:
    found, damage = read_with(path, lambda path: os.truncate(path, size))
    assert LINES.startswith(found)
    assert len(found) < len(LINES)
    assert f"the file was cut while it was read: {len(found)} of its {len(LINES)} bytes are counted" in damage


def test_a_file_that_is_written_anew_in_place_is_said(path: Path) -> None:
    """As Slurm does with job.out when it starts a job anew without --open-mode=append."""
    assert read_with(path, lambda path: path.write_bytes(OTHER + OTHER))[1] == ANEW


def test_a_compressed_file_that_is_cut_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(LINES, 1))
    found, damage = read_with(path, lambda path: os.truncate(path, 100))
    assert LINES.startswith(found)
    assert "the file was cut while it was read" in damage


def test_standard_input_that_somebody_has_begun_to_read(path: Path) -> None:
    code = (
        "import os, sys; os.lseek(0, 300, 0); from nlp_bench.logs.source import open_log\n"
        "with open_log('-') as log: print(sum(b.end - b.begin for b in log.blocks()), log.damage)"
    )
    with path.open("rb") as stream:
        done = subprocess.run([sys.executable, "-c", code], stdin=stream, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(LINES) - 300), "None"]


def test_a_size_of_nothing_says_nothing() -> None:
    """Files of /proc have it."""
    with open_log("/proc/self/status") as log:
        assert sum(block.end - block.begin for block in log.blocks()) > 0
        assert log.damage is None


@pytest.mark.slow
def test_the_reason_stands_in_the_entry(tmp_path: Path) -> None:
    path = tmp_path / "log"
    record = b"iter=%d train_loss=9.9 tokens_per_second=4000 lr=1.0e-05\n"
    path.write_bytes(b"".join(record % number for number in range(1, 6000)))
    log = read_log(str(path), progress=lambda _: append(path, record % 999_999))
    assert len(log.attempts[0].records) == 5999
    (entry,) = measure_log(str(path), Overrides(), progress=lambda _: os.truncate(path, 1000))
    assert any("the file was cut while it was read" in reason for reason in entry.reason_texts)
