"""Whole logs: compression, carriage returns, echoes, restarts, damage."""

import gzip
import io
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlp_bench.errors import UsageError
from nlp_bench.logs import lines, reader
from nlp_bench.logs.reader import read_log
from nlp_bench.logs.record import Log

Pack = Callable[[bytes], bytes]


def line(iteration: int, elapsed_s: str = "1.5000", prefix: str = "[default3]: ") -> str:
    return (
        f"{prefix}iteration {iteration:8d}/{100:8d} | consumed samples: {iteration * 8:12d} | "
        f"elapsed time per iteration (s): {elapsed_s} | global batch size: {8:5d} | lm loss: 2.000000E+00 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 5.3 | TFLOPs: 1.00 |\n"
    )


def log_of(tmp_path: Path, content: bytes | str, name: str = "job.out") -> Log:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_log(str(path))


def iterations(log: Log) -> list[list[int]]:
    return [[record.iteration for record in attempt.records] for attempt in log.attempts]


TEXT = "".join(line(i) for i in range(1, 6))


@pytest.mark.parametrize(("name", "pack"), [("a.log", bytes), ("a.gz", gzip.compress), ("a.xz", lzma.compress)])
def test_plain_and_compressed_are_the_same(tmp_path: Path, name: str, pack: Pack) -> None:
    log = log_of(tmp_path, pack(TEXT.encode()), name)
    assert (iterations(log), log.num_torn, log.damage) == ([[1, 2, 3, 4, 5]], 0, None)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_cut_compressed_log_gives_what_it_holds_and_says_so(tmp_path: Path, pack: Pack) -> None:
    packed = pack("".join(line(i, f"1.{i:04d}") for i in range(1, 9000)).encode())
    log = log_of(tmp_path, packed[: len(packed) // 2])
    assert log.damage


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(TEXT.encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(packed))))
    assert iterations(read_log("-")) == [[1, 2, 3, 4, 5]]


def test_zstd_is_refused_with_the_way_round(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="zstd -dc"):
        log_of(tmp_path, b"\x28\xb5\x2f\xfd rest")


def test_windows_line_ends_bars_and_colours(tmp_path: Path) -> None:
    text = "".join(f"\r 10%|#  |\r 20%|## |\r\x1b[32m{line(i)[:-1]}\x1b[0m\r\n" for i in (1, 2))
    log = log_of(tmp_path, text)
    assert (iterations(log), log.num_torn) == ([[1, 2]], 0)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    log = log_of(tmp_path, b"\xff\xfe\x00" + line(1).encode() + b"\x80 loss: \xc3\n" + line(2).encode())
    assert iterations(log) == [[1, 2]]


def test_line_numbers(tmp_path: Path) -> None:
    log = log_of(tmp_path, "a\nb\n" + line(1) + "c\n" + line(2))
    assert [record.line_number for record in log.attempts[0].records] == [3, 5]


def test_line_numbers_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"noise {'x' * (i % 37)}\n" + line(i) for i in range(1, 60)).encode()
    expected = log_of(tmp_path, text)
    for size in (1, 7, 100, 333):
        monkeypatch.setattr(lines, "BLOCK_BYTES", size)
        assert log_of(tmp_path, text) == expected


def test_the_same_record_of_several_ranks_counts_once(tmp_path: Path) -> None:
    text = "".join(line(i, f"1.50{rank}0", prefix=f"[default{rank}]: ") for i in (1, 2, 3) for rank in range(4))
    log = log_of(tmp_path, text)
    assert (iterations(log), log.num_echoes) == ([[1, 2, 3]], 9)


def test_a_restart_is_another_attempt(tmp_path: Path) -> None:
    text = "".join(line(i, f"1.{i:04d}") for i in (10, 20, 30)) + "".join(line(i, f"1.9{i:03d}") for i in (20, 30, 40))
    assert iterations(log_of(tmp_path, text)) == [[10, 20, 30], [20, 30, 40]]


def test_another_argument_dump_is_another_attempt(tmp_path: Path) -> None:
    dump = "------------------------ arguments ------------------------\n  seq_length ........ {}\n  world_size ........ 8\n"
    log = log_of(tmp_path, dump.format(128) + line(1) + line(2) + dump.format(256) + line(3))
    assert iterations(log) == [[1, 2], [3]]
    assert [attempt.arguments["seq_length"] for attempt in log.attempts] == [128, 256]
    assert log.attempts[0].arguments["world_size"] == 8


def test_the_first_dump_of_a_name_counts(tmp_path: Path) -> None:
    log = log_of(tmp_path, "  world_size ........ 64\n  world_size ........ 1\n" + line(1))
    assert log.attempts[0].arguments == {"world_size": 64}


@pytest.mark.parametrize("value", ["0.0000", "-1.0", "nan", "inf", "1e400"])
def test_impossible_times_are_left_out(tmp_path: Path, value: str) -> None:
    log = log_of(tmp_path, line(1) + line(2, value))
    assert [record.elapsed_s for record in log.attempts[0].records] == [1.5, None]
    assert log.num_impossible == 1


@pytest.mark.parametrize("value", ["", "1.#INF", "abc", "7.1/7.2", "1,5"])
def test_times_that_are_no_numbers_are_torn(tmp_path: Path, value: str) -> None:
    log = log_of(tmp_path, line(1) + line(2, value))
    assert (iterations(log), log.num_torn) == ([[1]], 1)


def test_a_line_without_end_keeps_memory_bounded(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    with path.open("wb") as stream:
        stream.write(line(1).encode())
        for _ in range(40):
            stream.write(b"iteration " * 100_000)
        stream.write(b"\n" + line(2).encode())
    tracemalloc.start()
    log = read_log(str(path))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert iterations(log) == [[1, 2]]
    assert log.attempts[0].records[1].line_number == 3
    assert peak_bytes < 16 * lines.MAX_LINE_BYTES


def test_a_splice_at_every_byte_loses_no_other_record(tmp_path: Path) -> None:
    first, second, third = line(1), line(2), line(3)
    for cut in range(len(second)):
        log = log_of(tmp_path, first + second[:cut] + "[default0]: warning: something\n" + third)
        found = log.attempts[0].records
        assert found[0].iteration == 1
        assert found[-1].iteration == 3
        assert all(record.elapsed_s == 1.5 for record in found)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_bytes_raise(data: st.DataObject) -> None:
    content = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(1, 12))):
        where = data.draw(st.integers(0, len(content) - 1))
        content[where : where + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    reading = reader._Reading()
    for found in lines.lines_with(iter([bytes(content)]), reader.dialect.NEEDLES):
        reading.take(found)
    log = reading.result([])
    assert all(record.elapsed_s is None or record.elapsed_s > 0 for a in log.attempts for record in a.records)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UsageError, match="no/such/file"):
        read_log("no/such/file")
