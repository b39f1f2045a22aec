"""What surrounds the words of a log comes off, and nothing else."""

import time

import pytest

from nlp_bench.logs.clean import first_piece, joined, label_of, pieces


@pytest.mark.parametrize(
    "text",
    [
        b"\x1b[36mstep: 1\x1b[39m",
        b"\x1b[1;38;5;123mstep: 1\x1b[0m\x1b[K",
        b"\x1b]0;title\x07step: 1",
        b"\x1b(Bstep: 1",
        b"^[[36mstep: 1^[[39m",
        rb"\u001b[36mstep: 1\u001b[0m",
        rb"\x1b[36mstep: 1\x1b[0m",
        rb"\033[36mstep: 1\033[0m",
        rb"\e[36mstep: 1\e[0m",
        "\u241b[36mstep: 1\u241b[0m".encode(),
        b"[36mstep: 1[39m",
        b"[0;36mstep: 1[0m",
        b"[1m[34mstep: 1[m",
    ],
)
def test_colours_come_off(text: bytes) -> None:
    assert pieces(text) == [b"step: 1"]


def test_colours_inside_brackets_come_off() -> None:
    assert pieces(b"[[32m20260101 10:00:00[0m][[36mrank-7/8[0m] x") == [b"[20260101 10:00:00][rank-7/8] x"]


@pytest.mark.parametrize(
    "text",
    [
        b"took [10ms] of [5m], [1m30s], [2m 12s] and [30min] or [15m/it]",
        b"[mpi] [megatron/training.py:12] height [m] [4ms, 5ms]",
        b"a[3] [rank0]: [1,0]<stdout>: [titan] q ^[",
    ],
)
def test_words_in_brackets_stay(text: bytes) -> None:
    assert pieces(text) == [text]


def test_a_carriage_return_starts_the_line_anew() -> None:
    assert pieces(b"\r 10%|#  |\r 20%|## |\rdone\r") == [b" 10%|#  |", b" 20%|## |", b"done"]
    assert pieces(b"text\r") == [b"text"]
    assert pieces(b"text^M") == [b"text"]
    assert pieces(b"\r") == []


def test_the_first_piece_may_be_nothing() -> None:
    assert first_piece(b" \x1b[1ma\x1b[0m \rb") == b"a"
    assert first_piece(b"") == first_piece(b"\r") == b""


@pytest.mark.parametrize(
    ("prefix", "label"),
    [
        (b"", b""),
        (b" [2026-01-01 10:00:00.000000] ", b""),
        (b"2026-01-01T10:00:00.123456789Z ", b""),
        (b"[2026-01-01T10:00:00+08:00] ", b""),
        (b"[20260101 10:00:00][rank-7/8][INFO ] ", b"[rank-7/8][INFO ]"),
        (b"Jan  1 10:00:00 node7 ", b"node7"),
        (b"24-11-05 12:34:56.789012 - 3: ", b"- 3:"),
        (b"[default7]: [2026-01-01 10:00:00] ", b"[default7]:"),
        (b" 12:  ", b"12:"),
        (b"[1,3]<stdout>: ", b"[1,3]<stdout>:"),
    ],
)
def test_labels_have_no_time(prefix: bytes, label: bytes) -> None:
    assert label_of(prefix) == label


def test_wrapped_lines_join_without_their_ends() -> None:
    assert joined([b"number of sk\r", b"ipped\r", b": 0"]) == b"number of skipped: 0"


@pytest.mark.parametrize("unit", [b"[", b"[1", b"[1;", b"\x1b[", b"\x1b]", b"^[", b"12", b" ", b"2026-01-01 ", b"\r"])
def test_a_megabyte_without_meaning_is_read_in_a_moment(unit: bytes) -> None:
    text = unit * (1 << 19)
    before = time.process_time()
    pieces(text)
    label_of(text)
    assert time.process_time() - before < 10
