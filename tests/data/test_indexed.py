"""Is an indexed dataset whole? Every way in which copies of it break."""

import struct
from pathlib import Path

import pytest

from nlp_bench.data.indexed import HEADER, MAGIC, check_indexed
from nlp_bench.errors import UsageError


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Two documents of 3 and 2 tokens of 2 bytes."""
    index = HEADER.pack(MAGIC, 1, 8, 2, 3) + struct.pack("<2i2q3q", 3, 2, 0, 6, 0, 1, 2)
    (tmp_path / "my data.idx").write_bytes(index)
    (tmp_path / "my data.bin").write_bytes(bytes(10))
    return str(tmp_path / "my data")


def test_a_whole_dataset_passes(prefix: str) -> None:
    check_indexed(prefix)


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".bin", bytes(9), r"data.bin has 9 bytes but its index says 10; it is truncated; make the data anew"),
        (".bin", b"version https://git-lfs.github.com/spec/v1\n", r"data.bin is a git-lfs pointer, not the file"),
        (".idx", b"MMIDIDX", r"is not a Megatron index"),
        (".idx", b"TNTIDX\x00\x00" + bytes(40), r"is not a Megatron index"),
        (".idx", HEADER.pack(MAGIC, 2, 8, 2, 3), r"has version 2, token type 8; only version 1 is known"),
        (".idx", HEADER.pack(MAGIC, 1, 8, 2, 3) + bytes(47), r"data.idx has 81 bytes but its header says 82"),
        (".idx", HEADER.pack(MAGIC, 1, 8, 0, 1) + bytes(8), r"holds no sequences"),
    ],
)
def test_a_broken_dataset_is_refused(prefix: str, suffix: str, content: bytes, message: str) -> None:
    Path(prefix + suffix).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        check_indexed(prefix)


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_a_missing_file_is_named_with_its_remedy(prefix: str, suffix: str) -> None:
    Path(prefix + suffix).unlink()
    with pytest.raises(
        UsageError, match=rf"data\{suffix} does not exist; make it with nlp-bench data, or use --mock-data"
    ):
        check_indexed(prefix)
