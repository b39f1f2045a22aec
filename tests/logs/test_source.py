"""Blocks of whole lines: any size, any packing, any damage, bounded memory."""

import gzip
import io
import lzma
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nlp_bench.errors import UsageError
from nlp_bench.logs import source
from nlp_bench.logs.source import MAX_LINE_BYTES, open_log

Pack = Callable[[bytes], bytes]
PACKS = [pytest.param(bytes, id="plain")] + [
    pytest.param(pack, id=name) for name, pack in (("gz", gzip.compress), ("xz", lzma.compress), ("zst", zstd.compress))
]
TEXT = b"".join(b"line %07d of a log\n" % i for i in range(150_000)) + b"an end without its line feed"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def seen(path: Path | str) -> tuple[list[tuple[int, int, bytes]], str | None]:
    """Return (number, offset, text with its line feed) of every line, and the damage."""
    lines = []
    with open_log(str(path)) as log:
        for block in log.blocks():
            number, offset = block.number, block.offset
            for line in bytes(block.data[block.begin : block.end]).splitlines(keepends=True):
                lines.append((number, offset, line))
                number, offset = number + 1, offset + len(line)
    return lines, log.damage


def expected(content: bytes, max_line_bytes: int = MAX_LINE_BYTES) -> list[tuple[int, int, bytes]]:
    """Return the same by a plain split."""
    lines, offset = [], 0
    for number, line in enumerate(io.BytesIO(content), start=1):
        is_short = len(line.removesuffix(b"\n")) <= max_line_bytes
        lines.append((number, offset, line if is_short else line[:max_line_bytes]))
        offset += len(line)
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("pack", PACKS)
def test_every_line_is_seen_once_with_its_number_and_offset(path: Path, pack: Pack) -> None:
    path.write_bytes(pack(TEXT))
    assert seen(path) == (expected(TEXT), None)


@pytest.mark.parametrize("pack", PACKS)
def test_members_may_follow_one_another(path: Path, pack: Pack) -> None:
    parts = [TEXT[:1000], b"", TEXT[1000:70_000], TEXT[70_000:90_000]]
    path.write_bytes(b"".join(map(pack, parts)))
    assert seen(path) == (expected(b"".join(parts)), None)


def test_zeros_that_pad_a_compressed_file_are_no_damage(path: Path) -> None:
    path.write_bytes(gzip.compress(b"a\n") + bytes(40_000) + gzip.compress(b"b\n") + bytes(512))
    assert seen(path) == (expected(b"a\nb\n"), None)


def test_a_zstd_file_may_begin_with_a_frame_to_be_skipped(path: Path) -> None:
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + zstd.compress(b"a\n"))
    assert seen(path) == (expected(b"a\n"), None)


@pytest.mark.slow
@pytest.mark.parametrize("pack", PACKS[1:])
def test_a_cut_file_gives_what_it_holds_and_says_so(path: Path, pack: Pack) -> None:
    # Random digits: a compressed file that has many blocks.
    content = b"".join(b"%s\n" % os.urandom(30).hex().encode() for _ in range(20_000))
    packed = pack(content)
    path.write_bytes(packed[: len(packed) * 2 // 3])
    lines, damage = seen(path)
    assert "cut" in damage
    assert len(lines) > 8000
    assert lines[:-1] == expected(content)[: len(lines) - 1]


@pytest.mark.slow
@pytest.mark.parametrize("pack", PACKS[1:])
def test_a_corrupt_file_gives_a_beginning_and_says_so(path: Path, pack: Pack) -> None:
    content = b"".join(b"%s\n" % os.urandom(30).hex().encode() for _ in range(20_000))
    packed = bytearray(pack(content))
    packed[len(packed) // 2 : len(packed) // 2 + 300] = bytes(300)
    path.write_bytes(packed)
    lines, damage = seen(path)
    assert damage
    assert lines[:1000] == expected(content)[: len(lines)][:1000]


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([gzip.compress, lzma.compress, zstd.compress]), st.data())
def test_no_byte_of_a_compressed_file_raises(path: Path, pack: Pack, data: st.DataObject) -> None:
    packed = bytearray(pack(TEXT[:3000]) + pack(TEXT[:100]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(packed[: data.draw(st.integers(0, len(packed)))])
    seen(path)


def test_what_is_not_compressed_behind_a_compressed_log_is_damage(path: Path) -> None:
    path.write_bytes(gzip.compress(b"a\n") + b"appended later\n")
    lines, damage = seen(path)
    assert lines == expected(b"a\n")
    assert "not compressed" in damage


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks small, so that short texts meet every boundary."""
    for name, size in (
        ("MAX_LINE_BYTES", 40),
        ("LOOKAHEAD_BYTES", 16),
        ("_CARRY_BYTES", 57),
        ("_FIRST_BYTES", 5),
        ("_FRESH_BYTES", 8),
    ):
        monkeypatch.setattr(source, name, size)


@pytest.mark.slow
@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(st.integers(0, 60), st.sampled_from([39, 40, 41, 55, 56, 57, 58, 200])), max_size=20),
    st.booleans(),
)
def test_blocks_hide_nothing_wherever_they_are_cut(
    path: Path, monkeypatch: pytest.MonkeyPatch, lengths: list[int], is_ended: bool
) -> None:
    small(monkeypatch)
    content = b"\n".join(bytes([97 + i % 26]) * length for i, length in enumerate(lengths)) + b"\n" * is_ended
    path.write_bytes(content)
    assert seen(path) == (expected(content, 40), None)
    with open_log(str(path)) as log:
        for block in log.blocks():
            is_cut = block.data[block.end - 1] != ord("\n") and not block.is_last
            following = content[block.offset + block.end - block.begin :]
            known = bytes(block.data[block.end : block.lookahead_end])
            assert following.startswith(known)
            assert is_cut or len(known) >= min(16, len(following))


@pytest.mark.parametrize("num_bytes", [MAX_LINE_BYTES, MAX_LINE_BYTES + 1, 10_000_000])
def test_a_long_line_is_seen_up_to_its_first_mebibyte(path: Path, num_bytes: int) -> None:
    content = b"first\n" + b"x" * num_bytes + b"\nlast\n"
    path.write_bytes(content)
    assert seen(path) == (expected(content), None)


@pytest.mark.slow
@pytest.mark.parametrize("pack", PACKS)
def test_memory_is_bounded_whatever_the_file_holds(path: Path, pack: Pack) -> None:
    path.write_bytes(pack(b"iteration " * 3_000_000))
    with open_log(str(path)) as log:
        tracemalloc.start()
        num_lines = sum(1 for _ in log.blocks())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert num_lines == 1
    assert log.num_bytes == 30_000_000
    assert peak < 24 << 20


@pytest.mark.parametrize("pack", PACKS)
def test_standard_input_may_be_a_slow_pipe(monkeypatch: pytest.MonkeyPatch, pack: Pack) -> None:
    packed = pack(TEXT[:5000])
    reading, writing = os.pipe()

    def write() -> None:
        for i in range(len(packed)):
            os.write(writing, packed[i : i + 1])
        os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reading) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert seen("-") == (expected(TEXT[:5000]), None)
    thread.join()


def test_sizes_and_position_serve_a_progress_bar(path: Path) -> None:
    path.write_bytes(gzip.compress(TEXT))
    with open_log(str(path)) as log:
        assert log.position_bytes == 0
        assert [block.is_last for block in log.blocks()][-1]
        assert log.position_bytes == path.stat().st_size
        assert log.num_bytes == len(TEXT)


def test_an_empty_log_has_no_blocks(path: Path) -> None:
    path.touch()
    assert seen(path) == ([], None)


@pytest.mark.parametrize("name", ["missing", ".", "with\0zero"])
def test_what_cannot_be_opened_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot read"), open_log(f"{tmp_path}/{name}"):
        pass


def test_a_closed_standard_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="standard input is closed"), open_log("-"):
        pass
