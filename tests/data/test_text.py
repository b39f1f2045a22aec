"""Blocks of whole lines: all of the file, cut in the same places wherever reading begins."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlp_bench.data import text as module
from nlp_bench.data.text import Block, blocks
from nlp_bench.errors import UsageError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 8)
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 64)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blocks") / "a"


def without_position(found: list[Block]) -> list[tuple[bytes, int, int]]:
    return [(block.data, block.end, block.number) for block in found]


@given(st.lists(st.integers(0, 40), max_size=12), st.booleans(), st.booleans())
def test_reading_can_begin_behind_every_block(place: Path, lengths: list[int], is_packed: bool, is_whole: bool) -> None:
    text = b"\n".join(b"x" * length for length in lengths) + (b"\n" if is_whole else b"")
    place.write_bytes(gzip.compress(text) if is_packed else text)
    found = list(blocks(place))
    assert b"".join(block.data for block in found) == text
    assert all(block.data.endswith(b"\n") for block in found[:-1])
    for number, block in enumerate(found):
        following = block.number + block.data.count(b"\n")
        again = list(blocks(place, block.end, following))
        assert without_position(again) == without_position(found[number + 1 :])


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x\n" + b"y" * 100)
    with pytest.raises(UsageError, match=r"a, line 2: longer than 64 bytes; is this JSON lines"):
        list(blocks(tmp_path / "a"))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"PK\x03\x04", "is a zip archive; unpack it"), (b"PAR1abc", "is Parquet; write it as JSON lines")],
)
def test_what_is_no_text_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        list(blocks(tmp_path / "a"))


def test_a_packed_file_that_became_shorter_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"x\n"))
    with pytest.raises(UsageError, match="cannot be read to its end: it is shorter than it was"):
        list(blocks(tmp_path / "a", begin=10))
