"""Faults that a sixth round of fresh eyes thought of: logs on the move, other users, folders that go away, limits."""

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from support.published import published_log

from nlp_bench.cli.main import main
from nlp_bench.evidence import collect
from nlp_bench.logs.source import Source

Change = Callable[[Path], object]


def rewrite(path: Path) -> None:
    """Write other times over the log in place, as a job that begins anew does."""
    before = path.read_bytes()
    path.write_bytes(before.replace(b"(s): 7", b"(s): 3").replace(b"(s): 5", b"(s): 2"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: os.truncate(path, 0), "the file was cut while it was read"),
        (rewrite, "the file was written anew in place while it was read"),
    ],
)
def test_a_log_that_changes_while_it_is_bundled_is_not_bundled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: Change, said: str
) -> None:
    """logrotate's copytruncate; half of the old lines and half of the new ones are a number that no run had."""
    log = tmp_path / "train.log"
    log.write_text(published_log() * 4000)
    original, changed = collect.redact, list[Path]()

    class _Changing:
        def __init__(self, source: BinaryIO) -> None:
            self.source = source

        def read(self, size: int) -> bytes:
            block = self.source.read(size)
            if not changed:
                changed.append(log)
                change(log)
            return block

    monkeypatch.setattr(collect, "redact", lambda source, target: original(_Changing(source), target))
    assert main(["bundle", str(log), "--sequence-length", "2048", "--output", str(tmp_path / "e.tar.gz")]) == 1
    found = capsys.readouterr().err
    assert f"cannot bundle {log}: {said}" in found
    assert "then repeat" in found
    assert [path.name for path in tmp_path.iterdir()] == ["train.log"]


def test_a_packed_log_that_changes_while_it_is_bundled_is_not_bundled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log.gz"
    log.write_bytes(gzip.compress(published_log().encode()))
    original = collect.open_log

    @contextmanager
    def cut(path: str) -> Iterator[Source]:
        with original(path) as source:
            os.truncate(path, 100)
            yield source

    monkeypatch.setattr(collect, "open_log", cut)
    assert main(["bundle", str(log), "--sequence-length", "2048", "--output", str(tmp_path / "e.tar.gz")]) == 1
    assert f"cannot bundle {log}: the file was cut while it was read" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["train.log.gz"]
