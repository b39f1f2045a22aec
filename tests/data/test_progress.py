"""What is shown while a preparation runs."""

import io
import sys

import pytest
from support.command import Terminal

from nlp_bench.data.shards import Progress
from nlp_bench.data.text import Block


def test_the_time_left_counts_only_what_is_done_now() -> None:
    progress = Progress([1_000_000, 1_000_000])
    for position in (500_000, 700_000):
        progress.begin(0, position)  # an earlier run had come to the first
    progress.add(0, Block(data=b"", end=0, number=1, position=1_000_000), text_bytes=4_000_000, documents=100)
    expected = "nlp-bench: preparing 50.0 %, 0/2 shards, 10 documents/s, 0.4 MB/s of text, 20 s left"
    assert progress.text(10.0) == expected
    progress.end(0)
    progress.end(1)  # done in an earlier run
    assert progress.text(10.0) == "nlp-bench: preparing 100.0 %, 2/2 shards, 10 documents/s, 0.4 MB/s of text"


def test_a_terminal_has_one_line_and_a_file_has_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, expected in ((Terminal(), "\r"), (io.StringIO(), "nlp-bench: preparing ")):
        monkeypatch.setattr(sys, "stderr", stream)
        progress = Progress([1])
        progress.show()
        assert stream.getvalue() == ""  # short work needs no progress
        progress.next_s = 0
        progress.show()
        assert stream.getvalue().startswith(expected)
        progress.line.wipe()
        assert stream.getvalue().endswith("\r" if stream.isatty() else " text\n")
