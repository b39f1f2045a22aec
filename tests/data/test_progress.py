"""What is said while a preparation runs."""

import io

from nlp_bench.data.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_time_left_counts_only_what_is_done_now() -> None:
    progress = Progress(num_shards=2, num_bytes=2_000_000, stream=io.StringIO())
    progress.begin(0, 500_000)  # an earlier run had come so far
    progress.add(0, position=1_000_000, text_bytes=4_000_000, documents=100)
    expected = "nlp-bench: preparing 50.0 %, 0/2 shards, 10 documents/s, 0.4 MB/s of text, 20 s left"
    assert progress.text(10.0) == expected
    progress.end(0, 1_000_000)
    progress.end(1, 1_000_000)  # done in an earlier run
    assert progress.text(10.0) == "nlp-bench: preparing 100.0 %, 2/2 shards, 10 documents/s, 0.4 MB/s of text"


def test_a_terminal_has_one_line_and_a_file_has_plain_lines() -> None:
    for stream, expected in ((Terminal(), "\r"), (io.StringIO(), "nlp-bench: preparing ")):
        progress = Progress(num_shards=1, num_bytes=1, stream=stream)
        progress.show()
        assert stream.getvalue() == ""  # short work needs no progress
        progress.next_s = 0
        progress.show()
        assert stream.getvalue().startswith(expected)
        progress.close()
        assert stream.getvalue().endswith("\r" if stream.isatty() else " text\n")
